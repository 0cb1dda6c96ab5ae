"""Real sockets; the processes of these runs are threads."""

import queue
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from t2t_jax.errors import RunError
from t2t_jax.parallel.channel import Channel, Loss, gather_at

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


Losses = queue.SimpleQueue[tuple[int, Loss]]


def meet(count: int, lost: Losses | None = None) -> list[Channel]:
    """The channels of `count` processes that have met; losses come as (who noticed, what)."""
    lost = lost or queue.SimpleQueue()
    address = ("127.0.0.1", free_port())

    def join(number: int) -> Channel:
        return gather_at(address, number, count, 30, lambda loss: lost.put((number, loss)))

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(join, range(count)))


def in_all(channels: list[Channel], action: Callable[[Channel], object]) -> list[object]:
    with ThreadPoolExecutor(len(channels)) as pool:
        return list(pool.map(action, channels))


@pytest.mark.parametrize("count", [2, 3, 5])
def test_an_exchange_gives_everyone_everything_in_order(count: int) -> None:
    lost: Losses = queue.SimpleQueue()
    channels = meet(count, lost)
    for turn in range(3):
        values = in_all(channels, lambda c, turn=turn: c.exchange([c.number, turn, "ü\u2028\n"]))
        assert values == [[[number, turn, "ü\u2028\n"] for number in range(count)]] * count
    large = "x" * (5 << 20)
    assert in_all(channels, lambda c: c.exchange(large)[-1] == large) == [True] * count
    in_all(channels, Channel.close)
    assert lost.empty(), "who leaves with the others is not lost"


def test_alone_is_an_exchange_with_oneself() -> None:
    channel = Channel.alone()
    assert channel.exchange({"a": 1}) == [{"a": 1}]
    assert channel.first
    channel.close()


def test_messages_that_come_before_their_handler_are_kept() -> None:
    channels = meet(2)
    for i in range(3):
        channels[1].send("note", i)
    in_all(channels, Channel.exchange)
    heard: list[tuple[int, int]] = []
    channels[0].handle("note", lambda sender, value: heard.append((sender, value)))
    channels[1].send("note", 3)
    in_all(channels, Channel.exchange)
    assert heard == [(1, 0), (1, 1), (1, 2), (1, 3)]
    in_all(channels, Channel.close)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_failure_reaches_all_others_with_its_reason(failing: int) -> None:
    lost: Losses = queue.SimpleQueue()
    channels = meet(3, lost)
    channels[failing].fail("no text there", 2)
    told = sorted(lost.get(timeout=20) for _ in range(2))
    assert told == [(i, Loss(failing, "no text there", 2)) for i in range(3) if i != failing]


@pytest.mark.parametrize("dying", [0, 2])
def test_a_process_that_is_killed_is_noticed_by_all_others(dying: int) -> None:
    address = ("127.0.0.1", free_port())
    program = f"""
import os, signal
from t2t_jax.parallel.channel import gather_at
gather_at({address}, {dying}, 3, 60, print).exchange()
os.kill(os.getpid(), signal.SIGKILL)
"""
    lost: Losses = queue.SimpleQueue()

    def join(number: int) -> None:
        gather_at(address, number, 3, 60, lambda loss: lost.put((number, loss))).exchange()

    others = [number for number in range(3) if number != dying]
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT), ThreadPoolExecutor(2) as pool:
        list(pool.map(join, others))
        told = sorted(lost.get(timeout=20) for _ in others)
    assert told == [(number, Loss(dying, None, 1)) for number in others]


def test_strangers_are_turned_away() -> None:
    address = ("127.0.0.1", free_port())
    with ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        first = pool.submit(gather_at, address, 0, 2, 30, print)
        for rubbish in (b"GET / HTTP/1.1\r\n\r\n", struct.pack("!Q", 2) + b"[]", struct.pack("!Q", 1 << 40)):
            while True:
                try:
                    stranger = stack.enter_context(socket.create_connection(address, timeout=5))
                    break
                except ConnectionRefusedError:
                    time.sleep(0.01)
            stranger.sendall(rubbish)
        second = pool.submit(gather_at, address, 1, 2, 30, print)
        channels = [first.result(), second.result()]
    assert in_all(channels, Channel.exchange) == [[None, None]] * 2
    in_all(channels, Channel.close)


@pytest.mark.parametrize(
    ("number", "count", "sentence"),
    [(1, 3, "Process 1 was told of 3 processes, process 0 of 2"), (0, 2, "cannot listen")],
)
def test_processes_that_do_not_agree_are_told(number: int, count: int, sentence: str) -> None:
    address = ("127.0.0.1", free_port())
    complaints: list[str] = []

    def join(number: int, count: int) -> None:
        try:
            gather_at(address, number, count, 2, print)
        except RunError as error:
            complaints.append(str(error))

    threads = [threading.Thread(target=join, args=who) for who in ((0, 2), (number, count))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert any(sentence in complaint for complaint in complaints), complaints


def test_who_does_not_come_is_named() -> None:
    with pytest.raises(RunError, match=r"Of 3 processes, 1, 2 did not come to 127\.0\.0\.1:\d+ in time"):
        gather_at(("127.0.0.1", free_port()), 0, 3, 0.2, print)
    with pytest.raises(RunError, match=r"Process 2 found no process 0 at 127\.0\.0\.1:\d+; is it running"):
        gather_at(("127.0.0.1", free_port()), 2, 3, 0.2, print)
