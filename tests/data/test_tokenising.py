"""Tokenising in pieces: whatever interrupts it, the files end as they would have."""

import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.config import Data
from t2t_jax.data import tokenising
from t2t_jax.data.sources import Pair
from t2t_jax.data.tokenizer import sample, train
from tests.chaos_prepare import chaos

WORDS = ["a", "b", "c", "d", "e", "f"]
DATA = Data(tokenizer="whitespace", max_length=5, max_length_ratio=3.0)
TOKENIZER = train(DATA, [" ".join(WORDS)])
PAIRS: list[Pair] = [
    tuple(" ".join(WORDS[(i * step) % 6 :][: i % size]) for step, size in ((1, 7), (5, 5)))  # type: ignore[misc]
    for i in range(97)
]


class Interrupted(BaseException):
    pass


def cut_off(count: int) -> Iterator[Pair]:
    yield from PAIRS[:count]
    raise Interrupted


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenising, "CHUNK", 5)
    monkeypatch.setattr(tokenising, "PIECE", 20)


def contents(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in tokenising.FILES]


@settings(max_examples=12)  # each waits for the disk many times
@given(st.lists(st.integers(0, len(PAIRS)), max_size=5))
def test_interruptions_leave_no_trace(moments: list[int]) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        whole, broken = Path(one), Path(other)
        journal = broken / "journal"
        expected = tokenising.tokenise(DATA, iter(PAIRS), TOKENIZER, whole, whole / "journal")
        for moment in moments:
            with pytest.raises(Interrupted):
                tokenising.tokenise(DATA, cut_off(max(moment, _read(journal))), TOKENIZER, broken, journal)
        assert tokenising.tokenise(DATA, iter(PAIRS), TOKENIZER, broken, journal) == expected
        assert contents(broken) == contents(whole)


def _read(journal: Path) -> int:
    return int(json.loads(journal.read_text())["read"]) if journal.exists() else 0


def test_a_piece_that_was_finished_is_not_read_twice(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with pytest.raises(Interrupted):
        tokenising.tokenise(DATA, cut_off(50), TOKENIZER, tmp_path, journal)
    assert _read(journal) == 40
    other = [("f", "f")] * 40 + PAIRS[40:]  # what the first pieces are now does not matter
    tokenising.tokenise(DATA, iter(other), TOKENIZER, tmp_path, journal)
    again = tmp_path / "again"
    again.mkdir()
    tokenising.tokenise(DATA, iter(PAIRS), TOKENIZER, again, again / "journal")
    assert contents(tmp_path) == contents(again)


@given(st.integers(0, 200), st.integers(1, 50))
def test_a_sample_is_spread_evenly_and_all_where_that_is_few(count: int, at_most: int) -> None:
    found = sample(range(count), at_most)
    distance = next(2**n for n in range(20) if len(range(0, count, 2**n)) <= at_most)
    assert found == list(range(0, count, distance))


def test_a_store_whose_making_is_killed_is_the_same(tmp_path: Path) -> None:
    """The short form of tests/chaos_prepare.py."""
    seed = random.SystemRandom().randrange(1 << 16)
    assert chaos(1, random.Random(seed), tmp_path), f"seed {seed}"
