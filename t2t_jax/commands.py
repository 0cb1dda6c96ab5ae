"""What each verb does, from parsed options to an exit status."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from t2t_jax import command_line, config, run_directory
from t2t_jax.command_line import DONE, STOPPED
from t2t_jax.data import pipeline, store
from t2t_jax.data.sources import lines_of, read_lines
from t2t_jax.data.tokenizer import Tokenizer
from t2t_jax.decoding.translator import Translation, Translator, translate_stream
from t2t_jax.errors import ConfigError, UserError
from t2t_jax.evaluation.evaluate import SplitResult, evaluate_split, write_report
from t2t_jax.evaluation.report_page import write_page
from t2t_jax.export import ctranslate2, marian, marian_import, trained
from t2t_jax.export.target import new_directory
from t2t_jax.parallel.channel import Channel
from t2t_jax.parallel.memory import keep_freed_memory
from t2t_jax.parallel.processes import connected
from t2t_jax.progress import say
from t2t_jax.run_lock import locked
from t2t_jax.training import loop

SAMPLES = 8


def train(targets: Sequence[Path], options: command_line.Train) -> int:
    """Train, average, translate the evaluation splits, print BLEU with samples, write the report."""
    experiment = options.settings
    run = options.workdir or Path("runs") / experiment.name
    keep_freed_memory()
    with connected(options.process) as channel, _writing(run, channel):
        outcome = loop.train(experiment, run, channel)
        if not outcome.finished:
            return STOPPED
        translator = Translator.load(run, channel=channel)
        results = [evaluate_split(run, experiment, translator, split) for split in experiment.evaluation.splits]
        if channel.first:
            _keep(run, experiment, translator, results)
            _print_samples(results[0], translator.tokenizer)
            _print_scores(results)
            print(f"\nReport: {run / run_directory.PAGE}")
    return DONE


def prepare(targets: Sequence[Path], options: command_line.Prepare) -> int:
    """Prepare the data and say what it is like."""
    experiment = options.settings
    run = options.workdir or Path("runs") / experiment.name
    with locked(run):
        prepared = loop.prepare(experiment, run, Channel.alone())
    corpus = prepared.corpus()
    plan = pipeline.plan_for(experiment.data, corpus, experiment.training.seed)
    print(store.describe(prepared.manifest))
    print(f"batches: {plan.batches_per_epoch:,} an epoch in {len(plan.shapes)} shapes, rows x (source+target):")
    for shape, count in zip(plan.shapes, plan.batches_per_shape, strict=True):
        print(f"  {shape!s:>16}  {count:,}")
    print(f"padding efficiency: {100 * plan.padding_efficiency(*corpus.lengths):.1f}%")
    return DONE


def evaluate(targets: Sequence[Path], options: command_line.Evaluate) -> int:
    """Score a run; the report is renewed when the run's own settings are used, so that it never shows others."""
    (run,) = targets
    experiment = run_directory.load_config(run)
    splits = (options.split,) if options.split else experiment.evaluation.splits
    own = options.decoding == experiment.decoding and splits == experiment.evaluation.splits
    keep_freed_memory()
    with connected(options.process) as channel:
        translator = Translator.load(run, options.decoding, channel)
        results = [evaluate_split(run, experiment, translator, split) for split in splits]
        if not channel.first:
            return DONE
        if options.json:
            print(json.dumps({result.split: result.as_json() for result in results}, indent=2))
        else:
            _print_scores(results)
        if own:
            with locked(run):
                _keep(run, experiment, translator, results)
        else:
            say("These are not the run's own settings, so its report stays as it is.")
    return DONE


def translate(targets: Sequence[Path], options: command_line.Translate) -> int:
    """Translate a stream of lines."""
    (run,) = targets
    keep_freed_memory()
    with connected(options.process) as channel, _output(options.output if channel.first else Path(os.devnull)) as file:
        translator = Translator.load(run, options.decoding, channel)
        lines = read_lines(options.input) if options.input else lines_of(sys.stdin.buffer)
        _write(file, translate_stream(translator, _decoded(lines)), translator.longest_source)
    return DONE


def export(targets: Sequence[Path], options: command_line.Export) -> int:
    """Write a run for another tool and print where."""
    (run,) = targets
    if options.format is None or options.output is None:
        raise UserError("`export` needs --format ctranslate2 or --format marian, and --output with the folder to make.")
    if options.format == "marian" and options.quantization != "float32":
        raise ConfigError(f"quantization={options.quantization!r} is CTranslate2's; a Marian export is float32.")
    with new_directory(options.output) as directory:
        model = trained.load(run)
        if options.format == "ctranslate2":
            ctranslate2.write(model, directory, options.quantization)
        else:
            marian.write(model, directory)
    print(options.output)
    return DONE


def import_model(targets: Sequence[Path], options: command_line.Import) -> int:
    """Make a run directory of another tool's model and print where."""
    (source,) = targets
    if options.format is None or options.output is None:
        raise UserError("`import` needs --format marian, and --output with the run directory to make.")
    if (options.test_source is None) != (options.test_target is None):
        raise UserError("`import` takes --test-source and --test-target together.")
    with new_directory(options.output) as directory:
        marian_import.read(source, directory, options.test_source, options.test_target)
    print(options.output)
    return DONE


def report(targets: Sequence[Path], options: command_line.Report) -> int:
    """Render the pages of runs again."""
    for run in targets:
        run_directory.load_config(run)  # before a lock is put into what is no run
        with locked(run):
            print(write_page(run))
    return DONE


def _writing(run: Path, channel: Channel) -> contextlib.AbstractContextManager[None]:
    """The run's lock, which process 0 holds for all."""
    return locked(run) if channel.first else contextlib.nullcontext()


def _keep(run: Path, experiment: config.Experiment, translator: Translator, results: list[SplitResult]) -> None:
    try:
        write_report(run, experiment, translator, results)
    except OSError as error:
        raise UserError(f"The report in {str(run)!r} cannot be written: {error.strerror or error}.") from None
    write_page(run)


def _print_samples(result: SplitResult, tokenizer: Tokenizer) -> None:
    """Triples from all over the split."""
    distance = max(1, len(result.sources) // SAMPLES)
    for i in range(0, len(result.sources), distance)[:SAMPLES]:
        print(f"source:      {tokenizer.plain(result.sources[i])}")
        print(f"reference:   {result.references[i]}")
        print(f"translation: {result.translations[i].text}\n")


def _print_scores(results: Sequence[SplitResult]) -> None:
    for result in results:
        for name, score in result.bleu.items():
            print(f"{result.split}  BLEU ({name}) {score.value:.2f}   {score.signature}")
        print(f"{result.split}  chrF {result.chrf.value:.2f}   {result.chrf.signature}")
        scored = f"{result.loss.tokens:,} tokens of {result.loss.pairs:,} pairs"
        print(f"{result.split}  perplexity {result.loss.perplexity:.2f} per target token, {scored}")
        cut = sum(translation.cut for translation in result.translations)
        if cut:
            print(f"{result.split}  cut at the length limit: {cut:,} of {len(result.sources):,} translations")


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


def _write(file: IO[bytes], translations: Iterator[Translation], longest: int) -> None:
    sources = outputs = 0
    for translation in translations:
        file.write(translation.text.encode("utf-8", errors="replace") + b"\n")
        file.flush()
        sources += translation.source_cut
        outputs += translation.cut
    if sources:
        say(f"Lines of more than {longest:,} tokens, of which only that much was translated: {sources:,}")
    if outputs:
        say(f"Translations cut at their length limit (--decoding.extra-length): {outputs:,}")
