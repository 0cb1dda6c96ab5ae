"""What each verb does, from parsed options to an exit status."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np

from t2t_jax import command_line, config, run_directory
from t2t_jax.command_line import DONE, STOPPED
from t2t_jax.data import pipeline, schemes, store
from t2t_jax.data.sources import lines_of, read_lines
from t2t_jax.data.tokenizer import Tokenizer
from t2t_jax.decoding.sampling import Sampling
from t2t_jax.decoding.scorer import Scorer
from t2t_jax.decoding.stream import in_chunks
from t2t_jax.decoding.translator import Translation, Translator
from t2t_jax.errors import ConfigError, UserError
from t2t_jax.evaluation.bleu import PROTOCOLS, Protocol
from t2t_jax.evaluation.bleu import bleu as score_bleu
from t2t_jax.evaluation.comparison import compare as compare_systems
from t2t_jax.evaluation.evaluate import SplitResult, evaluate_split, write_report
from t2t_jax.evaluation.report_page import write_page
from t2t_jax.evaluation.scored_text import read_contest, read_pair
from t2t_jax.export import ctranslate2, marian, marian_import, trained
from t2t_jax.export.target import new_directory
from t2t_jax.parallel.channel import Channel
from t2t_jax.parallel.memory import keep_freed_memory
from t2t_jax.parallel.precompile import keep_executables
from t2t_jax.parallel.processes import connected
from t2t_jax.planning import plan as planning
from t2t_jax.planning import shapes, table, topologies
from t2t_jax.progress import say
from t2t_jax.run_lock import locked
from t2t_jax.training import loop

SAMPLES = 8


def train(targets: Sequence[Path], options: command_line.Train) -> int:
    """Train, average, translate the evaluation splits, print BLEU with samples, write the report."""
    experiment = options.settings
    run = options.workdir or Path("runs") / experiment.name
    _settle()
    with connected(options.process) as channel, _writing(run, channel):
        outcome = loop.train(experiment, run, channel, options.profile)
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
    compared = schemes.compare(experiment.data, plan, *corpus.lengths)
    run_directory.keep_schemes(run, schemes.as_json(compared))
    print(store.describe(prepared.manifest))
    print(f"batches: {plan.batches_per_epoch:,} an epoch in {len(plan.shapes)} shapes, rows x (source+target):")
    for shape, count in zip(plan.shapes, plan.batches_per_shape, strict=True):
        print(f"  {shape!s:>16}  {count:,}")
    tokens = (f"{side.sum(dtype=np.int64) / plan.batches_per_epoch:,.0f}" for side in corpus.lengths)
    print(f"real tokens a batch, mean: {' + '.join(tokens)}")
    print(f"real tokens of all positions, by scheme:\n{schemes.as_text(compared)}")
    print(f"padding efficiency: {100 * plan.padding_efficiency(*corpus.lengths):.1f}%")
    return DONE


def plan(targets: Sequence[Path], options: command_line.Plan) -> int:
    """Compile the step for accelerators and print what it costs there; the experiment's own mesh has to fit."""
    experiment = options.settings
    topology = topologies.parse(options.topology)
    jax.config.update("jax_platforms", "cpu")  # planning takes no device, which another program may be using
    run = options.workdir or Path("runs") / experiment.name
    workload = shapes.workload(experiment.data, experiment.training.seed, run)
    planner = planning.Planner(experiment, topology, workload)
    if options.compare:
        plans = planner.compare()
        result = table.several_meshes(experiment, topology, workload, plans)
        steps = {name: (mesh, [step]) for name, (mesh, step) in plans.items()}
        mesh = None
    else:
        mesh, titled = planner.own_mesh()
        result = table.one_mesh(experiment, topology, workload, titled)
        steps = {"own": (mesh, list(titled.values()))}
    if options.json:
        print(json.dumps(table.as_json(experiment, topology, workload, steps), indent=2))
    else:
        print(f"{table.header(experiment, topology, workload, mesh)}\n\n{result}")
    return DONE


def evaluate(targets: Sequence[Path], options: command_line.Evaluate) -> int:
    """Score a run; the report is renewed when the run's own settings are used, so that it never shows others."""
    (run,) = targets
    experiment = run_directory.load_config(run)
    splits = (options.split,) if options.split else experiment.evaluation.splits
    own = options.decoding == experiment.decoding and splits == experiment.evaluation.splits
    _settle()
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
    """Translate a stream of lines, by one run or by an ensemble."""
    sampling = Sampling(options.temperature, options.top_k, options.top_p, options.seed) if options.sample else None
    if options.n_best < 1:
        raise UserError(f"--n-best {options.n_best} must be at least 1.")
    _settle()
    with connected(options.process) as channel, _output(options.output if channel.first else Path(os.devnull)) as file:
        translator = Translator.load(targets, options.decoding, channel)
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


def score(targets: Sequence[Path], options: command_line.Score) -> int:
    """Print the log-probability of each target line."""
    files = options.source, options.target
    counts = [sum(1 for _ in read_lines(file)) for file in files]
    if counts[0] != counts[1]:
        raise UserError(
            f"{str(files[0])!r} has {counts[0]:,} lines, {str(files[1])!r} {counts[1]:,}; each target line "
            "is scored given the source line of the same number."
        )
    _settle()
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


def export(targets: Sequence[Path], options: command_line.Export) -> int:
    """Write a run for another tool and print where."""
    (run,) = targets
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


def bleu(targets: Sequence[Path], options: command_line.Bleu) -> int:
    """Score two files."""
    texts = read_pair(options.hypothesis, options.reference, options.join_subwords)
    scores = {
        name: score_bleu(*texts, Protocol(name, options.target_language, options.straight_quotes))
        for name in (PROTOCOLS if options.protocol == "all" else (options.protocol,))
    }
    if options.json:
        found = {name: {"bleu": round(s.value, 2), "signature": s.signature} for name, s in scores.items()}
        print(json.dumps({"lines": len(texts[0]), "scores": found}, indent=2))
    else:
        for name, score in scores.items():
            print(f"BLEU {name:<5}  {score.value:6.2f}   {score.signature}")
    return DONE


def compare(targets: Sequence[Path], options: command_line.Compare) -> int:
    """Test whether two systems differ."""
    contest = read_contest(targets, options.split, options.reference)
    experiment = contest.experiment or config.Experiment()
    name = experiment.evaluation.protocol if options.protocol == "own" else options.protocol
    protocol = Protocol(name, options.target_language or experiment.data.target_language)
    first, second = map(str, targets)
    result = compare_systems((first, second), contest.first, contest.second, contest.references, protocol)
    print(json.dumps(result.as_json(), indent=2) if options.json else result.as_text())
    return DONE


def _settle() -> None:
    """What a process that computes does first."""
    keep_freed_memory()
    keep_executables()


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
