"""The C allocator's settings for training on a CPU."""

from __future__ import annotations

import ctypes
import functools
import sys

# mallopt's parameters, from glibc's malloc.h.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX, M_ARENA_MAX = -1, -2, -4, -8


@functools.cache
def keep_freed_memory() -> bool:
    """Let glibc keep what XLA frees instead of giving it back to the kernel; returns whether it could.

    XLA's CPU client allocates every temporary anew, and glibc maps large ones from the kernel each time, which then
    spends up to half of a training step zeroing pages. With one arena, no maps and no trimming the pages are reused.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # absent outside glibc
    if mallopt is None:
        return False
    never = -1  # the largest int would trim a heap whose end is free for 2 GiB, as it is after a large step
    settings = ((M_ARENA_MAX, 1), (M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, never), (M_TOP_PAD, 2**28))
    return all(mallopt(parameter, value) == 1 for parameter, value in settings)
