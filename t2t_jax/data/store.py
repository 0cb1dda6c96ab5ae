"""The prepared corpus: training pairs as memory-mapped token ids, evaluation pairs as text, and a manifest of both.

A store is a folder that is complete or absent: it is built beside its place and renamed into it, and its manifest says
what it was made from, so that it is used again exactly when nothing it depends on has changed.
"""

from __future__ import annotations

import collections
import hashlib
import itertools
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from t2t_jax import config, progress
from t2t_jax.data import tokenizer as tokenizers
from t2t_jax.data.sources import Pair, Source, Split, open_source, read_lines
from t2t_jax.data.tokenizer import Tokenizer
from t2t_jax.errors import DataError, RunError
from t2t_jax.files import sha256, write_atomically

FORMAT = 1
MANIFEST = "manifest.json"
SIDES = ("source", "target")
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

    def copy_to_run(self, run: Path) -> None:
        """Give a run directory what it needs to stand alone: manifest, tokenizer and evaluation text."""
        write_atomically(run / "data.json", json.dumps(self.manifest, indent=2, ensure_ascii=False) + "\n")
        self.tokenizer.save(run)
        texts = run / "translations"
        texts.mkdir(exist_ok=True)
        for split, side in itertools.product(("validation", "test"), SIDES):
            if (self.directory / f"{split}.{side}").is_file():
                shutil.copyfile(self.directory / f"{split}.{side}", texts / f"{split}.{side}")


def prepare(data: config.Data, run: Path) -> Store:
    """The store for `data`, built when it is not there yet, or stale.

    Args:
      data: settings; `data.store` or else `run`/data is the store's place.
      run: the run directory; may not exist yet.

    Raises:
      DataError, ConfigError: text that is missing, not parallel, empty, or too small for the vocabulary; a folder that
        cannot be written.
    """
    directory = Path(data.store) if data.store else run / "data"
    source = open_source(data)
    made_from = _made_from(data, source)
    store = _open(directory, made_from)
    if store is not None:
        return store
    if directory.is_dir() and any(directory.iterdir()) and not (directory / MANIFEST).is_file():
        raise DataError(f"{str(directory)!r} holds something else than prepared data; name a new folder for it.")
    partial = directory.with_name(f".{directory.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        manifest = _build(data, source, made_from, partial)
        write_atomically(partial / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
        if directory.exists():
            shutil.rmtree(directory)
        partial.rename(directory)
    except OSError as error:
        raise DataError(
            f"The prepared data cannot be written to {str(directory)!r}: {error.strerror or error}."
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    store = _open(directory, made_from)
    if store is None:
        raise DataError(f"The prepared data in {str(directory)!r} did not survive being written; is the disk sound?")
    return store


def evaluation_text(run: Path, split: Split) -> tuple[list[str], list[str]]:
    """Source and target lines of a run's validation or test split.

    Raises:
      RunError: the run has no such text.
    """
    files = [run / "translations" / f"{split}.{side}" for side in SIDES]
    if not all(file.is_file() for file in files):
        raise RunError(f"{str(run)!r} has no {split} text; run `prepare` or `train` with this --workdir first.")
    source, target = ([line.decode() for line in read_lines(file)] for file in files)
    return source, target


def _made_from(data: config.Data, source: Source) -> dict[str, Any]:
    """Everything the store's content depends on."""
    fields = [
        "source_language",
        "target_language",
        "tokenizer",
        "vocabulary_size",
        "byte_fallback",
        "character_coverage",
        "max_length",
    ]
    reused = _reused_tokenizer(data)
    return {
        "format": FORMAT,
        "settings": {name: getattr(data, name) for name in fields},
        "tokenizer": None if reused is None else sha256(reused),
        "text": {split: source.fingerprint(split) for split in ("train", "validation", "test")},
    }


def _reused_tokenizer(data: config.Data) -> Path | None:
    if data.tokenizer_from is None:
        return None
    path = Path(data.tokenizer_from)
    for name in (tokenizers.SENTENCEPIECE_FILE, tokenizers.WHITESPACE_FILE) if path.is_dir() else ():
        if (path / name).is_file():
            return path / name
    if not path.is_file():
        raise DataError(f"data: tokenizer_from={data.tokenizer_from!r} is neither a tokenizer file nor a run with one.")
    return path


def _open(directory: Path, made_from: dict[str, Any]) -> Store | None:
    """The store in `directory` if it is whole and was made from `made_from`, else None."""
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if manifest.get("made_from") != made_from:
        return None
    for name, digest in manifest["files"].items():
        if not (directory / name).is_file() or sha256(directory / name) != digest:
            return None
    return Store(directory, manifest, tokenizers.load(directory))


def _build(data: config.Data, source: Source, made_from: dict[str, Any], directory: Path) -> dict[str, Any]:
    reused = _reused_tokenizer(data)
    if reused is not None:
        tokenizer = tokenizers.load(reused)
    else:
        progress.say(f"Making a vocabulary of {data.vocabulary_size:,} entries ({data.tokenizer}) …")
        lines = (line for pair in source.pairs("train") for line in pair if line is not None)
        tokenizer = tokenizers.train(data, lines)
    tokenizer.save(directory)
    counts: dict[str, Any] = {"train": _tokenise(data, source, tokenizer, directory)}
    for split in ("validation", "test"):
        counts[split] = _copy_text(source, split, directory)
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
            encoded = [tokenizer.encode(side) for side in chunk]
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
