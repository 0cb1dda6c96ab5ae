"""Laws read off measured points: the exponent of a power, and where two curves cross."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The a of the power size^a that fits best, by least squares of logarithms.

    Only the larger half of the sizes counts, three at least: there a power shows, below constant costs hide it.
    """
    chosen = slice(-max(3, -(-len(sizes) // 2)), None)
    return float(np.polyfit(np.log(sizes[chosen]), np.log(values[chosen]), 1)[0])


def crossing(sizes: Sequence[float], ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """The size from which `ours` stays above `theirs`, between sizes by powers; None if that is none of them or all."""
    gap, place = np.log(ours) - np.log(theirs), np.log(sizes)
    below = np.flatnonzero(gap <= 0)
    if not len(below) or below[-1] == len(sizes) - 1:
        return None
    i = below[-1]
    return float(np.exp(place[i] - gap[i] * (place[i + 1] - place[i]) / (gap[i + 1] - gap[i])))
