"""How long something takes, where turns are so short that it may have to be done many times in one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def mean_seconds(run: Callable[[], object], turn: float) -> float:
    """Mean time of `run`, which is called until `turn` seconds have passed."""
    times, begin = 0, time.perf_counter()
    while (passed := time.perf_counter() - begin) < turn or not times:
        run()
        times += 1
    return passed / times


def spread(points: Iterable[Mapping[str, Any]]) -> str:
    """In words, how far apart the rounds of a typical point are."""
    ratio = statistics.median(p["slowest_seconds"] / p["fastest_seconds"] for p in points)
    return f"slowest round {ratio:.2f} × fastest (median)"
