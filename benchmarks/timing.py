"""How long something takes, where turns are so short that it may have to be done many times in one."""

from __future__ import annotations

import time
from collections.abc import Callable


def mean_seconds(run: Callable[[], object], turn: float) -> float:
    """Mean time of `run`, which is called until `turn` seconds have passed."""
    times, begin = 0, time.perf_counter()
    while (passed := time.perf_counter() - begin) < turn or not times:
        run()
        times += 1
    return passed / times
