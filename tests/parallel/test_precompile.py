import threading
import time

import pytest

from t2t_jax.parallel.precompile import Precompiled, background_compiler


def test_keys_are_compiled_once_in_the_given_order() -> None:
    order = []
    with background_compiler() as background:
        ready = Precompiled(lambda key: order.append(key) or (lambda: key), ["b", "a", "c"], background)
        for key in ("b", "a", "c", "c"):
            assert ready[key]() == key
    assert order == ["b", "a", "c"]


def test_what_is_needed_now_does_not_wait_for_what_is_not() -> None:
    release = threading.Event()

    def compile_one(key: str):
        if key == "slow":
            release.wait(60)
        return lambda: key

    with background_compiler() as background:
        ready = Precompiled(compile_one, ["slow", "rare"], background)
        assert ready["rare"]() == "rare"
        release.set()
        assert ready["slow"]() == "slow"


def test_a_shape_outside_the_announced_set_is_an_error() -> None:
    with background_compiler() as background:
        ready = Precompiled(lambda key: key, [1, 2], background)
        with pytest.raises(RuntimeError, match=r"shape 3 is not among the announced \['1', '2'\]"):
            ready[3]


def test_a_failed_compilation_is_told_where_it_is_needed() -> None:
    def compile_one(key: int):
        raise ValueError("no such kernel")

    with background_compiler() as background:
        ready = Precompiled(compile_one, [1], background)
        with pytest.raises(ValueError, match="no such kernel"):
            ready[1]


def test_leaving_gives_up_what_was_not_started() -> None:
    begun, compiled = threading.Event(), []

    def compile_one(key: int):
        begun.set()
        time.sleep(0.05)
        compiled.append(key)

    with background_compiler() as background:
        Precompiled(compile_one, range(1000), background)
        begun.wait(60)
    assert len(compiled) < 1000
