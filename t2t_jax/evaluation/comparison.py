"""Two systems on the same text: which scores higher, and whether chance explains it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from sacrebleu.significance import PairedTest, Result

from t2t_jax.errors import DataError
from t2t_jax.evaluation.bleu import Protocol

SEED = "12345"  # sacreBLEU's own, unless SACREBLEU_SEED is set
LEVEL = 0.05
"""A difference that chance makes less often than this is believed."""


@dataclass(frozen=True)
class Interval:
    """BLEU of one system, with the middle 95% of what samples of its lines score: `mean` ± `half_width`."""

    value: float
    mean: float
    half_width: float


@dataclass(frozen=True)
class Comparison:
    """What two paired tests say about two systems."""

    names: tuple[str, str]
    protocol: str
    lines: int
    scores: tuple[Interval, Interval]
    difference_interval: tuple[float, float]
    """The middle 95% of the differences (second minus first) in samples of the same lines."""
    p_bootstrap: float
    """Paired bootstrap resampling, as sacreBLEU has it: differences larger in one direction."""
    p_randomization: float
    """Paired approximate randomisation: differences larger in either direction."""
    signatures: dict[str, str]
    """By test: all that its result depends on, the seed and the number of samples among them."""

    @property
    def difference(self) -> float:
        """BLEU of the second minus that of the first."""
        return self.scores[1].value - self.scores[0].value

    @property
    def better(self) -> str | None:
        """first or second; None where chance may have made the difference."""
        if max(self.p_bootstrap, self.p_randomization) >= LEVEL:
            return None
        return "second" if self.difference > 0 else "first"

    @property
    def verdict(self) -> str:
        """The result in a sentence."""
        if self.better:
            return (
                f"The {self.better} is better: chance rarely makes so large a difference (p < {LEVEL} by both tests)."
            )
        if self.difference == 0:
            return "The two score the same."
        higher = "second" if self.difference > 0 else "first"
        doubt = "by one of the tests" if min(self.p_bootstrap, self.p_randomization) < LEVEL else "by both tests"
        return f"The {higher} scores higher, but it may be by chance (p ≥ {LEVEL} {doubt})."

    def as_json(self) -> dict[str, Any]:
        """Everything, rounded to what is meaningful."""
        systems = [
            {
                "name": name,
                "bleu": round(score.value, 2),
                "mean": round(score.mean, 2),
                "half_width": round(score.half_width, 2),
            }
            for name, score in zip(self.names, self.scores, strict=True)
        ]
        return {
            "protocol": self.protocol,
            "lines": self.lines,
            "systems": systems,
            "difference": round(self.difference, 2),
            "difference_interval": [round(end, 2) for end in self.difference_interval],
            "p_bootstrap": round(self.p_bootstrap, 4),
            "p_randomization": round(self.p_randomization, 4),
            "better": self.better,
            "verdict": self.verdict,
            "signatures": self.signatures,
        }

    def as_text(self) -> str:
        """The table that is printed."""
        width = max(map(len, self.names))
        rows = [f"{self.lines:,} lines, BLEU ({self.protocol}), 95% interval"]
        for place, name, score in zip(("first", "second"), self.names, self.scores, strict=True):
            rows.append(f"{place:<6}  {name:<{width}}  {score.value:6.2f}   {score.mean:.2f} ± {score.half_width:.2f}")
        low, high = self.difference_interval
        rows += [
            "",
            f"difference (second - first)   {self.difference:+.2f}       {low:+.2f} … {high:+.2f}",
            f"paired bootstrap              p = {self.p_bootstrap:.4f}   {self.signatures['bootstrap']}",
            f"approximate randomisation     p = {self.p_randomization:.4f}   {self.signatures['randomization']}",
            "",
            self.verdict,
        ]
        return "\n".join(rows)


def compare(
    names: tuple[str, str], first: list[str], second: list[str], references: list[str], protocol: Protocol
) -> Comparison:
    """Test two systems' translations of the same lines.

    The seed is fixed unless SACREBLEU_SEED says otherwise, so the answer is always the same. A line takes about 0.1 MB
    of memory meanwhile.

    Raises:
      DataError: the three have different numbers of lines, or none.
    """
    if not len(first) == len(second) == len(references):
        raise DataError(f"{len(first):,} and {len(second):,} hypotheses have {len(references):,} references.")
    if not references:
        raise DataError("There is nothing to compare: no lines.")
    systems: list[tuple[str, Sequence[str]]] = [
        ("first", protocol.prepared(first)),
        ("second", protocol.prepared(second)),
    ]
    prepared = protocol.prepared(references)
    results: dict[str, list[Result]] = {}
    signatures = {}
    for test, short in (("bootstrap", "bs"), ("randomization", "ar")):
        signed, found = PairedTest(systems, {"BLEU": protocol.metric()}, [prepared], test_type=short)()
        results[test] = cast(list[Result], found["BLEU"])
        signatures[test] = protocol.signature(signed["BLEU"])
    one, other = (_interval(result) for result in results["bootstrap"])
    # sacreBLEU counts the samples whose difference is larger than the real one. Where all are zero, as for a system
    # against itself, it counts none, and would make the difference certain instead of absent.
    same = one.value == other.value
    p_bootstrap, p_randomization = (1.0 if same else _p_value(results[test]) for test in ("bootstrap", "randomization"))
    differences = _sampled_differences(systems, prepared, protocol)
    return Comparison(
        names, protocol.name, len(references), (one, other), differences, p_bootstrap, p_randomization, signatures
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several tests, each made as large as the number of tests asks for; Holm (1979)."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def _sampled_differences(
    systems: Sequence[tuple[str, Sequence[str]]], references: Sequence[str], protocol: Protocol
) -> tuple[float, float]:
    """The middle 95% of the second's BLEU minus the first's in samples like sacreBLEU's, which it doesn't hand out."""
    metric, samples = protocol.metric(), PairedTest._DEFAULT_SAMPLES["bs"]
    statistics = [
        np.array(metric._extract_corpus_statistics(lines, [references]), dtype="float32") for _, lines in systems
    ]
    chosen = os.environ.get("SACREBLEU_SEED", SEED)
    rng = np.random.default_rng(None if chosen.lower() == "none" else int(chosen))
    drawn = rng.choice(len(references), size=(samples, len(references)), replace=True)
    first, second = (
        np.array([metric._compute_score_from_stats(own[lines].sum(0)).score for lines in drawn]) for own in statistics
    )
    low, high = np.quantile(second - first, (0.025, 0.975))
    return float(low), float(high)


def _interval(result: Result) -> Interval:
    assert result.mean is not None and result.ci is not None  # bootstrap resampling has them
    return Interval(float(result.score), float(result.mean), float(result.ci))


def _p_value(results: list[Result]) -> float:
    """That of the second system against the first."""
    value = results[1].p_value
    assert value is not None  # only the first has none
    return float(value)
