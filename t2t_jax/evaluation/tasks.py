"""The tasks: what a decoder's text stands for, and what it is worth.

A task has four parts. `data.sources.Source` gives the source text and the target text of each example, and
`data.tokenizer.Tokenizer` takes them apart into tokens; a `Task` turns the decoder's text into an answer, and scores
answers. Nothing in between, the model, training and search, knows which task it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from t2t_jax import config
from t2t_jax.data import text_to_text
from t2t_jax.evaluation.bleu import PROTOCOLS, Score, bleu, chrf
from t2t_jax.evaluation.bleu import Protocol as BleuProtocol
from t2t_jax.parsing import brackets
from t2t_jax.parsing.linear import tree_of
from t2t_jax.parsing.repair import Repaired, repair
from t2t_jax.parsing.trees import split_words


class Scores(Protocol):
    """What the answers to a split are worth."""

    def headline(self) -> dict[str, Any]:
        """For the top of report.json."""
        ...

    def as_json(self) -> dict[str, Any]:
        """All of them, rounded to what is meaningful."""
        ...

    def lines(self) -> list[str]:
        """All of them, for a person."""
        ...


class Task(Protocol):
    """From the decoder's text to numbers."""

    def answer(self, source: str, decoded: str) -> str:
        """What the text that was decoded for a source line says: one line."""
        ...

    def reference(self, source: str, target: str) -> str:
        """What a source line's target text says, likewise."""
        ...

    def score(self, sources: Sequence[str], decoded: Sequence[str], references: Sequence[str]) -> Scores:
        """Compare the decoder's text with the references' for each source line."""
        ...


def task_of(experiment: config.Experiment) -> Task | None:
    """The task of an experiment; None where nothing is to be written, and the tokens themselves are what is scored."""
    if experiment.data.task in ("language_model", "masked_language_model"):
        return None
    if experiment.data.task == "digits":
        return Classification()
    if experiment.data.task == "text_to_text":
        parts = text_to_text.tasks(experiment.data)
        return TextToText({prefix: _written(experiment, data) for prefix, data in parts.items()})
    return _written(experiment, experiment.data)


def _written(experiment: config.Experiment, data: config.Data) -> Translation | Parsing:
    if data.task == "parsing":
        return Parsing()
    return Translation(experiment.evaluation.protocol, data.target_language)


@dataclass(frozen=True)
class Translation:
    """The decoder's text is the answer; it is scored by BLEU and chrF."""

    protocol: str
    """Of the BLEU that is headlined."""
    language: str

    def answer(self, source: str, decoded: str) -> str:
        return decoded

    def reference(self, source: str, target: str) -> str:
        return target

    def score(self, sources: Sequence[str], decoded: Sequence[str], references: Sequence[str]) -> TranslationScores:
        names = dict.fromkeys((self.protocol, *PROTOCOLS))
        by_protocol = {name: bleu(decoded, references, BleuProtocol(name, self.language)) for name in names}
        return TranslationScores(by_protocol, chrf(decoded, references))


@dataclass(frozen=True)
class TranslationScores:
    """BLEU by protocol, the headlined one first, and chrF."""

    bleu: dict[str, Score]
    chrf: Score

    def headline(self) -> dict[str, Any]:
        first = next(iter(self.bleu.values()))
        return {
            "bleu": round(first.value, 2),
            "bleu_signature": first.signature,
            "chrf": round(self.chrf.value, 2),
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "bleu": {name: round(score.value, 2) for name, score in self.bleu.items()},
            "signatures": {name: score.signature for name, score in self.bleu.items()},
            "chrf": round(self.chrf.value, 2),
            "chrf_signature": self.chrf.signature,
        }

    def lines(self) -> list[str]:
        found = [f"BLEU ({name}) {score.value:.2f}   {score.signature}" for name, score in self.bleu.items()]
        return [*found, f"chrF {self.chrf.value:.2f}   {self.chrf.signature}"]


@dataclass(frozen=True)
class Parsing:
    """The decoder's text is the tokens of a tree, mended where it has to be; trees are scored as EVALB scores them."""

    def mend(self, source: str, decoded: str) -> Repaired | None:
        """The tree over the source's words that is nearest to what was decoded; None for a line without words."""
        words = split_words(source)
        return repair(decoded.split(" ") if decoded else [], words) if words else None

    def answer(self, source: str, decoded: str) -> str:
        mended = self.mend(source, decoded)
        return "" if mended is None else str(mended.tree)

    def reference(self, source: str, target: str) -> str:
        return str(tree_of(target.split(" "), split_words(source))) if target else ""

    def score(self, sources: Sequence[str], decoded: Sequence[str], references: Sequence[str]) -> ParsingScores:
        mended = [self.mend(*pair) for pair in zip(sources, decoded, strict=True)]
        trees = ["" if one is None else str(one.tree) for one in mended]
        gold = [self.reference(*pair) for pair in zip(sources, references, strict=True)]
        edits = [one.edits for one in mended if one is not None]
        return ParsingScores(brackets.score(gold, trees), sum(map(bool, edits)), sum(edits))


@dataclass(frozen=True)
class ParsingScores:
    """EVALB's scores with the parameters of COLLINS.prm."""

    brackets: brackets.Result
    mended: int
    """Trees that were not well-formed, or not over their sentence's words, as the decoder wrote them."""
    edits: int
    """Tokens that were changed, left out or put in to mend them."""

    def headline(self) -> dict[str, Any]:
        found = self.brackets.all.as_json()
        return {
            "bleu": None,  # there is none of trees
            "bleu_signature": None,
            **{name: found[name] for name in ("f1", "precision", "recall", "complete_match", "tagging_accuracy")},
        }

    def as_json(self) -> dict[str, Any]:
        short = {
            f"{name}_up_to_{self.brackets.parameters.cutoff}": x for name, x in self.brackets.short.as_json().items()
        }
        return self.brackets.all.as_json() | short | {"mended": self.mended, "edits": self.edits}

    def lines(self) -> list[str]:
        result = self.brackets
        found = [
            f"F1 {scores.f1:.2f}  recall {scores.recall:.2f}  precision {scores.precision:.2f}  complete match "
            f"{scores.complete_match:.2f}  tags {scores.tagging_accuracy:.2f}   {title}: {scores.valid:,} scored, "
            f"{scores.errors:,} errors, {scores.skipped:,} skipped"
            for title, scores in (("all", result.all), (f"length <= {result.parameters.cutoff}", result.short))
        ]
        return [*found, f"mended: {self.mended:,} trees, {self.edits:,} tokens"]


@dataclass(frozen=True)
class TextToText:
    """Several tasks, of which the beginning of a source says which it is an example of."""

    tasks: dict[str, Translation | Parsing]
    """By prefix."""

    def answer(self, source: str, decoded: str) -> str:
        task, source = self._of(source)
        return task.answer(source, decoded)

    def reference(self, source: str, target: str) -> str:
        task, source = self._of(source)
        return task.reference(source, target)

    def score(self, sources: Sequence[str], decoded: Sequence[str], references: Sequence[str]) -> TextToTextScores:
        found: dict[str, Scores] = {}
        for prefix, task in self.tasks.items():
            examples = [
                (source.removeprefix(prefix), text, reference)
                for source, text, reference in zip(sources, decoded, references, strict=True)
                if source.startswith(prefix)
            ]
            found[prefix.rstrip(": ")] = task.score(*zip(*examples, strict=True))
        return TextToTextScores(found)

    def _of(self, source: str) -> tuple[Task, str]:
        prefix = next(prefix for prefix in self.tasks if source.startswith(prefix))
        return self.tasks[prefix], source.removeprefix(prefix)


@dataclass(frozen=True)
class TextToTextScores:
    """Each task's own, the first of which is the one that is headlined."""

    by_task: dict[str, Scores]

    def headline(self) -> dict[str, Any]:
        first = next(iter(self.by_task.values()))
        return first.headline() | {"tasks": {name: scores.headline() for name, scores in self.by_task.items()}}

    def as_json(self) -> dict[str, Any]:
        first = next(iter(self.by_task.values()))
        return first.as_json() | {"tasks": {name: scores.as_json() for name, scores in self.by_task.items()}}

    def lines(self) -> list[str]:
        return [f"{name}  {line}" for name, scores in self.by_task.items() for line in scores.lines()]


@dataclass(frozen=True)
class Classification:
    """The decoder's text is the name of a class, right or wrong."""

    def answer(self, source: str, decoded: str) -> str:
        return decoded

    def reference(self, source: str, target: str) -> str:
        return target

    def score(self, sources: Sequence[str], decoded: Sequence[str], references: Sequence[str]) -> Accuracy:
        right = sum(text == reference for text, reference in zip(decoded, references, strict=True))
        return Accuracy(right / len(references))


@dataclass(frozen=True)
class Accuracy:
    """How often an answer is right: the name of a class, or where nothing is written, each token that is asked for."""

    share: float

    def headline(self) -> dict[str, Any]:
        return {"bleu": None, "bleu_signature": None, **self.as_json()}

    def as_json(self) -> dict[str, Any]:
        return {"accuracy": round(100 * self.share, 2)}

    def lines(self) -> list[str]:
        return [f"accuracy {100 * self.share:.2f}"]
