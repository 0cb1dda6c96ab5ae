"""Where pairs come from: the corpora inside the package, local files of text or trees, or TensorFlow Datasets.

A source yields pairs of lines and says what they were read from; it neither cleans nor tokenises.
"""

from __future__ import annotations

import dataclasses
import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Literal, Protocol, cast

from t2t_jax import config, progress
from t2t_jax.errors import ConfigError, DataError, suggestion
from t2t_jax.files import sha256

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

EMBEDDED_DIRECTORY = Path(__file__).parent / "embedded"
EMBEDDED_STEMS: dict[Split, str] = {"train": "train", "validation": "valid", "test": "test"}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# A side is None where its bytes are not valid UTF-8; what to do about it is the reader's decision.
Pair = tuple[str | None, str | None]


class Source(Protocol):
    """Pairs of three splits: of each example the source text and the target text, which the tokenizer takes apart."""

    def pairs(self, split: Split) -> Iterator[Pair]:
        """The split's pairs in order, without line ends.

        Raises:
          DataError: the text is missing, damaged or not parallel.
        """
        ...

    def fingerprint(self, split: Split) -> dict[str, str]:
        """SHA-256 (hexadecimal) of each piece the split is read from, by name; equal exactly when the text is."""
        ...


def open_source(data: config.Data) -> Source:
    """The source that `data` describes."""
    if data.extra_train is not None:
        from t2t_jax.data.mixing import Mixed

        first = dataclasses.replace(data, extra_train=None)
        extra = dataclasses.replace(first, train=data.extra_train)
        return Mixed(open_source(first), open_source(extra), data.extra_share)
    stems: dict[Split, str] = {"train": data.train, "validation": data.validation, "test": data.test}
    if data.task == "parsing":
        from t2t_jax.data.tree_source import EMBEDDED_TREES, TreeFiles

        return TreeFiles(*EMBEDDED_TREES) if data.source == "embedded" else TreeFiles(_directory(data), stems)
    if data.task == "text_to_text":
        from t2t_jax.data.text_to_text import text_to_text

        return text_to_text(data)
    if data.task == "digits":
        from t2t_jax.data.digits_source import Digits

        return Digits()
    if data.task in ("language_model", "masked_language_model"):
        directory = EMBEDDED_DIRECTORY if data.source == "embedded" else _directory(data)
        text = TextFiles(directory, EMBEDDED_STEMS if data.source == "embedded" else stems, *[data.target_language] * 2)
        return OneLanguage(text, data.target_language if data.task == "language_model" else None)
    if data.source == "tfds":
        from t2t_jax.data.tfds_source import TfdsSource  # only here: importing TFDS takes a second

        return TfdsSource(data)
    if data.source == "embedded":
        if {data.source_language, data.target_language} != {"en", "de"}:
            raise DataError(
                f"The embedded corpus is English and German, not {data.source_language} and {data.target_language}."
            )
        return TextFiles(EMBEDDED_DIRECTORY, EMBEDDED_STEMS, data.source_language, data.target_language)
    return TextFiles(_directory(data), stems, data.source_language, data.target_language)


def _directory(data: config.Data) -> Path:
    if data.directory is None:
        raise ConfigError("data: source='files' needs the folder of the files; give --data.directory DIR.")
    return Path(data.directory)


class TextFiles:
    """A folder with `STEM.en` and `STEM.de`, or one tab-separated `STEM.tsv`, per split; each plain or gzipped."""

    def __init__(self, directory: Path, stems: dict[Split, str], source_language: str, target_language: str):
        if not directory.is_dir():
            raise DataError(
                f"There is no folder {str(directory)!r}; give the folder of the text files as --data.directory."
            )
        self.directory, self.stems = directory, stems
        self.languages = (source_language, target_language)

    def files(self, split: Split) -> tuple[Path, ...]:
        """The split's two text files, or its one TSV."""
        stem = self.stems[split]
        table = self._find(stem.removesuffix(".gz").removesuffix(".tsv") + ".tsv")
        if table is not None:
            return (table,)
        found = []
        for language in self.languages:
            name = f"{stem}.{language}"
            path = self._find(name)
            if path is None:
                near = suggestion(name, [p.name for p in self.directory.iterdir()])
                raise DataError(f"{split} text: {str(self.directory)!r} has neither {name} nor {name}.gz.{near}")
            found.append(path)
        return tuple(found)

    def fingerprint(self, split: Split) -> dict[str, str]:
        return digests(self.files(split))

    def pairs(self, split: Split) -> Iterator[Pair]:
        files = self.files(split)
        if len(files) == 1:
            yield from _table_rows(files[0])
            return
        source, target = (read_lines(path) for path in files)
        count = 0
        while True:
            left, right = next(source, None), next(target, None)
            if left is None or right is None:
                break
            count += 1
            yield _decode(left), _decode(right)
        counts = [count + (line is not None) + sum(1 for _ in rest) for line, rest in ((left, source), (right, target))]
        if counts[0] != counts[1]:
            raise DataError(
                f"{split} text: {files[0].name} has {counts[0]:,} lines but {files[1].name} has {counts[1]:,}; "
                "line n of one must translate line n of the other."
            )

    def _find(self, name: str) -> Path | None:
        candidates = (self.directory / name, self.directory / f"{name}.gz")
        try:
            return next((path for path in candidates if path.is_file()), None)
        except OSError as error:
            raise DataError(f"{str(self.directory)!r} cannot be read: {error.strerror or error}.") from None


class OneLanguage:
    """The target side of a source, behind the name of its language, which tells nothing, or without one, itself."""

    def __init__(self, text: Source, language: str | None):
        self._text, self._language = text, language

    def pairs(self, split: Split) -> Iterator[Pair]:
        return ((self._language or line, line) for _, line in self._text.pairs(split))

    def fingerprint(self, split: Split) -> dict[str, str]:
        return self._text.fingerprint(split)


def digests(paths: Iterable[Path]) -> dict[str, str]:
    """SHA-256 (hexadecimal) of files by their names, in order of these; hashing leaves Python, so that threads help.

    Raises:
      DataError: one cannot be read.
    """
    paths = sorted(paths)
    with ThreadPoolExecutor(os.cpu_count()) as pool, progress.count("hashing", "files", total=len(paths)) as advance:
        found = {}
        for path, digest in zip(paths, pool.map(sha256, paths), strict=True):
            found[path.name] = digest
            advance(1)
        return found


def read_lines(path: Path) -> Iterator[bytes]:
    """Lines of a plain or gzipped file, without line ends.

    Only LF and CRLF end a line: U+0085, U+2028 and their like are characters of the text. A byte-order mark is dropped.
    """
    try:
        with _open(path) as file:
            yield from lines_of(file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{str(path)!r} is damaged: {error}. Copy it again.") from None
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from None


def lines_of(file: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of an open file, as `read_lines` gives them."""
    for number, line in enumerate(file):
        if number == 0:
            line = line.removeprefix(BYTE_ORDER_MARK)
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _table_rows(path: Path) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split(b"\t")
        if len(cells) < 2:
            raise DataError(f"{path.name}, line {number}: one column; a TSV needs source and target, tab-separated.")
        yield _decode(cells[0]), _decode(cells[1])


def _decode(line: bytes) -> str | None:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return None
