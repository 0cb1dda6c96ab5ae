"""Score a trained run: loss, perplexity and the task's scores of a split, kept in the run directory."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
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
from t2t_jax.parallel.channel import Channel
from t2t_jax.parallel.precompile import background_compiler
from t2t_jax.training import calls, metrics, trained
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


class Evaluator:
    """Scores splits of a run, and keeps what it found."""

    def __init__(self, run: Path, decoding: config.Decoding | None = None, channel: Channel | None = None):
        """Read a run directory.

        Args:
          run: the directory.
          decoding: settings of the search; the run's own by default.
          channel: to the other processes, if several share the work; all of them have the results.

        Raises:
          RunError: not a run directory, or one without a checkpoint.
        """
        self.run, self.trained = run, trained.load(run)
        self.experiment = self.trained.experiment
        self._mesh = meshes.make_mesh(config.Mesh())
        everywhere = meshes.on_every_device(self._mesh)
        params = self.trained.params
        self._params = meshes.lay_out(params, jax.tree.map(lambda _: everywhere, params))
        task = task_of(self.experiment)
        self._writing = (task, Translator([self.trained], decoding, channel)) if task else None

    def split(self, split: Split) -> SplitResult:
        """Score a split, by its translations if the task has any."""
        sources, references = run_directory.evaluation_text(self.run, split)
        model, tokenizer = self.trained.transformer, self.trained.tokenizer
        with background_compiler() as background:
            held_out = HeldOut(
                sources, references, tokenizer, model, self.experiment, self._mesh, self._params, background
            )
            loss = held_out.loss(self._params)
        if self._writing is None:
            accuracy = Accuracy(held_out.accuracy(self._params))
            return SplitResult(split, loss, accuracy, sources, references, [], [], 0.0)
        task, translator = self._writing
        begun, compiling = time.perf_counter(), translator.seconds_compiling
        translations = translate_all(translator, sources, f"translating {split}")
        seconds = time.perf_counter() - begun - (translator.seconds_compiling - compiling)
        decoded = [translation.text for translation in translations]
        references = [tokenizer.plain(line) for line in references]
        scores = task.score(sources, decoded, references)
        answers, expected = map(task.answer, sources, decoded), map(task.reference, sources, references)
        return SplitResult(split, loss, scores, sources, list(expected), translations, list(answers), seconds)

    def keep(self, results: list[SplitResult]) -> None:
        """Write report.json, the translations, and the attention of two sentences into the run.

        The first result is the one that is headlined.
        """
        for result in results:
            if result.answers:
                lines = "".join(f"{answer}\n" for answer in result.answers)
                write_atomically(self.run / "translations" / f"{result.split}.hypothesis", lines)
        count = count_parameters(self.trained.params, self.trained.transformer)
        report = report_of(self.run, self.experiment, results, count, self.trained.steps)
        write_atomically(self.run / run_directory.REPORT, json.dumps(report, indent=2) + "\n")
        samples = attention_samples(self._writing[1], results[0]) if self._writing else []
        write_atomically(self.run / ATTENTION, json.dumps(samples) + "\n")


def translate_all(translator: Translator, lines: list[str], description: str) -> list[Translation]:
    """The best translation of each line, with a progress bar."""
    with progress.bar() as bar:
        task = bar.add_task(description, total=-(-len(lines) // translator.channel.count))
        share = []
        for answer in translator.translate_share(lines):
            share.append(answer)
            bar.advance(task)
        return [best for best, *_ in translator.collect(len(lines), 1, share)]


def report_of(
    run: Path, experiment: config.Experiment, results: list[SplitResult], parameters: int, steps: Sequence[int]
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
        "averaged_steps": list(steps),
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
    if translator.transformer.alignment() is None:
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
