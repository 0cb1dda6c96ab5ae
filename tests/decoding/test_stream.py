import itertools
import threading
from collections.abc import Iterator

import pytest

from t2t_jax.decoding.stream import CHUNK, in_chunks
from t2t_jax.parallel.channel import Channel


def test_everything_comes_through_in_order_in_chunks() -> None:
    sizes = []

    def answer(chunk: list[int]) -> list[int]:
        sizes.append(len(chunk))
        return [2 * i for i in chunk]

    count = 3 * CHUNK + 5
    assert list(in_chunks(iter(range(count)), answer, Channel.alone())) == [2 * i for i in range(count)]
    assert max(sizes) <= CHUNK
    assert list(in_chunks(iter([]), answer, Channel.alone())) == []


def test_an_answer_does_not_wait_for_lines_that_do_not_come() -> None:
    asked = threading.Event()

    def lines() -> Iterator[str]:
        yield "first"
        assert asked.wait(60), "the answer to the first line is what the second waits for"
        yield "second"

    answers = in_chunks(lines(), lambda chunk: chunk, Channel.alone())
    assert next(answers) == "first"
    asked.set()
    assert list(answers) == ["second"]


def test_no_more_is_read_than_is_needed() -> None:
    read = itertools.count()
    answers = in_chunks(read, lambda chunk: chunk, Channel.alone())
    next(answers)
    assert next(read) <= 3 * CHUNK, "an endless stream is not read into memory"


def test_a_failing_source_fails_after_the_lines_before_it() -> None:
    def lines() -> Iterator[int]:
        yield from range(3)
        raise ValueError("the disk is gone")

    answers = in_chunks(lines(), lambda chunk: chunk, Channel.alone())
    assert [next(answers) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="the disk is gone"):
        next(answers)
