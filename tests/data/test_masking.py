"""Gaps: which, how many, what stands in them, and that whoever reads a row sees the same."""

import numpy as np
import pytest

from t2t_jax.data.masking import MASK_ID, Masking
from t2t_jax.symbols import EOS_ID, PAD_ID

VOCABULARY = 50
RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(1, 40, 400)
PLACE = np.arange(41)
SENTENCES = np.where(LENGTHS[:, None] > PLACE, RNG.integers(4, VOCABULARY, (400, 41)), PAD_ID).astype(np.int32)
SENTENCES[np.arange(400), LENGTHS] = EOS_ID
ROWS = np.arange(400)
MASKING = Masking(VOCABULARY)
READ, ASKED = MASKING(SENTENCES, 7, 3, ROWS)


TODAY = (
    [[10, 11, 12, 13, 2, 15, 16, 17], [2, 19, 20, 21, 22, 23, 24, 25]],
    [[0, 0, 0, 0, 14, 0, 0, 0], [18, 0, 0, 0, 0, 0, 0, 0]],
)


def test_a_share_of_each_sentences_tokens_is_asked_for() -> None:
    asked = ASKED != PAD_ID
    np.testing.assert_array_equal(asked.sum(axis=1), np.maximum(np.rint(0.15 * LENGTHS), 1))
    np.testing.assert_array_equal(ASKED[asked], SENTENCES[asked])
    np.testing.assert_array_equal(READ[~asked], SENTENCES[~asked])
    assert not np.any(asked & ((SENTENCES == EOS_ID) | (SENTENCES == PAD_ID)))
    long = LENGTHS > 20
    places = np.nonzero(asked[long])[1] / LENGTHS[long][np.nonzero(asked[long])[0]]
    assert np.mean(places) == pytest.approx(0.5, abs=0.03), "anywhere alike"


def test_eight_in_ten_are_hidden_and_one_is_another() -> None:
    many = np.tile(SENTENCES[LENGTHS > 20], (20, 1))
    read, asked = MASKING(many, 7, 4, np.arange(len(many)))
    there = asked != PAD_ID
    hidden, kept = read[there] == MASK_ID, read[there] == asked[there]
    assert np.mean(hidden) == pytest.approx(0.8, abs=0.01)
    assert np.mean(kept) == pytest.approx(0.1 + 0.1 / (VOCABULARY - 4), abs=0.01)
    assert set(read[there][~hidden & ~kept]) == set(range(4, VOCABULARY))


def test_seed_batch_and_place_decide() -> None:
    again = MASKING(SENTENCES, 7, 3, ROWS)
    np.testing.assert_array_equal(again, (READ, ASKED))
    some = np.array([0, 5, 399])
    np.testing.assert_array_equal(MASKING(SENTENCES[some], 7, 3, some), (READ[some], ASKED[some]))
    for other in (MASKING(SENTENCES, 8, 3, ROWS), MASKING(SENTENCES, 7, 4, ROWS), MASKING(SENTENCES, 7, 3, ROWS + 1)):
        assert np.mean((other[1] != PAD_ID) == (ASKED != PAD_ID)) < 0.9


def test_the_draws_are_those_of_today() -> None:
    """A run goes on elsewhere only if they never change."""
    read, asked = Masking(100)(np.arange(10, 26, dtype=np.int32).reshape(2, 8), 1, 2, np.array([0, 1]))
    assert (read.tolist(), asked.tolist()) == TODAY
