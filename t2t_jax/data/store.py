"""The prepared corpus: training pairs as memory-mapped token ids, evaluation pairs as text, and a manifest of both.

A store is a folder that is complete or absent: it is built beside its place and renamed into it, and its manifest says
what each part was made from, so that it is used again exactly when nothing it depends on has changed. A build that was
killed goes on where it was.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from t2t_jax import config, progress
from t2t_jax.data import tokenising
from t2t_jax.data import tokenizer as tokenizers
from t2t_jax.data.cleaning import look_reversed
from t2t_jax.data.digits_source import VOCABULARY
from t2t_jax.data.masking import Masking, of_task
from t2t_jax.data.sources import SPLITS, Pair, Source, Split, digests, open_source
from t2t_jax.data.tokenising import SIDES
from t2t_jax.data.tokenizer import Tokenizer
from t2t_jax.errors import DataError
from t2t_jax.files import sha256, write_atomically

# Of the files' layout. What they mean (1, in `origin`) is another matter: a run goes on when only the layout is new.
FORMAT = 2
MANIFEST, ORIGIN, JOURNAL = "store.json", "origin.json", "journal.json"
HELD_OUT: tuple[Split, ...] = ("validation", "test")
STRIDE = 16  # sequences from one whose start is kept to the next
LOOKED_AT = 5000  # training pairs, to see whether held-out text is the right way round


class Ragged:
    """A list of token sequences in one flat, usually memory-mapped array."""

    def __init__(self, tokens: np.ndarray, lengths: np.ndarray):
        self.tokens = tokens
        self.lengths = lengths
        # Of every STRIDE-th sequence only: those of 36 million pairs would take half a gigabyte.
        sums = np.add.reduceat(lengths, np.arange(0, len(lengths), STRIDE), dtype=np.int64) if len(lengths) else lengths
        self._strides = np.cumsum(sums, dtype=np.int64) - sums

    def __len__(self) -> int:
        return len(self.lengths)

    def starts(self, indices: np.ndarray) -> np.ndarray:
        """Where the tokens of these sequences begin: int64 [N]."""
        stride, place = np.divmod(indices, STRIDE)
        before = np.arange(STRIDE - 1)
        near = self.lengths[np.minimum(stride[:, None] * STRIDE + before, len(self) - 1)]
        return self._strides[stride] + np.where(before < place[:, None], near, 0).sum(axis=1, dtype=np.int64)

    def padded(self, indices: np.ndarray, rows: int, width: int, end: int) -> np.ndarray:
        """Sequences `indices`, each followed by `end`, in int32 [rows, width]; the rest is 0, the padding."""
        lengths = self.lengths[indices].astype(np.int64)
        first = np.arange(len(indices)) * width
        before = np.cumsum(lengths) - lengths
        # Token k of all of these is read from, and written to, k + a number that only its sequence decides.
        k = np.arange(lengths.sum())
        out = np.zeros(rows * width, np.int32)
        out[np.repeat(first - before, lengths) + k] = self.tokens[np.repeat(self.starts(indices) - before, lengths) + k]
        out[first + lengths] = end
        return out.reshape(rows, width)


@dataclass(frozen=True)
class Corpus:
    """Training pairs as token ids, without end of sentence."""

    source: Ragged
    target: Ragged
    masking: Masking | None = None
    """What a batch's sentences go through, if anything."""

    def __len__(self) -> int:
        return len(self.source)

    @property
    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of each pair by side, end of sentence included: two integer [N]."""
        return self.source.lengths + 1, self.target.lengths + 1


@dataclass(frozen=True)
class Store:
    """An opened store."""

    directory: Path
    manifest: dict[str, Any]
    tokenizer: Tokenizer

    def corpus(self) -> Corpus:
        """The training pairs, memory-mapped.

        Raises:
          DataError: another version of this program has laid the files out.
        """
        if self.manifest["format"] != FORMAT:
            raise DataError(f"{str(self.directory)!r} was prepared by another version of t2t_jax; prepare it again.")
        kinds = self.manifest["types"]
        sides = [[_mapped(self.directory / f"train.{side}.{part}", kinds[part]) for part in kinds] for side in SIDES]
        masking = of_task(self.manifest["made_from"]["settings"].get("task"), self.tokenizer.size)
        source, target = (Ragged(*arrays) for arrays in sides)
        return Corpus(source, target, masking)


def _mapped(path: Path, kind: str) -> np.ndarray:
    """A file as an array that is read when it is looked at."""
    return np.asarray(np.memmap(path, kind, "r")) if path.stat().st_size else np.empty(0, kind)


def origin(data: config.Data) -> dict[str, Any]:
    """Everything that the content of a store for `data` depends on: settings, tokenizer, text; equal if the store is.

    Raises:
      DataError: text or tokenizer that cannot be read.
    """
    names = "source_language target_language tokenizer vocabulary_size byte_fallback character_coverage max_length"
    default = config.Data()
    # At their defaults they change nothing.
    later = {"vocabulary_sample", "max_length_ratio", "drop_identical", "task", "extra_share"}
    settings = {name: getattr(data, name) for name in names.split()}
    settings |= {name: getattr(data, name) for name in sorted(later) if getattr(data, name) != getattr(default, name)}
    source, reused = open_source(data), _reused_tokenizer(data)
    return {
        "format": 1,
        "settings": settings,
        "tokenizer": None if reused is None else sha256(reused),
        "text": {split: source.fingerprint(split) for split in SPLITS},
    }


def _inputs(made_from: Mapping[str, Any]) -> dict[str, Any]:
    """What each part of a store depends on."""
    settings, text = made_from["settings"], made_from["text"]
    languages = [settings["source_language"], settings["target_language"]]
    filters = {name: settings.get(name) for name in ("max_length", "max_length_ratio", "drop_identical")}
    vocabulary = made_from["tokenizer"] or [
        {name: value for name, value in settings.items() if name not in filters},
        text["train"],
    ]
    return {
        "vocabulary": vocabulary,
        "train": [vocabulary, filters, languages, text["train"], settings.get("task")],
        **{split: [languages, text[split], settings.get("task")] for split in HELD_OUT},
    }


def prepare(data: config.Data, run: Path, made_from: dict[str, Any] | None = None) -> Store:
    """The store for `data`, built when it is not there yet, or stale.

    Args:
      data: settings; `data.store` or else `run`/data is the store's place.
      run: the run directory; may not exist yet.
      made_from: `origin(data)`, if that is known already.

    Raises:
      DataError, ConfigError: text that is missing, not parallel, empty, or too small for the vocabulary; a folder that
        cannot be written, holds something else, or is named by `data.store` and was made from other text.
    """
    directory = Path(data.store) if data.store else run / "data"
    made_from = made_from or origin(data)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(directory, error) from None
    # A run directory has one writer anyway.
    with _alone(directory) if data.store else contextlib.nullcontext():
        # A kill leaves the old store, or none, and one of these, but nothing in between.
        partial, old = (directory.with_name(f".{directory.name}.{what}") for what in ("partial", "old"))
        if old.exists() and not directory.exists():
            old.rename(directory)
        shutil.rmtree(old, ignore_errors=True)
        store = _open(directory, made_from)
        if store is not None:
            shutil.rmtree(partial, ignore_errors=True)
            return store
        _refuse_foreign(directory, shared=data.store is not None)
        try:
            if _open(partial, made_from) is None:  # else the kill came just before the renaming
                _build(data, made_from, partial, directory)
            for path in (partial / JOURNAL, partial / ORIGIN):
                path.unlink(missing_ok=True)
            if directory.exists():
                directory.rename(old)
            partial.rename(directory)
        except Exception as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise _unwritable(directory, error) if isinstance(error, OSError) else error from None
        finally:
            shutil.rmtree(old, ignore_errors=True)
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
    ours = {MANIFEST, *tokenizers.FILES, *tokenising.FILES}
    ours |= {f"train.{side}.{part}.npy" for side in SIDES for part in ("tokens", "lengths")}  # of format 1
    ours |= {f"{split}.{side}" for split in HELD_OUT for side in SIDES}
    if names - ours:
        raise DataError(f"{str(directory)!r} holds something else than prepared data; name a new folder for it.")
    if shared and MANIFEST in names:
        raise DataError(
            f"data: store={str(directory)!r} was made from other text or settings or by another version, or is "
            "damaged; name another folder, or delete it if no other run needs it."
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


def _manifest(directory: Path) -> dict[str, Any] | None:
    """What the folder's manifest says, if it has one of this version."""
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        return manifest if manifest["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def open_store(directory: Path) -> Store:
    """The store in a folder, every file of which is compared with its hash.

    Raises:
      DataError: there is none, it is of another version, or damaged.
    """
    manifest = _manifest(directory)
    if manifest is None:
        raise DataError(f"{str(directory)!r} holds no prepared data of this version of t2t_jax; prepare it again.")
    try:
        whole = digests(directory / name for name in manifest["files"]) == manifest["files"]
    except (DataError, AttributeError, KeyError, TypeError):
        whole = False
    if not whole:
        raise DataError(f"The prepared data in {str(directory)!r} is damaged; prepare it again.")
    return Store(directory, manifest, tokenizers.load(directory))


def _open(directory: Path, made_from: dict[str, Any]) -> Store | None:
    """The store in `directory` if it is whole and was made from `made_from`, else None."""
    manifest = _manifest(directory)
    if manifest is None or manifest.get("made_from") != made_from:
        return None
    try:
        return open_store(directory)
    except DataError:
        return None


def _build(data: config.Data, made_from: dict[str, Any], directory: Path, before: Path) -> None:
    """Make the store in `directory`: on from where a killed build was, with what still holds of the one `before`."""
    marker, journal = directory / ORIGIN, directory / JOURNAL
    if _read(marker) != made_from:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        write_atomically(marker, json.dumps(made_from))
    for leftover in directory.glob(".*"):  # of a file that was being written
        leftover.unlink()
    source, manifest = open_source(data), _manifest(before)
    unchanged = {} if manifest is None else _unchanged(manifest, made_from, before)
    for name in itertools.chain.from_iterable(unchanged.values()):
        (directory / name).unlink(missing_ok=True)
        try:
            os.link(before / name, directory / name)
        except OSError:  # not every file system has links
            shutil.copyfile(before / name, directory / name)
    kept = {split: manifest["splits"][split] for split in SPLITS if manifest is not None and split in unchanged}

    # First what is quick, so that a bad line in it is not found after an hour of tokenising.
    splits = {split: kept.get(split) or _copy_text(source, split, directory) for split in HELD_OUT}
    tokenizer = _tokenizer(data, source, directory)
    splits["train"] = kept.get("train") or tokenising.tokenise(
        data, source.pairs("train"), tokenizer, directory, journal
    )
    if not splits["train"]["pairs"]:
        raise DataError(f"No training pair is left: {_list_counts(splits['train']['dropped'])} were dropped.")
    _look_over(source, directory)
    files = digests(path for path in directory.iterdir() if path.name not in (ORIGIN, JOURNAL, MANIFEST))
    manifest = {
        "format": FORMAT,
        "sha256": hashlib.sha256(json.dumps([made_from, files], sort_keys=True).encode()).hexdigest(),
        "source": data.source,
        "languages": [data.source_language, data.target_language],
        "vocabulary": tokenizer.size,
        "types": tokenising.types(data, tokenizer.size),
        "splits": {split: splits[split] for split in SPLITS},
        "made_from": made_from,
        "files": files,
    }
    write_atomically(directory / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def _unchanged(manifest: dict[str, Any], made_from: dict[str, Any], directory: Path) -> dict[str, list[str]]:
    """The files, by part, of the store in `directory` that a store made from `made_from` has too."""
    files: dict[str, list[str]] = {
        "vocabulary": [name for name in tokenizers.FILES if name in manifest["files"]],
        "train": list(tokenising.FILES),
        **{str(split): [f"{split}.{side}" for side in SIDES] for split in HELD_OUT},
    }
    before, now = _inputs(manifest["made_from"]), _inputs(made_from)
    same = {part: names for part, names in files.items() if before[part] == now[part]}
    try:
        found = digests(directory / name for name in itertools.chain.from_iterable(same.values()))
    except DataError:
        return {}
    return {part: names for part, names in same.items() if all(found[n] == manifest["files"][n] for n in names)}


def _tokenizer(data: config.Data, source: Source, directory: Path) -> Tokenizer:
    """The tokenizer in `directory`, which is put there if it is not there yet."""
    if not any((directory / name).exists() for name in tokenizers.FILES):
        reused = _reused_tokenizer(data)
        if reused is not None:
            tokenizer = tokenizers.load(reused)
            if isinstance(tokenizer, tokenizers.BracketTokenizer) != (data.task == "parsing"):
                raise DataError(f"data: the tokenizer of {str(reused)!r} is for another task than {data.task}.")
            if data.task == "digits" and tokenizer != _new_tokenizer(data, source):
                raise DataError(f"data: the vocabulary of {str(reused)!r} does not begin with intensities in order.")
            if data.task == "masked_language_model" and isinstance(tokenizer, tokenizers.MarianTokenizer):
                raise DataError(f"data: the tokenizer of {str(reused)!r} has two sides, and gaps are filled in one.")
        else:
            tokenizer = _new_tokenizer(data, source)
        tokenizer.save(directory)
    return tokenizers.load(directory)


def _new_tokenizer(data: config.Data, source: Source) -> Tokenizer:
    if data.task == "digits":
        return tokenizers.of_words(data, VOCABULARY)
    progress.say(f"Making a vocabulary of {data.vocabulary_size:,} entries ({data.tokenizer}) …")
    pairs: Iterable[Pair] = progress.track(source.pairs("train"), "sampling", "pairs")
    if data.tokenizer == "sentencepiece":
        pairs = tokenizers.sample(pairs, data.vocabulary_sample)
    if data.task == "parsing":
        trees = ((source, target) for source, target in pairs if source is not None and target is not None)
        return tokenizers.train_on_trees(data, trees)
    return tokenizers.train(data, (line for pair in pairs for line in pair if line is not None))


def _look_over(source: Source, directory: Path) -> None:
    """Say so where held-out text seems to be the wrong way round."""
    train = list(itertools.islice(source.pairs("train"), LOOKED_AT))
    for split in HELD_OUT:
        texts = ((directory / f"{split}.{side}").read_bytes().decode().split("\n") for side in SIDES)
        if look_reversed(train, zip(*texts, strict=True)):
            progress.say(f"{split} text: source and target look swapped; its words are from the other training side.")


def _read(path: Path) -> Any:
    """What a JSON file says, or None when there is no such file."""
    return json.loads(path.read_bytes()) if path.exists() else None


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


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {reason}" for reason, n in sorted(counts.items()) if n) or "0"


def describe(manifest: dict[str, Any]) -> str:
    """What was kept and dropped, as one line a split."""
    lines = []
    for split, facts in manifest["splits"].items():
        line = f"{split}: {facts['pairs']:,} pairs"
        if "tokens" in facts:
            line += f", {facts['tokens']['source']:,} + {facts['tokens']['target']:,} tokens"
            line += f"; dropped: {_list_counts(facts['dropped'])}"
        lines.append(line)
    return "\n".join([*lines, f"vocabulary: {manifest['vocabulary']:,} entries"])
