"""The batch plan: which pairs make batch k, and at which padded shape. Pure functions of integers.

The plan is one global sequence of batches. It depends on the lengths of the pairs, the budgets and the seed, never on
processes or devices, so batch k is the same everywhere and the whole state of the data is the number k.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from t2t_jax.data.rectangles import free_rectangles
from t2t_jax.errors import ConfigError

Kind = Literal["nested", "free"]
BLOCK = 1_000_000  # pairs looked at at once
LOCK = threading.Lock()  # one thread makes an epoch's plan, the others wait for it


class Shape(NamedTuple):
    """A padded batch: `rows` pairs of `source` and `target` positions, end of sentence included."""

    source: int
    target: int
    rows: int

    def holds(self, other: Shape) -> bool:
        """Whether every pair that fits the other shape fits this one."""
        return self.source >= other.source and self.target >= other.target

    def __str__(self) -> str:
        return f"{self.rows}x({self.source}+{self.target})"


class Slot(NamedTuple):
    """Where batch k comes from: pairs `indices` of the corpus, padded to `shape`."""

    shape: Shape
    indices: np.ndarray


def choose_shapes(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    source_budget: int,
    target_budget: int,
    max_shapes: int,
    kind: Kind = "nested",
) -> tuple[Shape, ...]:
    """At most `max_shapes` shapes that waste little padding on pairs of these lengths, by the size of a row.

    The last holds all pairs. Nested: pairs are put in order of their longer side and cut into consecutive groups, each
    padded to its own longest source and longest target; dynamic programming over the distinct lengths finds the cuts
    that waste least. Free: any rectangles, found by search.

    Args:
      source_lengths, target_lengths: [N], tokens of each pair with end of sentence.
      source_budget, target_budget: caps on rows times padded length, by side.
      max_shapes: cap on the number of shapes.
      kind: nested or free.

    Raises:
      ConfigError: a pair is longer than a budget.
    """
    counts = histogram(source_lengths, target_lengths)
    sides = free_rectangles(counts, max_shapes) if kind == "free" else _nested(counts, max_shapes)
    shapes = []
    for source, target in sorted(sides, key=lambda side: (sum(side), side)):
        rows = min(source_budget // source, target_budget // target)
        if rows < 1:
            raise ConfigError(
                f"data: a pair of {source} + {target} tokens does not fit the budgets of {source_budget} + "
                f"{target_budget} tokens a batch; raise them or lower max_length."
            )
        shapes.append(Shape(source, target, rows))
    return tuple(shapes)


def histogram(source_lengths: np.ndarray, target_lengths: np.ndarray) -> np.ndarray:
    """Pairs of source length s + 1 and target length t + 1 at place (s, t)."""
    width = int(target_lengths.max())
    counts = np.zeros(int(source_lengths.max()) * width, np.int64)
    for source, target in _blocks(source_lengths, target_lengths):
        cells = (source.astype(np.int64) - 1) * width + target - 1
        counts += np.bincount(cells, minlength=len(counts))
    return counts.reshape(-1, width)


def _blocks(*columns: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """The columns piece by piece, for what needs many times their memory."""
    for start in range(0, len(columns[0]), BLOCK):
        yield tuple(column[start : start + BLOCK] for column in columns)


def _nested(counts: np.ndarray, max_shapes: int) -> list[tuple[int, int]]:
    """Source and target lengths of the shapes that dynamic programming finds."""
    source_lengths, target_lengths = (places + 1 for places in counts.nonzero())
    lengths, group = np.unique(np.maximum(source_lengths, target_lengths), return_inverse=True)
    # Longest source and target among the pairs up to each distinct length: running maxima, so that shapes nest.
    count, source_top, target_top = (np.zeros(len(lengths), np.int64) for _ in range(3))
    np.add.at(count, group, counts[counts.nonzero()])
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
    sides = []
    end = n
    for cut in reversed(cuts):
        sides.append((int(source_top[end - 1]), int(target_top[end - 1])))
        end = int(cut[end])
        if end == 0:
            break
    return sides


@dataclass(frozen=True, eq=False)
class Plan:
    """The infinite sequence of batches: `slot(k)` is a pure function of the lengths, the budgets, the seed and k."""

    shapes: tuple[Shape, ...]
    shape_of: np.ndarray  # [N], the place of each pair's cheapest shape
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
        kind: Kind = "nested",
    ) -> Plan:
        """A plan over pairs of these lengths; arguments as for `choose_shapes`."""
        shapes = choose_shapes(source_lengths, target_lengths, source_budget, target_budget, max_shapes, kind)
        smallest = np.zeros((shapes[-1].source + 1, shapes[-1].target + 1), np.min_scalar_type(len(shapes)))
        for i, shape in reversed(list(enumerate(shapes))):
            smallest[: shape.source + 1, : shape.target + 1] = i
        shape_of = np.concatenate([smallest[block] for block in _blocks(source_lengths, target_lengths)])
        return cls(shapes, shape_of, seed)

    @functools.cached_property
    def larger(self) -> tuple[int, ...]:
        """For each shape the next that holds it, which gets the pairs that do not fill a batch; the last has none."""
        return tuple(
            next(j for j in range(i + 1, len(self.shapes)) if self.shapes[j].holds(shape))
            for i, shape in enumerate(self.shapes[:-1])
        )

    @functools.cached_property
    def batches_per_shape(self) -> tuple[int, ...]:
        """Batches an epoch has of each shape.

        What does not fill a batch of its own shape moves up to the next that holds it, so at most one batch an epoch
        is not full.
        """
        batches, waiting = [], np.bincount(self.shape_of, minlength=len(self.shapes)).tolist()
        for shape, moves_to, count in zip(self.shapes, [*self.larger, None], waiting, strict=True):
            full, left = divmod(count, shape.rows)
            if moves_to is None:
                full += left > 0
            else:
                waiting[moves_to] += left
            batches.append(full)
        return tuple(batches)

    @property
    def batches_per_epoch(self) -> int:
        """Batches in one pass over the corpus, the same in every epoch."""
        return sum(self.batches_per_shape)

    def slot(self, k: int) -> Slot:
        """Batch k, counted from 0 through all epochs."""
        epoch, place = divmod(k, self.batches_per_epoch)
        with LOCK:
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
        pieces: list[np.ndarray] = []
        shape_of: list[int] = []
        waiting: list[list[np.ndarray]] = [[] for _ in self.shapes]
        index = np.int32 if len(self.shape_of) < 2**31 else np.int64  # half the memory, where it is enough
        for i, (shape, batches) in enumerate(zip(self.shapes, self.batches_per_shape, strict=True)):
            group = np.flatnonzero(self.shape_of == i).astype(index)
            pool = np.concatenate([*waiting[i], group[permutation(len(group), self.seed, epoch, i)]])
            used = min(batches * shape.rows, len(pool))
            pieces += np.split(pool[:used], range(shape.rows, used, shape.rows)) if used else []
            shape_of += [i] * batches
            if i < len(self.larger):
                waiting[self.larger[i]].append(pool[used:])
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
            start = splitmix64(start ^ np.uint64(word))
        return np.argsort(splitmix64(start + np.arange(n, dtype=np.uint64)))  # the hashes differ, so any sort will do


def splitmix64(x: np.ndarray) -> np.ndarray:
    """A hash of each number in uint64, in which overflow is meant."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
