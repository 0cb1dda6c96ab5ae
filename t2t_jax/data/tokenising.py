"""Training text to flat files of token ids, in pieces: a kill costs one piece, and the bytes are the same."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from t2t_jax import config, progress
from t2t_jax.data.cleaning import Dropped, fitting, none_dropped, usable
from t2t_jax.data.sources import Pair
from t2t_jax.data.tokenizer import Side, Tokenizer
from t2t_jax.files import write_atomically

SIDES: tuple[Side, Side] = ("source", "target")
FILES = tuple(f"train.{side}.{part}" for side in SIDES for part in ("tokens", "lengths"))
CHUNK = 20_000  # pairs tokenised at once
PIECE = 1_000_000  # pairs read between two journal entries


T = TypeVar("T")
R = TypeVar("R")


def types(data: config.Data, vocabulary: int) -> dict[str, str]:
    """NumPy types of the files: `tokens`, and `lengths` without end of sentence."""
    return {
        "tokens": "<u2" if vocabulary <= 2**16 else "<i4",
        "lengths": "<u2" if data.max_length <= 2**16 else "<i4",
    }


def tokenise(
    data: config.Data, pairs: Iterator[Pair], tokenizer: Tokenizer, directory: Path, journal: Path
) -> dict[str, Any]:
    """Clean and tokenise training pairs into `FILES` of `directory`; returns what was kept and dropped.

    Every `PIECE` pairs `journal` records how far the files are safe. Where a killed call has left one, the files are
    cut to that and writing goes on behind it.
    """
    kinds = types(data, tokenizer.size)
    facts: dict[str, Any] = {"read": 0, "pairs": 0, "dropped": none_dropped(data), "tokens": dict.fromkeys(SIDES, 0)}
    if journal.exists():
        facts = json.loads(journal.read_bytes())

    def encode(chunk: list[Pair]) -> tuple[list[np.ndarray], Dropped]:
        """What goes to each of the files, and what does not."""
        dropped = none_dropped(data)
        kept = usable(data, chunk, dropped)
        ids = [tokenizer.encode([pair[i] for pair in kept], side) for i, side in enumerate(SIDES)]
        lengths = [np.fromiter(map(len, side), np.int64, len(side)) for side in ids]
        fits = fitting(data, lengths[0] + 1, lengths[1] + 1, dropped)
        columns = []
        for side, sizes in zip(ids, lengths, strict=True):
            flat = itertools.chain.from_iterable(itertools.compress(side, fits))
            columns += [np.fromiter(flat, kinds["tokens"], sizes[fits].sum()), sizes[fits].astype(kinds["lengths"])]
        return columns, dropped

    safe = [facts["tokens"][side] if part == "tokens" else facts["pairs"] for side in SIDES for part in kinds]
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(_cut(directory / name, items * np.dtype(kind).itemsize))
            for name, items, kind in zip(FILES, safe, [*kinds.values()] * 2, strict=True)
        ]
        advance = stack.enter_context(progress.count("tokenising", "pairs", facts["read"]))
        rest = itertools.islice(pairs, facts["read"], None)
        chunks = iter(lambda: list(itertools.islice(rest, CHUNK)), [])
        for chunk, (columns, dropped) in _one_ahead(encode, chunks):
            for file, column in zip(files, columns, strict=True):
                file.write(column.data)
            facts["read"] += len(chunk)
            facts["pairs"] += len(columns[1])
            for side, column in zip(SIDES, columns[::2], strict=True):
                facts["tokens"][side] += len(column)
            for reason, count in dropped.items():
                facts["dropped"][reason] += count
            advance(len(chunk))
            if facts["read"] % PIECE == 0:
                for file in files:
                    file.flush()
                    os.fsync(file.fileno())
                write_atomically(journal, json.dumps(facts))
    del facts["read"]
    return facts | {"tokens": {side: count + facts["pairs"] for side, count in facts["tokens"].items()}}


def _cut(path: Path, size: int) -> IO[bytes]:
    """A file to be written on from `size` bytes."""
    file = path.open("ab")
    file.truncate(size)
    return file


def _one_ahead(function: Callable[[T], R], items: Iterable[T]) -> Iterator[tuple[T, R]]:
    """Each item with the function's result, which another thread works out while the next item is read."""
    with ThreadPoolExecutor(1) as pool:
        waiting: tuple[T, Future[R]] | None = None
        for item in items:
            submitted = item, pool.submit(function, item)
            if waiting is not None:
                yield waiting[0], waiting[1].result()
            waiting = submitted
        if waiting is not None:
            yield waiting[0], waiting[1].result()
