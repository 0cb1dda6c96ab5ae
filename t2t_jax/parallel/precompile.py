"""Executables for a closed set of shapes, compiled in the background."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

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
