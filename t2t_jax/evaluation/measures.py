"""Which number of report.json stands for a run: the one that its task is judged by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from t2t_jax import config


@dataclass(frozen=True)
class Measure:
    """A score for which more is better."""

    name: str
    """BLEU, F1 or accuracy."""
    key: str
    """Its key at the top of report.json."""
    protocol: str | None = None
    """Of BLEU."""

    @property
    def title(self) -> str:
        """Its name with the protocol."""
        return f"{self.name} ({self.protocol})" if self.protocol else self.name

    def of(self, scores: Mapping[str, Any]) -> float | None:
        """Picks it out of a split's scores."""
        found: float | None = scores.get("bleu", {}).get(self.protocol) if self.protocol else scores.get(self.key)
        return found


def measure_of(experiment: config.Experiment) -> Measure:
    """What the task of an experiment is judged by."""
    task = experiment.data.task
    if task == "parsing":
        return Measure("F1", "f1")
    if task in ("digits", "language_model", "masked_language_model"):
        return Measure("accuracy", "accuracy")
    return Measure("BLEU", "bleu", experiment.evaluation.protocol)
