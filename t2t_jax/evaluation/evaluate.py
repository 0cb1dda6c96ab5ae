"""Score a trained run: loss, perplexity and the task's scores of a split, kept in the run directory."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from t2t_jax import config, machine, progress, run_directory, trajectory
from t2t_jax.data.sources import Split
from t2t_jax.decoding.scorer import Scorer
from t2t_jax.decoding.translator import Translation, Translator
from t2t_jax.evaluation.tasks import Accuracy, Scores, task_of
from t2t_jax.files import write_atomically
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.precompile import background_compiler
from t2t_jax.training import calls, metrics
from t2t_jax.training.state import count_parameters
from t2t_jax.training.throughput import totals
from t2t_jax.training.validation import HeldOut, HeldOutLoss

ATTENTION = "attention.json"
PICTURES = 2


@dataclass(frozen=True)
class SplitResult:
    """The scores of one split."""

    split: Split
    loss: HeldOutLoss
    scores: Scores
    sources: list[str]
    references: list[str]  # as answers
    translations: list[Translation]  # of each source, or none where the task has nothing written
    answers: list[str]
    seconds: float  # of translating, without compiling

    def as_json(self) -> dict[str, Any]:
        """The scores, rounded to what is meaningful."""
        return {
            **self.scores.as_json(),
            "loss": self.loss.smoothed,
            "negative_log_likelihood": self.loss.plain,
            "perplexity": round(self.loss.perplexity, 2),
            "target_tokens": self.loss.tokens,
            "pairs_with_loss": self.loss.pairs,
            "lines": len(self.sources),
            "cut": sum(translation.cut for translation in self.translations),
        }


def evaluate_split(run: Path, experiment: config.Experiment, translator: Translator, split: Split) -> SplitResult:
    """Translate and score a split of a run; several processes share the work, and all have the result."""
    sources, references = run_directory.evaluation_text(run, split)
    mesh = meshes.make_mesh(config.Mesh())
    everywhere = meshes.on_every_device(mesh)
    params = meshes.lay_out(translator.params, jax.tree.map(lambda _: everywhere, translator.params))
    with background_compiler() as background:
        held_out = HeldOut(
            sources,
            references,
            translator.tokenizer,
            translator.transformer,
            experiment,
            mesh,
            params,
            background,
        )
        loss = held_out.loss(params)
        task = task_of(experiment)
        if task is None:
            accuracy = Accuracy(held_out.accuracy(params))
            return SplitResult(split, loss, accuracy, sources, references, [], [], 0.0)
    begun, compiling = time.perf_counter(), translator.seconds_compiling
    translations = translate_all(translator, sources, f"translating {split}")
    seconds = time.perf_counter() - begun - (translator.seconds_compiling - compiling)
    decoded = [translation.text for translation in translations]
    references = [translator.tokenizer.plain(line) for line in references]
    scores = task.score(sources, decoded, references)
    answers, expected = map(task.answer, sources, decoded), map(task.reference, sources, references)
    return SplitResult(split, loss, scores, sources, list(expected), translations, list(answers), seconds)


def translate_all(translator: Translator, lines: list[str], description: str) -> list[Translation]:
    """The best translation of each line, with a progress bar."""
    with progress.bar() as bar:
        task = bar.add_task(description, total=-(-len(lines) // translator.channel.count))
        share = []
        for answer in translator.translate_share(lines):
            share.append(answer)
            bar.advance(task)
        return [best for best, *_ in translator.collect(len(lines), 1, share)]


def write_report(run: Path, experiment: config.Experiment, translator: Translator, results: list[SplitResult]) -> None:
    """Keep what an evaluation found in the run: report.json, the translations, and the attention of two sentences.

    The first result is the one that is headlined.
    """
    for result in results:
        if result.answers:
            lines = "".join(f"{answer}\n" for answer in result.answers)
            write_atomically(run / "translations" / f"{result.split}.hypothesis", lines)
    count = count_parameters(translator.params, translator.transformer)
    report = report_of(run, experiment, results, count, translator.steps)
    write_atomically(run / run_directory.REPORT, json.dumps(report, indent=2) + "\n")
    write_atomically(run / ATTENTION, json.dumps(attention_samples(translator, results[0])) + "\n")


def report_of(
    run: Path, experiment: config.Experiment, results: list[SplitResult], parameters: int, steps: list[int]
) -> dict[str, Any]:
    """What report.json says: the scores, what they are of, and what training took, where and when."""
    first = results[0]
    logged = metrics.read(run)
    cost = totals(logged)
    trained = calls.read(run)
    last = trained[-1] if trained else {"command": None, **machine.circumstances()}
    return {
        "name": experiment.name,
        "split": first.split,
        **first.scores.headline(),
        "perplexity": round(first.loss.perplexity, 2),
        "parameters": parameters,
        "config_hash": trajectory.config_hash(experiment),
        "steps": steps[-1],
        "averaged_steps": steps,
        "epochs": next((entry["epoch"] for entry in reversed(logged) if entry["step"] <= steps[-1]), None),
        "training_seconds": cost.pop("seconds") or 0.0,
        **{f"training_{name}": value for name, value in cost.items()},
        "decoding_seconds": sum(result.seconds for result in results),
        "decoding_tokens": sum(len(translation.ids) for result in results for translation in result.translations),
        "splits": {result.split: result.as_json() for result in results},
        # Of the training, of which all calls follow; of the scoring where it is not known.
        **{key: last[key] for key in ("command", "machine", "devices", "versions", "date")},
        "calls": trained,
    }


def attention_samples(translator: Translator, result: SplitResult) -> list[dict[str, Any]]:
    """Cross-attention of the last layer for sentences long enough to show something and short enough to read."""
    if translator.transformer.alignment() is None or not result.translations:
        return []
    chosen = [
        (source, translation)
        for source, translation in zip(result.sources, result.translations, strict=True)
        if 6 <= len(translation.ids) <= 14 and not (translation.cut or translation.source_cut)
    ][:PICTURES]
    sources, ids = [source for source, _ in chosen], [translation.ids for _, translation in chosen]
    weights = dict(Scorer(translator).attention(sources, ids))
    pieces = translator.tokenizer.pieces
    return [
        {
            "source": [*pieces(translator.tokenizer.encode([source])[0]), "</s>"],
            "target": [*pieces(translation.ids), "</s>"],
            "weights": [[[round(float(w), 4) for w in row] for row in head] for head in weights[place]],
        }
        for place, (source, translation) in enumerate(chosen)
    ]
