import os
import queue
import random
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from t2t_jax.parallel.channel import Channel, gather_at
from t2t_jax.training.interruption import StopRequests


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_alone_the_next_step_is_the_last(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with StopRequests(Channel.alone()) as requests:
        requests.begin(7)
        assert requests.step is None
        os.kill(os.getpid(), number)
        assert requests.received is number
        requests.begin(8)
        requests.begin(9)
        assert requests.step == 8
        assert requests.anywhere()
    assert signal.getsignal(number) is before


def test_a_second_interrupt_interrupts_at_once() -> None:
    with StopRequests(Channel.alone()) as requests:
        os.kill(os.getpid(), signal.SIGINT)
        assert requests.received is signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("seed", range(8))
def test_all_processes_stop_after_the_same_step_wherever_they_are(seed: int) -> None:
    """Three loops at different speeds, as threads; signals come to one or more of them, also before it has begun."""
    chance = random.Random(seed)
    with socket.create_server(("", 0)) as server:
        address = ("127.0.0.1", server.getsockname()[1])
    signalled = chance.sample(range(3), chance.randint(1, 3))
    moments = [chance.choice([0, 3, 40]) for _ in range(3)]
    start = chance.choice([0, 500])
    finished: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    furthest = threading.Barrier(3)

    def loop(number: int) -> None:
        channel = gather_at(address, number, 3, 30, print)
        with StopRequests(channel) as requests:
            k = start
            while requests.step is None or k < requests.step:
                if number in signalled and k - start == moments[number]:
                    requests._note(signal.SIGTERM, None)  # in a thread no signal arrives
                requests.begin(k + 1)
                k += 1
                time.sleep(random.random() * 0.002 * (number + 1))
            assert requests.anywhere()
            finished.put((number, k))
            furthest.wait(30)
        channel.close()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(loop, range(3)))
    ends = dict(finished.get() for _ in range(3))
    assert len(set(ends.values())) == 1, ends
    assert ends[0] > start
