"""How full batches are, by our plan and as other programs make them; from the lengths alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from t2t_jax import config
from t2t_jax.data.batching import Plan, histogram, permutation

PACKED = 100_000  # pairs that packing is tried on


@dataclass(frozen=True)
class Scheme:
    """What a way to make batches comes to."""

    name: str
    shapes: int
    efficiency: float
    """Real tokens over padded positions, both sides."""


def compare(data: config.Data, plan: Plan, source: np.ndarray, target: np.ndarray) -> list[Scheme]:
    """The plan beside the others on pairs of these lengths, end of sentence included."""
    counts = histogram(source, target)
    budget = min(data.source_tokens_per_batch, data.target_tokens_per_batch)
    return [
        Scheme(f"this plan ({data.shapes} shapes)", len(plan.shapes), plan.padding_efficiency(source, target)),
        geometric_buckets(counts),
        sorted_by_length(counts, budget),
        packed(source, target, data.max_length),
    ]


def geometric_buckets(counts: np.ndarray, smallest: int = 8, growth: float = 1.1) -> Scheme:
    """tensor2tensor: both sides padded to the next of 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22, 24, …"""
    boundaries = [smallest]
    while boundaries[-1] < max(counts.shape):
        boundaries.append(max(boundaries[-1] + 1, int(boundaries[-1] * growth)))
    source, target, pairs = _cells(counts)
    place = np.searchsorted(boundaries, np.maximum(source, target))
    padded = 2 * (np.asarray(boundaries)[place] * pairs).sum()
    return Scheme("tensor2tensor: buckets ×1.1", len(np.unique(place)), _real(counts) / float(padded))


def sorted_by_length(counts: np.ndarray, budget: int) -> Scheme:
    """fairseq: pairs in order of source and then target length, cut where rows x longest side would pass the budget.

    Every batch is padded to its own longest source and target, so that there are many shapes.
    """
    padded, rows, tops, shapes = 0, 0, (0, 0), set()
    for source, target, pairs in zip(*(column.tolist() for column in _cells(counts)), strict=True):
        while pairs:
            top = max(tops[0], source), max(tops[1], target)
            fit = budget // max(top) - rows
            if fit < 1 and rows:
                padded += rows * sum(tops)
                shapes.add((rows, *tops))
                rows, tops = 0, (0, 0)
                continue
            taken = min(max(fit, 1), pairs)
            rows, tops, pairs = rows + taken, top, pairs - taken
    shapes.add((rows, *tops))
    return Scheme("fairseq: sorted, --max-tokens", len(shapes), _real(counts) / (padded + rows * sum(tops)))


def packed(source: np.ndarray, target: np.ndarray, length: int) -> Scheme:
    """T5: pairs in random order share rows of `length` + `length` positions, a new row begun when one does not fit."""
    every = -(-len(source) // PACKED)
    order = permutation(len(source[::every]), 0, 0, 0)
    rows, left = 1, (length, length)
    for s, t in zip(source[::every][order].tolist(), target[::every][order].tolist(), strict=True):
        if s > left[0] or t > left[1]:
            rows, left = rows + 1, (length, length)
        left = left[0] - s, left[1] - t
    real = source[::every].sum(dtype=np.int64) + target[::every].sum(dtype=np.int64)
    return Scheme(f"packed into rows of {length}", 1, float(real) / (rows * 2 * length))


def _cells(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Source length, target length and number of pairs of every cell that has some, in order of the lengths."""
    source, target = counts.nonzero()
    return source + 1, target + 1, counts[source, target]


def _real(counts: np.ndarray) -> float:
    source, target, pairs = _cells(counts)
    return float(((source + target) * pairs).sum())


def as_json(schemes: list[Scheme]) -> list[dict[str, Any]]:
    """For the run directory."""
    return [asdict(scheme) for scheme in schemes]


def as_text(schemes: list[Scheme]) -> str:
    """A table for people."""
    return "\n".join(f"  {s.name:32}{s.shapes:>6} shapes{100 * s.efficiency:>7.1f}%" for s in schemes)
