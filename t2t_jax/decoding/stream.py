"""Translating an endless stream of lines in bounded memory, answering as soon as there is something to answer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from t2t_jax.parallel.channel import Channel

CHUNK = 2048  # lines read ahead and translated together, at most
PAUSE = 0.2  # seconds without a new line after which those at hand are translated

Line = TypeVar("Line")
Answer = TypeVar("Answer")


def in_chunks(
    lines: Iterator[Line], answer: Callable[[list[Line]], Iterable[Answer]], channel: Channel
) -> Iterator[Answer]:
    """What `answer` makes of the lines, in order, called with as many of them as have come.

    It waits for `CHUNK` lines only as long as they keep coming, so that a person who types, or a program that waits for
    each answer, gets it. Of several processes, which all call this alike, process 0 has the lines.
    """
    ready = read_ahead(lines) if channel.first else None
    while chunk := channel.exchange(next(ready) if ready else None)[0]:
        yield from answer(chunk)


def read_ahead(lines: Iterator[Line]) -> Iterator[list[Line]]:
    """Chunks of the lines, read in another thread; the last one is empty.

    Raises:
      Exception: whatever reading raised, once the lines before are through.
    """
    waiting: queue.Queue[Line | BaseException | None] = queue.Queue(CHUNK)

    def read() -> None:
        try:
            for line in lines:
                waiting.put(line)
            waiting.put(None)
        except BaseException as error:
            waiting.put(error)

    threading.Thread(target=read, daemon=True).start()
    last: BaseException | None = None
    ended = False
    while not ended:
        chunk: list[Line] = []
        try:
            while len(chunk) < CHUNK and not ended:
                item = waiting.get(timeout=PAUSE if chunk else None)
                if item is None or isinstance(item, BaseException):
                    ended, last = True, item
                else:
                    chunk.append(item)
        except queue.Empty:
            pass
        if chunk:
            yield chunk
    if last is not None:
        raise last
    yield []
