"""Executables for a closed set of shapes, compiled in the background, and kept on disk for the next process."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

import jax

MOST_ON_DISK = 10 * 2**30  # bytes; an executable of the big model may have 0.3 GiB
WORTH_KEEPING = 0.5  # seconds of compiling

Key = TypeVar("Key")
Executable = Callable[..., Any]


class Precompiled(Generic[Key]):
    """One executable per announced key. A key outside the set is a bug, not a compilation.

    A key that is needed before its turn is compiled at once, so nothing waits for a shape it does not need.
    """

    def __init__(self, compile_one: Callable[[Key], Executable], keys: Sequence[Key], background: Executor):
        """Have `background` compile `keys` in the given order, the commonest first."""
        self._compile_one = compile_one
        self._futures: dict[Key, Future[Executable]] = {key: background.submit(compile_one, key) for key in keys}
        self._ready: dict[Key, Executable] = {}

    def __getitem__(self, key: Key) -> Executable:
        if key not in self._ready:
            if key not in self._futures:
                raise RuntimeError(f"shape {key} is not among the announced {sorted(map(str, self._futures))}")
            future = self._futures[key]
            self._ready[key] = self._compile_one(key) if future.cancel() else future.result()
        return self._ready[key]


@contextlib.contextmanager
def background_compiler() -> Iterator[Executor]:
    """A thread that compiles one thing after another; on leaving, what has not been started is given up."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="compile")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def keep_executables() -> None:
    """Have JAX keep what it compiles in the user's cache folder, unless JAX_COMPILATION_CACHE_DIR names another.

    Each kind of processor has a folder of its own: a home may be shared by machines that differ, and what was compiled
    for one can crash on another.
    """
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", str(home / "t2t_jax" / "executables" / _processor()))
    jax.config.update("jax_compilation_cache_max_size", MOST_ON_DISK)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)
    # A folder that cannot be written, or an entry that a crash cut short, costs a compilation and no more.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")


def _processor() -> str:
    """A name for what machine code this processor can run."""
    told = [platform.machine(), platform.processor()]
    with contextlib.suppress(OSError):  # Linux alone has it
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        told += sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    return f"{platform.machine()}-{hashlib.sha256('|'.join(told).encode()).hexdigest()[:12]}"
