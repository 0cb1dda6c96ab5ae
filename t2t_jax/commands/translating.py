"""Verbs in which a run answers lines of text."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from t2t_jax import run_directory
from t2t_jax.command_line import DONE
from t2t_jax.commands import settle
from t2t_jax.data.sources import lines_of, read_lines
from t2t_jax.decoding.sampling import Sampling
from t2t_jax.decoding.scorer import Scorer
from t2t_jax.decoding.stream import in_chunks
from t2t_jax.decoding.translator import Translation, Translator
from t2t_jax.errors import RunError, UserError
from t2t_jax.evaluation.tasks import Parsing
from t2t_jax.files import write_atomically
from t2t_jax.options import Parse, Score, Translate
from t2t_jax.parallel.channel import Channel
from t2t_jax.parallel.processes import connected
from t2t_jax.parsing.pictures import draw
from t2t_jax.parsing.repair import Repaired
from t2t_jax.parsing.trees import split_words
from t2t_jax.progress import say


def translate(targets: Sequence[Path], options: Translate) -> int:
    """Translate a stream of lines, by one run or by an ensemble."""
    sampling = Sampling(options.temperature, options.top_k, options.top_p, options.seed) if options.sample else None
    if options.n_best < 1:
        raise UserError(f"--n-best {options.n_best} must be at least 1.")
    settle()
    with connected(options.process) as channel, _output(options.output if channel.first else Path(os.devnull)) as file:
        translator = Translator.load(targets, options.decoding, channel)
        if options.alignments and translator.transformer.alignment() is None:
            raise RunError(f"{str(targets[0])!r} is one stack that nowhere looks at the source alone: no --alignments.")
        lines = _decoded(read_lines(options.input) if options.input else lines_of(sys.stdin.buffer))
        prefixes = _decoded(read_lines(options.prefix)) if options.prefix else None

        def answer(chunk: list[tuple[str, str]]) -> list[str]:
            sources, begun = zip(*chunk, strict=True)
            found = translator.translate(sources, options.n_best, begun if prefixes is not None else None, sampling)
            told.count(found)
            return list(_format(scorer, sources, found, options))

        told, scorer = _Cuts(), Scorer(translator)
        pairs = paired(lines, prefixes) if prefixes is not None else ((line, "") for line in lines)
        for line in in_chunks(pairs, answer, channel):
            file.write(line.encode("utf-8", errors="replace") + b"\n")
            file.flush()
        told.tell(translator)
    return DONE


def parse(targets: Sequence[Path], options: Parse) -> int:
    """Answer each line with the tree over its words; a line without words with an empty one."""
    (run,) = targets
    experiment = run_directory.load_config(run)
    if experiment.data.task != "parsing":
        raise RunError(f"{str(run)!r} was trained for {experiment.data.task}, not for parsing.")
    if options.pictures is not None:
        with _pictures_in(options.pictures):
            options.pictures.mkdir(parents=True, exist_ok=True)
    settle()
    with _output(options.output) as file:
        translator = Translator.load(run, options.decoding)
        told, task, mended, edits = _Cuts(), Parsing(), 0, 0
        lines = _decoded(read_lines(options.input) if options.input else lines_of(sys.stdin.buffer))

        def answer(chunk: list[str]) -> Iterator[Repaired | None]:
            found = translator.translate([" ".join(split_words(line)) for line in chunk])
            told.count(found)
            return (task.mend(line, best.text) for line, (best,) in zip(chunk, found, strict=True))

        for number, parsed in enumerate(in_chunks(lines, answer, Channel.alone()), start=1):
            if parsed is not None:
                mended, edits = mended + (parsed.edits > 0), edits + parsed.edits
                if options.pictures is not None:
                    with _pictures_in(options.pictures):
                        write_atomically(options.pictures / f"{number:06}.svg", draw(parsed.tree) + "\n")
            text = "" if parsed is None else str(parsed.tree)
            file.write(text.encode("utf-8", errors="replace") + b"\n")
            file.flush()
        told.tell(translator)
        if mended:
            say(f"Trees that had to be mended: {mended:,}, in {edits:,} tokens")
    return DONE


@contextlib.contextmanager
def _pictures_in(folder: Path) -> Iterator[None]:
    """Around what writes pictures: a folder or disk that does not take them is the user's to mend."""
    try:
        yield
    except OSError as error:
        raise UserError(f"Pictures cannot be written to {str(folder)!r}: {error.strerror or error}.") from None


def score(targets: Sequence[Path], options: Score) -> int:
    """Print the log-probability of each target line."""
    files = options.source, options.target
    counts = [sum(1 for _ in read_lines(file)) for file in files]
    if counts[0] != counts[1]:
        raise UserError(
            f"{str(files[0])!r} has {counts[0]:,} lines, {str(files[1])!r} {counts[1]:,}; each target line "
            "is scored given the source line of the same number."
        )
    settle()
    scorer = Scorer(Translator.load(targets))
    pairs = zip(*(_decoded(read_lines(file)) for file in files), strict=True)
    total, tokens, cut = 0.0, 0, 0
    for result in in_chunks(pairs, lambda chunk: scorer.score(*zip(*chunk, strict=True)), Channel.alone()):
        print(f"{result.log_probability:.6f}", flush=True)
        total += result.log_probability
        tokens += result.tokens
        cut += result.cut
    if tokens:
        say(f"{counts[0]:,} lines, {tokens:,} tokens, perplexity {math.exp(min(-total / tokens, 700.0)):.2f} a token")
    if cut:
        say(f"Lines too long to be read whole, of which only the beginning was scored: {cut:,}")
    return DONE


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[IO[bytes]]:
    """Standard output, or a file that appears when it is complete; a device or a pipe is written as it is."""
    if path is None:
        yield sys.stdout.buffer
        return
    target = path.resolve()
    if target.is_dir():
        raise UserError(f"{str(path)!r} is a folder; give --output the name of a file.")
    ordinary = target.is_file() or not target.exists()
    place = target.with_name(f".{target.name}.partial") if ordinary else target
    try:
        with place.open("wb") as file:
            yield file
        if ordinary:
            place.replace(target)
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be written: {error.strerror or error}.") from None
    finally:
        if ordinary:
            place.unlink(missing_ok=True)


def _decoded(lines: Iterator[bytes]) -> Iterator[str]:
    """Text of each line; bytes that are not UTF-8 become U+FFFD, so that every line still gets its answer."""
    for line in lines:
        yield line.decode("utf-8", errors="replace")


def paired(lines: Iterator[str], prefixes: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Each line with the prefix of the same number.

    Raises:
      UserError: there are more of one than of the other.
    """
    end = object()
    for number, (line, prefix) in enumerate(itertools.zip_longest(lines, prefixes, fillvalue=end), start=1):
        if line is end or prefix is end:
            fewer = "input" if line is end else "--prefix"
            raise UserError(f"The {fewer} ends before line {number:,}; it must have a line for each of the other's.")
        yield str(line), str(prefix)


def _format(
    scorer: Scorer, sources: Sequence[str], found: Sequence[Sequence[Translation]], options: Any
) -> Iterator[str]:
    """The output lines of `translate`: columns, if there are several, divided by tabs."""
    flat = [
        (source, translation)
        for source, translations in zip(sources, found, strict=True)
        for translation in translations
    ]
    alignments = _alignments(scorer, flat) if options.alignments else None
    for place, (_, translation) in enumerate(flat):
        columns = [translation.text]
        if options.scores:
            columns = [f"{translation.score:.4f}", "cut" if translation.cut else "end", *columns]
        if alignments is not None:
            columns.append(alignments[place])
        yield "\t".join(columns)


def _alignments(scorer: Scorer, pairs: Sequence[tuple[str, Translation]]) -> list[str]:
    """Of each pair, "s-t" for each target token t and the source token s that it looked at most."""
    written = [place for place, (_, translation) in enumerate(pairs) if translation.ids]
    sources, ids = [pairs[i][0] for i in written], [pairs[i][1].ids for i in written]
    alignments = [""] * len(pairs)
    for place, weights in scorer.attention(sources, ids):
        mean = weights.mean(axis=0)[:-1, :-1]  # without the ends of sentence
        alignments[written[place]] = " ".join(
            f"{int(looked_at)}-{t}" for t, looked_at in enumerate(mean.argmax(axis=1))
        )
    return alignments


class _Cuts:
    """Counts what was not read or not written to its end, to say so when all is done."""

    def __init__(self) -> None:
        self.sources = self.outputs = 0

    def count(self, found: Sequence[Sequence[Translation]]) -> None:
        self.sources += sum(translations[0].source_cut for translations in found)
        self.outputs += sum(translation.cut for translations in found for translation in translations)

    def tell(self, translator: Translator) -> None:
        if self.sources:
            longest = translator.longest_source
            say(f"Lines of more than {longest:,} tokens, of which only that much was translated: {self.sources:,}")
        if self.outputs:
            say(f"Translations cut at their length limit (--decoding.extra-length): {self.outputs:,}")
