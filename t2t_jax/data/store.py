"""The prepared corpus: training pairs as memory-mapped token ids, evaluation pairs as text, and a manifest of both.

A store is a folder that is complete or absent: it is built beside its place and renamed into it, and its manifest says
what it was made from, so that it is used again exactly when nothing it depends on has changed.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import hashlib
import itertools
import json
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from t2t_jax import config, progress
from t2t_jax.data import tokenizer as tokenizers
from t2t_jax.data.sources import SPLITS, Pair, Source, Split, open_source
from t2t_jax.data.tokenizer import Side, Tokenizer
from t2t_jax.errors import DataError
from t2t_jax.files import sha256, write_atomically

FORMAT = 1
MANIFEST = "store.json"
SIDES: tuple[Side, Side] = ("source", "target")
CHUNK = 20_000  # pairs tokenised at once


class Ragged:
    """A list of token sequences in one flat, usually memory-mapped array."""

    def __init__(self, tokens: np.ndarray, lengths: np.ndarray):
        self.tokens = tokens
        self.lengths = lengths
        self.starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])[:-1]

    def __len__(self) -> int:
        return len(self.lengths)

    def padded(self, indices: np.ndarray, rows: int, width: int, end: int) -> np.ndarray:
        """Sequences `indices`, each followed by `end`, in int32 [rows, width]; the rest is 0, the padding."""
        lengths, place = self.lengths[indices].astype(np.int64), np.arange(width)
        out = np.zeros((rows, width), np.int32)
        inside = place < lengths[:, None]
        filled = out[: len(indices)]
        filled[inside] = self.tokens[(self.starts[indices][:, None] + place)[inside]]
        filled[np.arange(len(indices)), lengths] = end
        return out


@dataclass(frozen=True)
class Corpus:
    """Training pairs as token ids, without end of sentence."""

    source: Ragged
    target: Ragged

    def __len__(self) -> int:
        return len(self.source)

    @property
    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of each pair by side, end of sentence included: two int32 [N]."""
        return self.source.lengths + 1, self.target.lengths + 1


@dataclass(frozen=True)
class Store:
    """An opened store."""

    directory: Path
    manifest: dict[str, Any]
    tokenizer: Tokenizer

    def corpus(self) -> Corpus:
        """The training pairs, memory-mapped."""
        sides = [
            Ragged(
                *(np.load(self.directory / f"train.{side}.{part}.npy", mmap_mode="r") for part in ("tokens", "lengths"))
            )
            for side in SIDES
        ]
        return Corpus(*sides)


def origin(data: config.Data) -> dict[str, Any]:
    """Everything that the content of a store for `data` depends on: settings, tokenizer, text; equal if the store is.

    Raises:
      DataError: text or tokenizer that cannot be read.
    """
    names = "source_language target_language tokenizer vocabulary_size byte_fallback character_coverage max_length"
    source, reused = open_source(data), _reused_tokenizer(data)
    return {
        "format": FORMAT,
        "settings": {name: getattr(data, name) for name in names.split()},
        "tokenizer": None if reused is None else sha256(reused),
        "text": {split: source.fingerprint(split) for split in SPLITS},
    }


def prepare(data: config.Data, run: Path) -> Store:
    """The store for `data`, built when it is not there yet, or stale.

    Args:
      data: settings; `data.store` or else `run`/data is the store's place.
      run: the run directory; may not exist yet.

    Raises:
      DataError, ConfigError: text that is missing, not parallel, empty, or too small for the vocabulary; a folder that
        cannot be written, holds something else, or is named by `data.store` and was made from other text.
    """
    directory = Path(data.store) if data.store else run / "data"
    made_from = origin(data)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(directory, error) from None
    # A run directory has one writer anyway.
    with _alone(directory) if data.store else contextlib.nullcontext():
        # A kill leaves the old store, or none, and one of these, but nothing in between.
        partial, old = (directory.with_name(f".{directory.name}.{what}") for what in ("partial", "old"))
        for leftover in (partial, old):
            shutil.rmtree(leftover, ignore_errors=True)
        store = _open(directory, made_from)
        if store is not None:
            return store
        _refuse_foreign(directory, shared=data.store is not None)
        try:
            partial.mkdir()
            manifest = _build(data, made_from, partial)
            write_atomically(partial / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
            if directory.exists():
                directory.rename(old)
            partial.rename(directory)
        except OSError as error:
            raise _unwritable(directory, error) from None
        finally:
            for leftover in (partial, old):
                shutil.rmtree(leftover, ignore_errors=True)
        store = _open(directory, made_from)
    if store is None:
        raise DataError(f"The prepared data in {str(directory)!r} did not survive being written; is the disk sound?")
    return store


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Only one process at a time makes a store that several share; the others wait and find it made."""
    with directory.with_name(f".{directory.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def attach(data: config.Data, run: Path, digest: str) -> Store:
    """The store for `data` that another process has prepared and looked over; `digest` is its manifest's.

    Raises:
      DataError: this process sees another store there, or none.
    """
    directory = Path(data.store) if data.store else run / "data"
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        if manifest["sha256"] == digest:
            return Store(directory, manifest, tokenizers.load(directory))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise DataError(
        f"The data that process 0 has prepared in {str(directory)!r} is not there on {socket.gethostname()}; the "
        "processes of a run need storage that all of them share for --workdir (and data.store)."
    )


def _refuse_foreign(directory: Path, shared: bool) -> None:
    """A folder is only ever replaced if it holds a store and nothing else, and if no other run may be reading it."""
    if not directory.exists():
        return
    names = {path.name for path in directory.iterdir()} if directory.is_dir() else {""}
    ours = {MANIFEST, *tokenizers.FILES}
    ours |= {f"train.{side}.{part}.npy" for side in SIDES for part in ("tokens", "lengths")}
    ours |= {f"{split}.{side}" for split in ("validation", "test") for side in SIDES}
    if names - ours:
        raise DataError(f"{str(directory)!r} holds something else than prepared data; name a new folder for it.")
    if shared and MANIFEST in names:
        raise DataError(
            f"data: store={str(directory)!r} was made from other text or settings, or is damaged; name another folder, "
            "or delete it if no other run needs it."
        )


def _unwritable(directory: Path, error: OSError) -> DataError:
    return DataError(f"Prepared data cannot be written to {str(directory)!r}: {error.strerror or error}.")


def _reused_tokenizer(data: config.Data) -> Path | None:
    if data.tokenizer_from is None:
        return None
    path = Path(data.tokenizer_from)
    for name in tokenizers.FILES if path.is_dir() else ():
        if (path / name).is_file():
            return path / name
    if not path.is_file():
        raise DataError(f"data: tokenizer_from={data.tokenizer_from!r} is neither a tokenizer file nor a run with one.")
    return path


def _open(directory: Path, made_from: dict[str, Any]) -> Store | None:
    """The store in `directory` if it is whole and was made from `made_from`, else None."""
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        if manifest["made_from"] != made_from:
            return None
        for name, digest in manifest["files"].items():
            if not (directory / name).is_file() or sha256(directory / name) != digest:
                return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Store(directory, manifest, tokenizers.load(directory))


def _build(data: config.Data, made_from: dict[str, Any], directory: Path) -> dict[str, Any]:
    source, reused = open_source(data), _reused_tokenizer(data)
    # First what is quick, so that a bad line in it is not found after an hour of tokenising.
    held_out = {split: _copy_text(source, split, directory) for split in ("validation", "test")}
    if reused is not None:
        tokenizer = tokenizers.load(reused)
    else:
        progress.say(f"Making a vocabulary of {data.vocabulary_size:,} entries ({data.tokenizer}) …")
        lines = (line for pair in source.pairs("train") for line in pair if line is not None)
        tokenizer = tokenizers.train(data, lines)
    tokenizer.save(directory)
    counts = {"train": _tokenise(data, source, tokenizer, directory), **held_out}
    files = {path.name: sha256(path) for path in sorted(directory.iterdir())}
    digest = hashlib.sha256(json.dumps([made_from, files], sort_keys=True).encode()).hexdigest()
    return {
        "format": FORMAT,
        "sha256": digest,
        "source": data.source,
        "languages": [data.source_language, data.target_language],
        "vocabulary": tokenizer.size,
        "splits": counts,
        "made_from": made_from,
        "files": files,
    }


def _tokenise(data: config.Data, source: Source, tokenizer: Tokenizer, directory: Path) -> dict[str, Any]:
    """Clean and tokenise the training pairs into `directory`; returns what was kept and dropped."""
    dtype = np.uint16 if tokenizer.size <= 2**16 else np.int32
    dropped: collections.Counter[str] = collections.Counter()
    lengths: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    names = [directory / f"train.{side}.tokens" for side in SIDES]
    with names[0].open("wb") as left, names[1].open("wb") as right:
        pairs = progress.track(source.pairs("train"), "tokenising")
        for chunk in _chunks(_clean(pairs, dropped)):
            encoded = [tokenizer.encode(lines, side) for lines, side in zip(chunk, SIDES, strict=True)]
            fits = [max(len(s), len(t)) < data.max_length for s, t in zip(*encoded, strict=True)]
            dropped["too long"] += len(fits) - sum(fits)
            for ids, file, sizes in zip(encoded, (left, right), lengths, strict=True):
                kept = list(itertools.compress(ids, fits))
                np.fromiter(itertools.chain.from_iterable(kept), dtype).tofile(file)
                sizes.append(np.fromiter(map(len, kept), np.int32, len(kept)))
    columns = [np.concatenate(sizes) if sizes else np.empty(0, np.int32) for sizes in lengths]
    if not len(columns[0]):
        raise DataError(f"No training pair is left: {_list_counts(dropped)} were dropped.")
    for side, name, column in zip(SIDES, names, columns, strict=True):
        flat = np.memmap(name, dtype, "r") if column.sum() else np.empty(0, dtype)
        np.save(directory / f"train.{side}.tokens.npy", flat)
        np.save(directory / f"train.{side}.lengths.npy", column)
        name.unlink()
    return {
        "pairs": len(columns[0]),
        "dropped": dict(dropped),
        "tokens": {side: int(column.sum()) + len(column) for side, column in zip(SIDES, columns, strict=True)},
    }


def _clean(pairs: Iterator[Pair], dropped: collections.Counter[str]) -> Iterator[tuple[str, str]]:
    for source, target in pairs:
        if source is None or target is None:
            dropped["invalid UTF-8"] += 1
        elif not source.strip() or not target.strip():
            dropped["empty"] += 1
        else:
            yield source, target


def _chunks(pairs: Iterator[tuple[str, str]]) -> Iterator[tuple[list[str], list[str]]]:
    while chunk := list(itertools.islice(pairs, CHUNK)):
        yield [source for source, _ in chunk], [target for _, target in chunk]


def _copy_text(source: Source, split: Split, directory: Path) -> dict[str, Any]:
    """Evaluation text is kept whole and in order: a line that is left out would change the score."""
    lines: tuple[list[str], list[str]] = ([], [])
    for number, pair in enumerate(source.pairs(split), start=1):
        for text, side in zip(pair, lines, strict=True):
            if text is None:
                raise DataError(f"{split} text: line {number} is not valid UTF-8; mend it, since every line is scored.")
            side.append(text)
    if not lines[0]:
        raise DataError(f"{split} text: there are no lines.")
    for name, side in zip(SIDES, lines, strict=True):
        (directory / f"{split}.{name}").write_text("".join(f"{s}\n" for s in side), encoding="utf-8", newline="\n")
    return {"pairs": len(lines[0])}


def _list_counts(counts: collections.Counter[str]) -> str:
    return ", ".join(f"{n:,} {reason}" for reason, n in sorted(counts.items())) or "0"


def describe(manifest: dict[str, Any]) -> str:
    """What was kept and dropped, as one line a split."""
    lines = []
    for split, facts in manifest["splits"].items():
        line = f"{split}: {facts['pairs']:,} pairs"
        if "tokens" in facts:
            line += f", {facts['tokens']['source']:,} + {facts['tokens']['target']:,} tokens"
            line += f"; dropped: {_list_counts(collections.Counter(facts['dropped']))}"
        lines.append(line)
    return "\n".join([*lines, f"vocabulary: {manifest['vocabulary']:,} entries"])
