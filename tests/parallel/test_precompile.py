import os
import subprocess
import sys
import threading
import time
from pathlib import Path

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


COMPILES = """
import jax, jax.numpy as jnp
from t2t_jax.parallel import precompile
from t2t_jax.parallel.platform import choose_platform
choose_platform()  # as every command does
precompile.WORTH_KEEPING = 0.0
precompile.keep_executables()
seen = []
jax.monitoring.register_event_listener(lambda name, **_: seen.append(name))
print(float(jax.jit(lambda x: jnp.sin(x @ x).sum())(jnp.ones((8, 8)))))
print(seen.count("/jax/compilation_cache/cache_hits") > 0)
"""


def compile_with(**environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", COMPILES], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    assert "rror" not in done.stderr
    return done.stdout.split()


def test_the_next_process_finds_what_this_one_compiled(tmp_path: Path) -> None:
    value, hit = compile_with(XDG_CACHE_HOME=str(tmp_path))
    assert hit == "False"
    assert compile_with(XDG_CACHE_HOME=str(tmp_path)) == [value, "True"]
    (kind,) = (tmp_path / "t2t_jax" / "executables").iterdir()
    for kept in kind.glob("*-cache"):  # as a crash may leave them
        kept.write_bytes(kept.read_bytes()[:50])
    assert compile_with(XDG_CACHE_HOME=str(tmp_path)) == [value, "False"]


def test_a_folder_of_the_users_choice_is_used(tmp_path: Path) -> None:
    compile_with(XDG_CACHE_HOME=str(tmp_path / "own"), JAX_COMPILATION_CACHE_DIR=str(tmp_path / "chosen"))
    assert not (tmp_path / "own").exists()


def test_a_home_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    compile_with(XDG_CACHE_HOME=str(tmp_path / "file"))
