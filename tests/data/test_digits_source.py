"""Scikit-learn's digits as pairs of text."""

import numpy as np
import pytest

from t2t_jax.config import Data
from t2t_jax.data.sources import open_source

datasets = pytest.importorskip("sklearn.datasets", reason="the images come with scikit-learn")


def test_every_image_is_in_one_split_as_it_is() -> None:
    source = open_source(Data(task="digits", tokenizer="whitespace"))
    pairs = {split: list(source.pairs(split)) for split in ("train", "validation", "test")}  # type: ignore[arg-type]
    assert {split: len(found) for split, found in pairs.items()} == {"train": 1297, "validation": 200, "test": 300}
    found = [pair for part in pairs.values() for pair in part]
    theirs = datasets.load_digits()
    np.testing.assert_array_equal([np.array(image.split(), int) for image, _ in found if image], theirs.data)
    assert [name for _, name in found[:4]] == ["zero", "one", "two", "three"]
    assert len({source.fingerprint(split)[f"digits.{split}"] for split in pairs}) == 3  # type: ignore[arg-type]
