"""Sentences in, translations out, by a trained run: grouped by length, searched in batches, returned in order."""

from __future__ import annotations

import collections
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from t2t_jax import config
from t2t_jax.decoding.beam import BeamSearch, Hypotheses
from t2t_jax.decoding.sampling import Sampler, Sampling
from t2t_jax.decoding.stages import Member, Shape, Stages
from t2t_jax.errors import ConfigError, DataError, RunError
from t2t_jax.model import EncoderDecoder
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.channel import Channel
from t2t_jax.symbols import EOS_ID, PAD_ID
from t2t_jax.training.state import Params
from t2t_jax.training.trained import Trained, load

# Padded source lengths, end of sentence included: a closed set, so that few searches are compiled whatever comes in.
SOURCE_LENGTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)

# Sentences searched together at most. A batch that is not full costs as much as one that is, and with 32 a CPU is busy.
MAX_ROWS, MAX_ROWS_ON_CPU = 64, 32


class Translation(NamedTuple):
    """One hypothesis for one line."""

    text: str
    score: float
    """Log-probability over length penalty."""
    ids: tuple[int, ...]
    """Token ids without end of sentence."""
    cut: bool
    """True when the length limit came before the end of sentence."""
    source_cut: bool
    """True when the source was too long to be read whole."""


EMPTY = Translation("", 0.0, (), False, False)


class Translator:
    """A trained model with its tokenizer; `translate` is all that most people need of it."""

    def __init__(
        self,
        trained: Sequence[Trained],
        decoding: config.Decoding | None = None,
        channel: Channel | None = None,
        devices: Sequence[jax.Device] | None = None,
    ):
        """Prepare to translate.

        Args:
          trained: the model, or several over one vocabulary whose probabilities are averaged.
          decoding: settings of the search; those of the first model by default.
          channel: to the other processes, if several share the lines.
          devices: of this process, which divide the rows of a batch among them; all of them by default.

        Raises:
          RunError: a model that writes no text, or models with different vocabularies.
        """
        members = [_member(one) for one in trained]
        first = trained[0]
        for other in trained[1:]:
            if other.tokenizer != first.tokenizer:
                raise RunError(f"{first} and {other} have different vocabularies; no ensemble can be made.")
        self.tokenizer, self.decoding = first.tokenizer, decoding or first.experiment.decoding
        self.channel = channel or Channel.alone()
        self.mesh = meshes.make_mesh(config.Mesh(), devices or jax.local_devices())
        whole = meshes.on_every_device(self.mesh)
        self.members = [Member(m.transformer, jax.device_put(m.params, whole)) for m in members]
        # Sinusoids go on for ever; rows of a learned table beyond what training may have seen are noise.
        bounds = [one.experiment.data.max_length for one in trained if one.experiment.model.bounded]
        self._most_positions = min(bounds, default=None)
        self._most_rows = MAX_ROWS_ON_CPU if self.mesh.devices.flat[0].platform == "cpu" else MAX_ROWS
        longest = min([self.decoding.max_source_length, *bounds])
        self._lengths = sorted({*(length for length in SOURCE_LENGTHS if length < longest), longest})
        self._stages = Stages(self.members, self.mesh)

    @classmethod
    def load(
        cls,
        runs: Path | Sequence[Path],
        decoding: config.Decoding | None = None,
        channel: Channel | None = None,
        devices: Sequence[jax.Device] | None = None,
    ) -> Translator:
        """The translator of a run directory, or of several as an ensemble, with their averaged parameters.

        Raises:
          RunError: not a run directory, one without a checkpoint, one whose model writes no text, or runs with
            different vocabularies.
        """
        runs = [runs] if isinstance(runs, Path) else runs
        return cls([load(run) for run in runs], decoding, channel, devices)

    @property
    def transformer(self) -> EncoderDecoder:
        """The (first) model."""
        return self.members[0].transformer

    @property
    def params(self) -> Params:
        """Its parameters."""
        return self.members[0].params

    @property
    def seconds_compiling(self) -> float:
        """Time that compiling searches has taken so far."""
        return self._stages.seconds_compiling

    @property
    def longest_source(self) -> int:
        """Most source tokens that are read, end of sentence included."""
        return self._lengths[-1]

    def translate(
        self,
        lines: Sequence[str],
        n_best: int = 1,
        prefixes: Sequence[str] | None = None,
        sampling: Sampling | None = None,
    ) -> list[list[Translation]]:
        """The `n_best` translations of each line, best first; a blank line's is empty.

        The result for a line depends on that line alone. Sources longer than `longest_source` tokens are cut to it.

        Args:
          lines: one sentence each.
          n_best: translations wanted of each.
          prefixes: what the translation of each line must begin with; "" leaves it free.
          sampling: draw `n_best` translations of each line instead of searching.

        Raises:
          ConfigError: more translations a line than the beam has hypotheses.
          DataError: a prefix is longer than the translation may be.
        """
        return self.collect(len(lines), n_best, self.translate_share(lines, n_best, prefixes, sampling))

    def collect(
        self, lines: int, n_best: int, share: Iterable[tuple[int, list[Translation]]]
    ) -> list[list[Translation]]:
        """All answers, from each process's `translate_share`; those of blank lines are empty."""
        answers = [[EMPTY] * n_best for _ in range(lines)]
        for part in self.channel.exchange(list(share)):
            for place, hypotheses in part:
                answers[place] = [Translation(text, score, tuple(ids), *cut) for text, score, ids, *cut in hypotheses]
        return answers

    def translate_share(
        self,
        lines: Sequence[str],
        n_best: int = 1,
        prefixes: Sequence[str] | None = None,
        sampling: Sampling | None = None,
    ) -> Iterator[tuple[int, list[Translation]]]:
        """(index of the line, its translations) of this process's share as they come, the longest lines first.

        All processes are given the same lines, whose batches are dealt out in turn. Blank ones are left out. Arguments
        as for `translate`.
        """
        if n_best > self.decoding.beam_size and sampling is None:
            raise ConfigError(f"decoding: beam_size={self.decoding.beam_size} cannot give the {n_best} best.")
        encoded = self.tokenizer.encode(lines)
        begun = self.tokenizer.encode(prefixes, "target") if prefixes is not None else None
        waiting: dict[int, list[int]] = collections.defaultdict(list)
        for place in sorted(range(len(lines)), key=lambda i: -len(encoded[i])):
            if lines[place].strip() and encoded[place]:
                waiting[self.padded_length(encoded[place])].append(place)
        parts = [
            (length, places[start : start + self._rows(length)])
            for length, places in waiting.items()
            for start in range(0, len(places), self._rows(length))
        ]
        for length, mine in itertools.groupby(parts[self.channel.number :: self.channel.count], lambda part: part[0]):
            places = [place for _, part in mine for place in part]
            rows = (
                (i, self._row(encoded[i], length, begun[i] if begun is not None else None, sampling)) for i in places
            )
            shape = Shape(length, self.target_length(length), self._rows(length))
            for place, found in self._stages.search(self._method(n_best, sampling), shape, rows):
                yield place, self._read(found, len(encoded[place]) >= length)

    def padded_length(self, ids: Sequence[int]) -> int:
        """The positions that a sentence of these tokens is padded to, end of sentence included."""
        return next((length for length in self._lengths if len(ids) < length), self.longest_source)

    def target_length(self, source_length: int) -> int:
        """Most tokens of a translation of a source of this padded length, end of sentence included."""
        length = source_length + self.decoding.extra_length
        return min(length, self._most_positions or length)

    def _rows(self, length: int) -> int:
        rows = self.decoding.tokens_per_batch // (length * self.decoding.beam_size)
        return max(1, min(self._most_rows, rows))

    def _method(self, n_best: int, sampling: Sampling | None) -> BeamSearch | Sampler:
        settings = self.decoding
        if sampling is not None:
            return Sampler(sampling, n_best)
        return BeamSearch(settings.beam_size, settings.alpha, settings.length_penalty, n_best, settings.early_stopping)

    def _row(
        self, ids: Sequence[int], length: int, begun: Sequence[int] | None, sampling: Sampling | None
    ) -> dict[str, np.ndarray]:
        """What there is to search for a sentence of a padded length."""
        read, most = np.asarray(ids[: length - 1], np.int32), self.target_length(length) - 1
        source = np.full(length, PAD_ID, np.int32)
        source[: len(read) + 1] = [*read, EOS_ID]
        limit = min(len(read) + self.decoding.extra_length, most)
        row = {"source": source}
        if begun is not None:
            if len(begun) > most:
                raise DataError(
                    f"The prefix {self.tokenizer.decode(begun)[:60]!r}… is longer than the {most} tokens that the "
                    "translation of its line may have (--decoding.extra-length)."
                )
            row["prefix"] = np.full(most + 1, PAD_ID, np.int32)
            row["prefix"][: len(begun)] = begun
            limit = min(most, max(limit, len(begun) + self.decoding.extra_length))
        if sampling is not None:
            row["lines"] = np.asarray(zlib.crc32(read.tobytes()), np.uint32)
        return row | {"limits": np.asarray(limit, np.int32)}

    def _read(self, hypotheses: Hypotheses, source_cut: bool) -> list[Translation]:
        found = []
        for tokens, score, length, cut in zip(*hypotheses, strict=True):
            ids = tuple(int(i) for i in tokens[:length])
            found.append(Translation(self.tokenizer.decode(ids), float(score), ids, bool(cut), source_cut))
        return found


def _member(trained: Trained) -> Member:
    transformer = trained.transformer
    if not isinstance(transformer, EncoderDecoder):
        raise RunError(f"{trained} is an encoder alone, which fills gaps and writes no text; `evaluate` scores it.")
    return Member(transformer, trained.params)
