"""Sentences in, translations out, by a trained run: grouped by length, searched in batches, returned in order."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from t2t_jax import config, model, run_directory
from t2t_jax.data import tokenizer as tokenizers
from t2t_jax.data.store import Ragged
from t2t_jax.data.tokenizer import Tokenizer
from t2t_jax.decoding.beam import Hypotheses, beam_search
from t2t_jax.errors import ConfigError
from t2t_jax.model import Transformer
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.channel import Channel
from t2t_jax.symbols import EOS_ID, PAD_ID
from t2t_jax.training import checkpoints
from t2t_jax.training.state import Params

# Padded source lengths, end of sentence included: a closed set, so that few searches are compiled whatever comes in.
SOURCE_LENGTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
MAX_ROWS = 64


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
        transformer: Transformer,
        params: Params,
        tokenizer: Tokenizer,
        decoding: config.Decoding,
        channel: Channel | None = None,
        devices: Sequence[jax.Device] | None = None,
        most_positions: int | None = None,
        steps: Sequence[int] = (),
    ):
        """Prepare to translate.

        Args:
          transformer, params, tokenizer: the model; its parameters as NumPy or JAX arrays.
          decoding: settings of the search.
          channel: to the other processes, if several share the lines.
          devices: of this process, which divide the rows of a batch among them; all of them by default.
          most_positions: length that the model was trained for, if it can't read or write beyond it.
          steps: training steps whose average `params` is, for reports.
        """
        self.steps = list(steps)
        self.transformer, self.tokenizer, self.decoding = transformer, tokenizer, decoding
        self.channel = channel or Channel.alone()
        self.mesh = meshes.make_mesh(config.Mesh(), devices or jax.local_devices())
        self._rows_on_mesh = meshes.Rows(self.mesh)
        self.params = jax.device_put(params, meshes.on_every_device(self.mesh))
        self._most_positions = most_positions
        longest = min(decoding.max_source_length, most_positions or decoding.max_source_length)
        self._lengths = sorted({*(length for length in SOURCE_LENGTHS if length < longest), longest})
        self._searches: dict[tuple[int, int], jax.stages.Compiled] = {}

    @classmethod
    def load(
        cls,
        run: Path,
        decoding: config.Decoding | None = None,
        channel: Channel | None = None,
        devices: Sequence[jax.Device] | None = None,
    ) -> Translator:
        """The translator of a run directory, with its averaged parameters.

        Raises:
          RunError: not a run directory, or one without a checkpoint.
        """
        experiment = run_directory.load_config(run)
        tokenizer = tokenizers.load(run)
        params, steps = checkpoints.load_averaged(run, experiment.training.average_last)
        transformer = model.build(experiment.model, tokenizer.size, experiment.training.compute_dtype)
        # Sinusoids go on for ever; rows of a learned table beyond the longest training sentence are noise.
        trained_length = experiment.data.max_length if experiment.model.positions == "learned" else None
        return cls(
            transformer, params, tokenizer, decoding or experiment.decoding, channel, devices, trained_length, steps
        )

    @property
    def longest_source(self) -> int:
        """Most source tokens that are read, end of sentence included."""
        return self._lengths[-1]

    def translate(self, lines: Sequence[str], n_best: int = 1) -> list[list[Translation]]:
        """The `n_best` translations of each line, best first; a blank line's is empty.

        The result for a line depends on that line alone. Sources longer than `longest_source` tokens are cut to it.
        """
        return self.collect(len(lines), n_best, self.translate_share(lines, n_best))

    def collect(
        self, lines: int, n_best: int, share: Iterable[tuple[int, list[Translation]]]
    ) -> list[list[Translation]]:
        """All answers, from each process's `translate_share`; those of blank lines are empty."""
        answers = [[EMPTY] * n_best for _ in range(lines)]
        for part in self.channel.exchange(list(share)):
            for place, hypotheses in part:
                answers[place] = [Translation(text, score, tuple(ids), *cut) for text, score, ids, *cut in hypotheses]
        return answers

    def translate_share(self, lines: Sequence[str], n_best: int = 1) -> Iterator[tuple[int, list[Translation]]]:
        """(index of the line, its translations) of this process's share as they come, the longest lines first.

        All processes are given the same lines. Blank ones are left out. Batches are dealt out in turn, so that a line
        is translated among the same others however many processes there are.

        Raises:
          ConfigError: more translations a line than the beam has hypotheses.
        """
        if n_best > self.decoding.beam_size:
            raise ConfigError(f"decoding: beam_size={self.decoding.beam_size} cannot give the {n_best} best.")
        encoded = self.tokenizer.encode(lines)
        waiting: dict[int, list[int]] = collections.defaultdict(list)
        for place in sorted(range(len(lines)), key=lambda i: -len(encoded[i])):
            if lines[place].strip() and encoded[place]:
                waiting[self._padded_length(encoded[place])].append(place)
        parts = [
            (length, places[start : start + self._rows(length)])
            for length, places in waiting.items()
            for start in range(0, len(places), self._rows(length))
        ]
        for length, part in parts[self.channel.number :: self.channel.count]:
            found = self._search([encoded[i] for i in part], length, n_best)
            yield from zip(part, found, strict=True)

    def attention(self, source: str, ids: Sequence[int]) -> np.ndarray:
        """Cross-attention weights of the last decoder layer, [H, T, S], for a source line and a translation's ids.

        Both sides include the end of sentence.
        """
        encoded = self.tokenizer.encode([source])[0][: self.longest_source - 1]
        pair = [jnp.asarray([[*side, EOS_ID]], jnp.int32) for side in (encoded, ids)]
        _, kept = self.transformer.apply(
            {"params": self.params}, *pair, deterministic=True, mutable=["intermediates"], method="__call__"
        )
        last = f"decoder_{self.transformer.config.num_layers - 1}"
        return np.asarray(kept["intermediates"][last]["cross_attention"]["weights"][0][0])

    def _padded_length(self, ids: Sequence[int]) -> int:
        return next((length for length in self._lengths if len(ids) < length), self.longest_source)

    def _rows(self, length: int) -> int:
        rows = self.decoding.tokens_per_batch // (length * self.decoding.beam_size)
        return max(1, min(MAX_ROWS, rows))

    def _filled_rows(self, length: int) -> int:
        return meshes.padded_rows(self._rows(length), meshes.row_parts(self.mesh))

    def _search(self, encoded: Sequence[Sequence[int]], length: int, n_best: int) -> list[list[Translation]]:
        """Translate sentences that share a padded length."""
        rows = self._filled_rows(length)
        read = [np.asarray(ids[: length - 1], np.int32) for ids in encoded]
        sentences = Ragged(np.concatenate(read), np.asarray([len(ids) for ids in read], np.int32))
        source = sentences.padded(np.arange(len(encoded)), rows, length, EOS_ID)
        limits = np.zeros(rows, np.int32)  # the rows that only fill the batch stay at 0 and are done at once
        limits[: len(encoded)] = np.minimum(
            sentences.lengths + self.decoding.extra_length, self._target_length(length) - 1
        )
        on_device = (self._rows_on_mesh.place(a, rows) for a in (source, limits))
        hypotheses = jax.device_get(self._compiled(length, n_best)(self.params, *on_device))
        return [self._read(hypotheses, row, len(ids) >= length) for row, ids in enumerate(encoded)]

    def _target_length(self, source_length: int) -> int:
        length = source_length + self.decoding.extra_length
        return min(length, self._most_positions or length)

    def _compiled(self, length: int, n_best: int) -> jax.stages.Compiled:
        if (length, n_best) not in self._searches:
            self._searches[length, n_best] = self._compile(length, n_best)
        return self._searches[length, n_best]

    def _compile(self, length: int, n_best: int) -> jax.stages.Compiled:
        settings, transformer = self.decoding, self.transformer
        target_length = self._target_length(length)

        def search(params: Params, source: jax.Array, limits: jax.Array) -> Hypotheses:
            real = source != PAD_ID
            variables = {"params": params}
            memory = transformer.apply(variables, source, deterministic=True, method="encode")
            beam = settings.beam_size
            start: Any = transformer.apply(variables, memory, real, beam, target_length, method="start_cache")

            def step(tokens: jax.Array, index: jax.Array, layers: Any) -> tuple[jax.Array, Any]:
                cache = start._replace(layers=layers)
                result: Any = transformer.apply(variables, tokens, index, cache, method="decode_step")
                logits, cache = result
                return logits, cache.layers

            return beam_search(
                step,
                start.layers,
                limits,
                beam=beam,
                length=target_length,
                alpha=settings.alpha,
                penalty=settings.length_penalty,
                n_best=n_best,
                early_stopping=settings.early_stopping,
            )

        rows, sharding = self._filled_rows(length), meshes.batch_sharding(self.mesh)
        source = jax.ShapeDtypeStruct((rows, length), np.int32, sharding=sharding)
        limits = jax.ShapeDtypeStruct((rows,), np.int32, sharding=sharding)
        # Each device searches for its own rows: nothing of one row depends on another, not even when it is done.
        whole, divided = meshes.on_every_device(self.mesh).spec, sharding.spec
        alone = jax.shard_map(
            search, mesh=self.mesh, in_specs=(whole, divided, divided), out_specs=divided, check_vma=False
        )
        with jax.default_matmul_precision("highest"):
            return jax.jit(alone).lower(self.params, source, limits).compile()

    def _read(self, hypotheses: Hypotheses, row: int, source_cut: bool) -> list[Translation]:
        found = []
        for tokens, score, length, cut in zip(*(column[row] for column in hypotheses), strict=True):
            ids = tuple(int(i) for i in tokens[:length])
            found.append(Translation(self.tokenizer.decode(ids), float(score), ids, bool(cut), source_cut))
        return found


def translate_stream(translator: Translator, lines: Iterator[str], chunk: int = 2048) -> Iterator[Translation]:
    """The best translation of each line of an endless stream, in order, a chunk at a time.

    Of several processes, which all call this, process 0 has the lines.
    """
    channel = translator.channel
    while buffer := channel.exchange(list(itertools.islice(lines, chunk)) if channel.first else None)[0]:
        yield from (best for best, *_ in translator.translate(buffer))
