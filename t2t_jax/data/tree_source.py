"""Treebanks as pairs: of each tree the sentence, and its tokens (`(S (NP DT NN )NP … )S`) with spaces between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from t2t_jax.data.sources import EMBEDDED_DIRECTORY, Pair, Split, digests, read_lines
from t2t_jax.errors import DataError, suggestion
from t2t_jax.parsing.linear import tokens_of
from t2t_jax.parsing.trees import normalised, read_trees, words

ENDINGS = (".trees", ".mrg", "")

EMBEDDED_TREES: tuple[Path, dict[Split, str]] = (
    EMBEDDED_DIRECTORY,
    {"train": "gum.train", "validation": "gum.valid", "test": "gum.test"},
)


class TreeFiles:
    """A folder with `STEM.trees` (or `STEM.mrg`, or a file named STEM) per split, plain or gzipped, in Penn brackets.

    Trees are normalised: no empty elements, no function tags. Those without a word are left out.
    """

    def __init__(self, directory: Path, stems: dict[Split, str]):
        if not directory.is_dir():
            raise DataError(f"There is no folder {str(directory)!r}; give the folder of the trees as --data.directory.")
        self.directory, self.stems = directory, stems

    def pairs(self, split: Split) -> Iterator[Pair]:
        path = self._file(split)
        for tree in read_trees(_text(path), path.name):
            if (plain := normalised(tree)) is not None:
                yield " ".join(words(plain)), " ".join(tokens_of(plain))

    def fingerprint(self, split: Split) -> dict[str, str]:
        return digests([self._file(split)])

    def _file(self, split: Split) -> Path:
        stem = self.stems[split].removesuffix(".gz")
        names = [f"{stem}{ending}{packed}" for ending in ENDINGS for packed in ("", ".gz")]
        try:
            found = next((self.directory / name for name in names if (self.directory / name).is_file()), None)
            if found is None:
                near = suggestion(names[0], [path.name for path in self.directory.iterdir()])
                raise DataError(
                    f"{split} trees: {str(self.directory)!r} has no {stem}.trees, {stem}.mrg or {stem}, gzipped or not."
                    f"{near}"
                )
        except OSError as error:
            raise DataError(f"{str(self.directory)!r} cannot be read: {error.strerror or error}.") from None
        return found


def _text(path: Path) -> Iterator[str]:
    """The lines of a file of trees, every one of which has to be UTF-8."""
    for number, line in enumerate(read_lines(path), start=1):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{path.name}, line {number:,}: the bytes are not UTF-8.") from None
