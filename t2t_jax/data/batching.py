"""The batch plan: which pairs make batch k, and at which padded shape. Pure functions of integers.

The plan is one global sequence of batches. It depends on the lengths of the pairs, the budgets and the seed, never on
processes or devices, so batch k is the same everywhere and the whole state of the data is the number k.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from t2t_jax.errors import ConfigError


class Shape(NamedTuple):
    """A padded batch: `rows` pairs of `source` and `target` positions, end of sentence included."""

    source: int
    target: int
    rows: int

    def __str__(self) -> str:
        return f"{self.rows}x({self.source}+{self.target})"


class Slot(NamedTuple):
    """Where batch k comes from: pairs `indices` (int64) of the corpus, padded to `shape`."""

    shape: Shape
    indices: np.ndarray


def choose_shapes(
    source_lengths: np.ndarray, target_lengths: np.ndarray, source_budget: int, target_budget: int, max_shapes: int
) -> tuple[Shape, ...]:
    """At most `max_shapes` shapes that waste the least padding on pairs of these lengths.

    Pairs are put in order of their longer side and cut into consecutive groups, each padded to its own longest source
    and longest target; dynamic programming over the distinct lengths finds the cuts. Shapes grow in both sides, so a
    pair that fits one shape fits every later one.

    Args:
      source_lengths, target_lengths: [N], tokens of each pair with end of sentence.
      source_budget, target_budget: caps on rows times padded length, by side.
      max_shapes: cap on the number of shapes.

    Raises:
      ConfigError: a pair is longer than a budget.
    """
    key = np.maximum(source_lengths, target_lengths)
    lengths, group = np.unique(key, return_inverse=True)
    count = np.bincount(group)
    # Longest source and target among the pairs up to each distinct length: running maxima, so that shapes nest.
    source_top, target_top = (np.zeros(len(lengths), np.int64) for _ in range(2))
    np.maximum.at(source_top, group, source_lengths)
    np.maximum.at(target_top, group, target_lengths)
    source_top, target_top = np.maximum.accumulate(source_top), np.maximum.accumulate(target_top)

    n, width = len(lengths), source_top + target_top
    before = np.concatenate([[0], np.cumsum(count)])
    # cost[j] = least padded positions for the first j distinct lengths with the shapes used so far.
    cost = np.concatenate([[0], np.full(n, np.iinfo(np.int64).max // 2)])
    cuts = []
    for _ in range(min(max_shapes, n)):
        # extended[i, j]: lengths i..j-1 become one shape behind the best plan for the first i.
        extended = cost[:-1, None] + (before[None, 1:] - before[:-1, None]) * width[None, :]
        extended[np.tril_indices(n, -1)] = np.iinfo(np.int64).max // 2
        cuts.append(np.concatenate([[0], extended.argmin(axis=0)]))
        cost = np.concatenate([[0], extended.min(axis=0)])
    shapes: list[Shape] = []
    end = n
    for cut in reversed(cuts):
        source, target = int(source_top[end - 1]), int(target_top[end - 1])
        rows = min(source_budget // source, target_budget // target)
        if rows < 1:
            raise ConfigError(
                f"data: a pair of {source} + {target} tokens does not fit the budgets of {source_budget} + "
                f"{target_budget} tokens a batch; raise them or lower max_length."
            )
        shapes.append(Shape(source, target, rows))
        end = int(cut[end])
        if end == 0:
            break
    return tuple(reversed(shapes))


@dataclass(frozen=True, eq=False)
class Plan:
    """The infinite sequence of batches: `slot(k)` is a pure function of the lengths, the budgets, the seed and k."""

    shapes: tuple[Shape, ...]
    groups: tuple[np.ndarray, ...]  # per shape, the pairs it is the smallest for
    seed: int

    @classmethod
    def build(
        cls,
        source_lengths: np.ndarray,
        target_lengths: np.ndarray,
        *,
        source_budget: int,
        target_budget: int,
        max_shapes: int,
        seed: int,
    ) -> Plan:
        """A plan over pairs of these lengths; arguments as for `choose_shapes`."""
        shapes = choose_shapes(source_lengths, target_lengths, source_budget, target_budget, max_shapes)
        smallest = np.maximum(
            np.searchsorted([s.source for s in shapes], source_lengths),
            np.searchsorted([s.target for s in shapes], target_lengths),
        )
        groups = tuple(np.flatnonzero(smallest == i) for i in range(len(shapes)))
        return cls(shapes, groups, seed)

    @functools.cached_property
    def batches_per_shape(self) -> tuple[int, ...]:
        """Batches an epoch has of each shape.

        What does not fill a batch of its own shape moves up to the next, so at most one batch an epoch is not full.
        """
        batches, left = [], 0
        for shape, group in zip(self.shapes, self.groups, strict=True):
            full, left = divmod(left + len(group), shape.rows)
            batches.append(full)
        if left:
            batches[-1] += 1
        return tuple(batches)

    @property
    def batches_per_epoch(self) -> int:
        """Batches in one pass over the corpus, the same in every epoch."""
        return sum(self.batches_per_shape)

    def slot(self, k: int) -> Slot:
        """Batch k, counted from 0 through all epochs."""
        epoch, place = divmod(k, self.batches_per_epoch)
        order, starts, shape_of = self._epoch(epoch)
        return Slot(self.shapes[shape_of[place]], order[starts[place] : starts[place + 1]])

    def padding_efficiency(self, source_lengths: np.ndarray, target_lengths: np.ndarray) -> float:
        """Real tokens over padded positions, both sides, in one epoch."""
        padded = sum(
            n * s.rows * (s.source + s.target) for n, s in zip(self.batches_per_shape, self.shapes, strict=True)
        )
        missing = sum(n * s.rows for n, s in zip(self.batches_per_shape, self.shapes, strict=True)) - len(
            source_lengths
        )
        padded -= missing * (self.shapes[-1].source + self.shapes[-1].target)  # rows that no pair is in are not padding
        return float((source_lengths.sum(dtype=np.int64) + target_lengths.sum(dtype=np.int64)) / padded)

    @functools.lru_cache(maxsize=2)  # noqa: B019  (a plan lives as long as its run; two epochs meet at a border)
    def _epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pairs in batch order, where each batch starts, and each batch's shape."""
        pieces, sizes, shape_of = [], [], []
        left = np.empty(0, np.int64)
        for i, (shape, group, batches) in enumerate(zip(self.shapes, self.groups, self.batches_per_shape, strict=True)):
            pool = np.concatenate([left, group[permutation(len(group), self.seed, epoch, i)]])
            used = min(batches * shape.rows, len(pool))
            pieces += np.split(pool[:used], range(shape.rows, used, shape.rows)) if used else []
            shape_of += [i] * batches
            left = pool[used:]
        order = permutation(len(pieces), self.seed, epoch, len(self.shapes))
        pieces = [pieces[i] for i in order]
        sizes = [len(piece) for piece in pieces]
        return np.concatenate(pieces), np.concatenate([[0], np.cumsum(sizes)]), np.asarray(shape_of)[order]


def permutation(n: int, seed: int, epoch: int, stream: int) -> np.ndarray:
    """A pseudo-random order of range(n) that is the same on every machine and NumPy version, [n] of int64.

    Sorts by a hash (splitmix64) of seed, epoch, stream and position; NumPy's generators promise no such stability.
    """
    with np.errstate(over="ignore"):
        start = np.zeros(1, np.uint64)
        for word in (seed, epoch, stream):
            start = _splitmix64(start ^ np.uint64(word))
        return np.argsort(_splitmix64(start + np.arange(n, dtype=np.uint64)), kind="stable")


def _splitmix64(x: np.ndarray) -> np.ndarray:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
