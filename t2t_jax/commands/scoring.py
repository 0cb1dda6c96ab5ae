"""Verbs that put a number on translations and trees."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from t2t_jax import config, run_directory
from t2t_jax.command_line import DONE
from t2t_jax.commands import settle
from t2t_jax.data.sources import read_lines
from t2t_jax.data.tokenizer import Tokenizer
from t2t_jax.errors import UserError
from t2t_jax.evaluation.bleu import PROTOCOLS, Protocol
from t2t_jax.evaluation.bleu import bleu as score_bleu
from t2t_jax.evaluation.comparison import compare as compare_systems
from t2t_jax.evaluation.evaluate import Evaluator, SplitResult
from t2t_jax.evaluation.report_page import write_page
from t2t_jax.evaluation.scored_text import read_contest, read_pair
from t2t_jax.options import Bleu, Brackets, Compare, Evaluate
from t2t_jax.parallel.processes import connected
from t2t_jax.parsing.brackets import COLLINS, Parameters
from t2t_jax.parsing.brackets import score as score_brackets
from t2t_jax.progress import say
from t2t_jax.run_lock import locked

SAMPLES = 8


def evaluate(targets: Sequence[Path], options: Evaluate) -> int:
    """Score a run; the report is renewed when the run's own settings are used, so that it never shows others."""
    (run,) = targets
    experiment = run_directory.load_config(run)
    splits = (options.split,) if options.split else experiment.evaluation.splits
    own = options.decoding == experiment.decoding and splits == experiment.evaluation.splits
    settle()
    with connected(options.process) as channel:
        evaluator = Evaluator(run, options.decoding, channel)
        results = [evaluator.split(split) for split in splits]
        if not channel.first:
            return DONE
        if options.json:
            print(json.dumps({result.split: result.as_json() for result in results}, indent=2))
        else:
            print_scores(results)
        if own:
            with locked(run):
                keep(evaluator, results)
        else:
            say("These are not the run's own settings, so its report stays as it is.")
    return DONE


def bleu(targets: Sequence[Path], options: Bleu) -> int:
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


def brackets(targets: Sequence[Path], options: Brackets) -> int:
    """Score two files of trees."""
    gold, test = (_lines(path) for path in (options.gold, options.test))
    parameters = COLLINS
    if options.parameters is not None:
        parameters = Parameters.parse("\n".join(_lines(options.parameters)), str(options.parameters))
    result = score_brackets(gold, test, parameters, (str(options.gold), str(options.test)))
    errors = [f"{i} : {sentence.error}" for i, sentence in enumerate(result.sentences, start=1) if sentence.error]
    for error in errors[: parameters.max_errors + 1]:
        say(error)
    if len(errors) > parameters.max_errors + 1:
        say(f"{len(errors):,} errors in all. EVALB stops here (MAX_ERROR {parameters.max_errors}); this goes on.")
    if len(gold) != len(test):
        say(f"The gold file has {len(gold):,} lines, the test file {len(test):,}; those that both have are scored.")
    if options.json:
        found: dict[str, Any] = {"all": result.all.as_json(), f"len<={parameters.cutoff}": result.short.as_json()}
        if options.sentences:
            found["sentences"] = [dataclasses.asdict(sentence) for sentence in result.sentences]
        print(json.dumps(found, indent=2))
    else:
        print((result.table() if options.sentences else "") + result.summary(), end="")
    return DONE


def _lines(path: Path) -> list[str]:
    """The lines of a file; bytes that are not UTF-8 are characters like others."""
    return [line.decode("utf-8", errors="surrogateescape") for line in read_lines(path)]


def compare(targets: Sequence[Path], options: Compare) -> int:
    """Test whether two systems differ."""
    contest = read_contest(targets, options.split, options.reference)
    experiment = contest.experiment or config.Experiment()
    name = experiment.evaluation.protocol if options.protocol == "own" else options.protocol
    protocol = Protocol(name, options.target_language or experiment.data.target_language)
    first, second = map(str, targets)
    result = compare_systems((first, second), contest.first, contest.second, contest.references, protocol)
    print(json.dumps(result.as_json(), indent=2) if options.json else result.as_text())
    return DONE


def keep(evaluator: Evaluator, results: list[SplitResult]) -> None:
    """Put the results into the run directory: report.json, the translations, the page."""
    try:
        evaluator.keep(results)
    except OSError as error:
        raise UserError(f"The report in {str(evaluator.run)!r} cannot be written: {error.strerror or error}.") from None
    write_page(evaluator.run)


def print_samples(result: SplitResult, tokenizer: Tokenizer) -> None:
    """Triples from all over the split, where there is something written."""
    if not result.answers:
        return
    distance = max(1, len(result.sources) // SAMPLES)
    for i in range(0, len(result.sources), distance)[:SAMPLES]:
        print(f"source:      {tokenizer.plain(result.sources[i])}")
        print(f"reference:   {result.references[i]}")
        print(f"translation: {result.answers[i]}\n")


def print_scores(results: Sequence[SplitResult]) -> None:
    """A line for each score of each split."""
    for result in results:
        for line in result.scores.lines():
            print(f"{result.split}  {line}")
        scored = f"{result.loss.tokens:,} tokens of {result.loss.pairs:,} pairs"
        print(f"{result.split}  perplexity {result.loss.perplexity:.2f} per target token, {scored}")
        cut = sum(translation.cut for translation in result.translations)
        if cut:
            print(f"{result.split}  cut at the length limit: {cut:,} of {len(result.sources):,} translations")
