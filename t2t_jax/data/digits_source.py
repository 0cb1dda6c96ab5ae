"""Scikit-learn's handwritten digits as pairs: 64 intensities from 0 to 16, row by row, and the digit's name."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterator

import numpy as np

from t2t_jax.data.sources import Pair, Split
from t2t_jax.errors import DataError

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
VOCABULARY = (*map(str, range(17)), *NAMES)
"""In this order: an image's model takes the place of an entry for its intensity."""
# In the order of the file, whose writers change along the way.
ROWS: dict[Split, slice] = {"train": slice(0, 1297), "validation": slice(1297, 1497), "test": slice(1497, 1797)}


class Digits:
    """The 1,797 images of 8 x 8 pixels that come with scikit-learn."""

    def pairs(self, split: Split) -> Iterator[Pair]:
        images, digits = _load()
        for image, digit in zip(images[ROWS[split]], digits[ROWS[split]], strict=True):
            yield " ".join(map(str, image)), NAMES[digit]

    def fingerprint(self, split: Split) -> dict[str, str]:
        parts = (np.ascontiguousarray(side[ROWS[split]]).tobytes() for side in _load())
        entries = " ".join(VOCABULARY).encode()
        return {f"digits.{split}": hashlib.sha256(b"".join([entries, *parts])).hexdigest()}


def _load() -> tuple[np.ndarray, np.ndarray]:
    """Intensities [N, 64] and digits [N]."""
    try:
        found = importlib.import_module("sklearn.datasets").load_digits()
    except ImportError:
        raise DataError("data: task='digits' takes scikit-learn's images: pip install scikit-learn") from None
    return found.data.astype(np.uint8), found.target.astype(np.uint8)
