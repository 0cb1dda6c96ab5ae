"""Batch shapes that need not nest: rectangles placed by local search so that each pair has one that hardly pads it.

Choosing k rectangles is the k-median problem: the cells of the two-sided length histogram are its customers, every
rectangle that holds a cell serves it at the rectangle's size, and the sum is to be least. Search does not prove that it
has found that; `benchmarks/batch_shapes.py` bounds how much is missing.
"""

from __future__ import annotations

import numpy as np

GROWTH = 32  # a side's candidates are this part of their length apart, or 1
KICKS, NEAR, TAKEN = 40, 12, 5

Rectangle = tuple[int, int]  # indices of its longest source and target among the candidates


def free_rectangles(counts: np.ndarray, at_most: int) -> list[tuple[int, int]]:
    """At most `at_most` pairs of source and target length, the first of which holds all pairs.

    Args:
      counts: [S, T], pairs with source length s + 1 and target length t + 1, at place (s, t).
      at_most: cap on the number of rectangles.
    """
    sources, targets = (_candidates(n) for n in counts.shape)
    rows, columns = (np.searchsorted(side, np.arange(1, side[-1] + 1)) for side in (sources, targets))
    grid = np.zeros((len(sources), len(targets)), np.int64)
    np.add.at(grid, (rows[:, None], columns[None, :]), counts)
    search = _Search(grid, np.add.outer(sources, targets))

    chosen: list[Rectangle] = []
    while len(chosen) < at_most - 1 and (found := search.best(chosen)) is not None:
        chosen.append(found)
    chosen = search.improved(chosen, len(chosen))
    for kick in range(KICKS if chosen else 0):
        # Take a group of neighbours out, put as many in again, and settle those around them.
        centre = np.array(sorted(chosen)[kick * 7919 % len(chosen)])
        by_distance = sorted(chosen, key=lambda r: (int(np.abs(r - centre).sum()), r))
        other = by_distance[TAKEN:][::-1]
        while len(other) < len(chosen) and (found := search.best(other)) is not None:
            other.append(found)
        other = search.improved(other, NEAR)
        if search.total(other) < search.total(chosen):
            chosen = other
    return [(int(sources[-1]), int(targets[-1])), *((int(sources[i]), int(targets[j])) for i, j in chosen)]


class _Search:
    """Sums over all pairs of the size of the cheapest rectangle that holds them; the largest one is always there."""

    def __init__(self, counts: np.ndarray, size: np.ndarray):
        self.counts, self.size = counts, size

    def cheapest(self, chosen: list[Rectangle]) -> np.ndarray:
        """The size of the smallest rectangle that holds each cell."""
        cost = np.full_like(self.size, self.size[-1, -1])
        for i, j in chosen:
            held = cost[: i + 1, : j + 1]
            np.minimum(held, self.size[i, j], out=held)
        return cost

    def total(self, chosen: list[Rectangle]) -> int:
        """Padded positions of all pairs."""
        return int((self.counts * self.cheapest(chosen)).sum())

    def best(self, chosen: list[Rectangle]) -> Rectangle | None:
        """The rectangle that saves most beside those chosen; None if none saves anything."""
        cost = self.cheapest(chosen)
        saved = np.zeros_like(self.size)
        for now in np.unique(cost):
            smaller = np.s_[: np.searchsorted(self.size[:, 0], now), : np.searchsorted(self.size[0], now)]
            # Pairs by the rectangle that would take them over, from one of size `now`: sums from the origin.
            pairs = np.where(cost[smaller] == now, self.counts[smaller], 0).cumsum(axis=0).cumsum(axis=1)
            saved[smaller] += pairs * np.maximum(now - self.size[smaller], 0)
        place = int(saved.argmax())
        return divmod(place, self.size.shape[1]) if saved.flat[place] else None

    def improved(self, chosen: list[Rectangle], last: int) -> list[Rectangle]:
        """With each of the `last` rectangles taken out and the best one put in, until that changes nothing."""
        first = max(0, len(chosen) - last)
        fixed, moving = chosen[:first], chosen[first:]
        total = self.total(chosen)
        while True:
            for _ in range(len(moving)):
                moving = moving[1:]
                found = self.best([*fixed, *moving])
                if found is not None:
                    moving.append(found)
            before, total = total, self.total([*fixed, *moving])
            if total >= before:
                return [*fixed, *moving]


def _candidates(longest: int) -> np.ndarray:
    """Lengths that a side of a rectangle may have, ascending; the last is `longest`.

    Whole numbers all the way, like the search: every machine has to find the same shapes.
    """
    found, side = [], 1
    while side < longest:
        found.append(side)
        side += max(1, side // GROWTH)
    return np.array([*found, longest])
