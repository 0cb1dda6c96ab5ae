"""Which training pairs are left out, and why; each is counted under the first reason that holds."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence

import numpy as np

from t2t_jax import config
from t2t_jax.data.sources import Pair

Dropped = collections.Counter[str]


def none_dropped(data: config.Data) -> Dropped:
    """A count of 0 for each reason that `data` asks for."""
    reasons = {
        "invalid UTF-8": True,
        "empty": True,
        "identical sides": data.drop_identical,
        "too long": True,
        "length ratio": data.max_length_ratio is not None,
    }
    return Dropped({reason: 0 for reason, wanted in reasons.items() if wanted})


def usable(data: config.Data, pairs: Iterable[Pair], dropped: Dropped) -> list[tuple[str, str]]:
    """The pairs that are text on both sides; others are counted in `dropped`."""
    kept = []
    for source, target in pairs:
        if source is None or target is None:
            dropped["invalid UTF-8"] += 1
        elif not source.strip() or not target.strip():
            dropped["empty"] += 1
        elif data.drop_identical and source.strip() == target.strip():
            dropped["identical sides"] += 1
        else:
            kept.append((source, target))
    return kept


def fitting(data: config.Data, source: np.ndarray, target: np.ndarray, dropped: Dropped) -> np.ndarray:
    """Which pairs of `source` and `target` tokens, end of sentence included, are of a length to train on: bool [N]."""
    longer, shorter = np.maximum(source, target), np.minimum(source, target)
    fits = longer <= data.max_length
    dropped["too long"] += int((~fits).sum())
    if data.max_length_ratio is not None:
        alike = longer <= data.max_length_ratio * shorter
        dropped["length ratio"] += int((fits & ~alike).sum())
        fits &= alike
    return fits


def look_reversed(train: Sequence[Pair], held_out: Iterable[Pair]) -> bool:
    """Whether held-out sources are made of words of the training targets, and held-out targets of the sources'."""
    left, right = ({word for pair in train for word in (pair[side] or "").split()} for side in (0, 1))
    own = left - right, right - left  # names and punctuation tell nothing
    seen: collections.Counter[tuple[int, int]] = collections.Counter()
    for pair in held_out:
        for side, text in enumerate(pair):
            for word in (text or "").split():
                seen[side, 0] += word in own[0]
                seen[side, 1] += word in own[1]
    return seen[0, 1] > seen[0, 0] and seen[1, 0] > seen[1, 1]
