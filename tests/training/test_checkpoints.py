import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax import seal
from t2t_jax.errors import RunError
from t2t_jax.training.checkpoints import (
    Checkpoints,
    EarlyStopping,
    Retention,
    average,
    load_averaged,
    save_averaged,
)
from t2t_jax.training.state import TrainState


def state_of(step: int) -> TrainState:
    """A state whose every number tells its step."""
    params = {"a": {"w": jnp.arange(6.0).reshape(2, 3) + step}, "b": jnp.full(300, step / 7)}
    return TrainState(jnp.asarray(step, jnp.int32), params, (jax.tree.map(jnp.ones_like, params), jnp.asarray(step)))


ABSTRACT = jax.eval_shape(lambda: state_of(0))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("run")
    with Checkpoints(run, Retention(2, every=10)) as checkpoints:
        for step in (10, 20, 30):
            checkpoints.save(step, state_of(step), EarlyStopping(1.0 / step, step))
        checkpoints.wait()
    return run


def equal(one: object, other: object) -> bool:
    return jax.tree.all(jax.tree.map(np.array_equal, one, other))


def files_of(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def test_the_newest_come_back_exactly_and_older_ones_go(saved: Path) -> None:
    with Checkpoints(saved, Retention(2, every=10)) as checkpoints:
        assert checkpoints.steps == [20, 30]
        state, stopping = checkpoints.newest(ABSTRACT)  # type: ignore[misc]
        assert equal(state, state_of(30))
        assert stopping == EarlyStopping(1 / 30, 30)
        assert equal(checkpoints.params(20), state_of(20).params)


def test_state_may_change_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    change = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf * 0 - 1, tree), donate_argnums=0)
    state = state_of(5)
    with Checkpoints(tmp_path, Retention(1, every=5)) as checkpoints:
        checkpoints.save(5, state, EarlyStopping())
        change(state)
        checkpoints.wait()
        assert equal(checkpoints.params(5), state_of(5).params)


def test_average_is_the_mean_and_is_kept(saved: Path, tmp_path: Path) -> None:
    with Checkpoints(saved) as checkpoints:
        params, steps = average(checkpoints, 5)
    assert steps == [20, 30], "with fewer written, all of them"
    np.testing.assert_array_equal(params["a"]["w"], np.arange(6.0).reshape(2, 3) + 25)
    save_averaged(tmp_path, params, steps)
    save_averaged(tmp_path, params, steps)
    again, steps = load_averaged(tmp_path, 1)
    assert equal(again, params)
    assert steps == [20, 30]


@pytest.mark.parametrize("how", ["flip", "truncate", "remove"])
def test_every_file_damaged_in_turn_is_noticed_and_the_one_before_is_used(
    saved: Path, tmp_path: Path, how: str
) -> None:
    for number, name in enumerate(files_of(saved / "checkpoints" / "30")):
        run = tmp_path / str(number)
        shutil.copytree(saved, run)
        file = run / "checkpoints" / "30" / name
        content = file.read_bytes()
        if how == "remove":
            file.unlink()
        elif how == "truncate":
            file.write_bytes(content[: len(content) // 2])
        else:
            middle = len(content) // 2
            file.write_bytes(
                content[:middle] + bytes([content[middle] ^ 1] if content else b"x") + content[middle + 1 :]
            )
        if how == "truncate" and not content:
            continue
        with Checkpoints(run, Retention(2, every=10)) as checkpoints:
            state, _ = checkpoints.newest(ABSTRACT)  # type: ignore[misc]
        assert equal(state, state_of(20)), f"{name} {how}"


def test_damage_is_put_aside_so_that_the_step_can_be_saved_again(saved: Path, tmp_path: Path, capsys) -> None:
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    next((run / "checkpoints" / "30").rglob("d/*")).write_bytes(b"rubbish")
    with Checkpoints(run, Retention(2, every=10)) as checkpoints:
        assert checkpoints.newest(ABSTRACT)[0].step == 20  # type: ignore[index]
        assert "checkpoint of step 30 is damaged" in capsys.readouterr().err
        checkpoints.save(30, state_of(30), EarlyStopping())
        checkpoints.wait()
        assert checkpoints.steps == [20, 30]
    assert (run / "checkpoints" / "30.damaged").is_dir()


def test_all_damaged_is_refused_not_started_over(saved: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    for step in ("20", "30"):
        next((run / "checkpoints" / step).rglob("d/*")).write_bytes(b"rubbish")
    with Checkpoints(run) as checkpoints, pytest.raises(RunError, match="damaged"):
        checkpoints.params(20)
    for _ in range(2):  # and not the second time either
        with (
            Checkpoints(run, Retention(2, every=10)) as checkpoints,
            pytest.raises(RunError, match="Every checkpoint"),
        ):
            checkpoints.newest(ABSTRACT)


def test_a_checkpoint_in_between_neither_counts_nor_stays(tmp_path: Path) -> None:
    """A run that was stopped keeps and averages what an undisturbed one does."""
    with Checkpoints(tmp_path, Retention(2, every=10)) as checkpoints:
        for step, kept in ((10, [10]), (20, [10, 20]), (27, [10, 20, 27]), (28, [10, 20, 28]), (30, [20, 30])):
            checkpoints.save(step, state_of(step), EarlyStopping())
            checkpoints.wait()
            assert checkpoints.steps == kept


def test_parameters_can_be_read_where_other_devices_are(tmp_path: Path) -> None:
    """Saved from four devices, read on one."""
    program = """
import sys
from collections.abc import Iterator
from pathlib import Path
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from t2t_jax.training.checkpoints import Checkpoints, EarlyStopping, Retention
from t2t_jax.training.state import TrainState
rows = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
state = TrainState(jnp.asarray(1), {"w": jax.device_put(jnp.arange(8.0), rows)}, (jnp.ones(3),))
with Checkpoints(Path(sys.argv[1]), Retention(1, every=1)) as checkpoints:
    checkpoints.save(1, state, EarlyStopping())
    checkpoints.wait()
"""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, env=environment, cwd=root)
    with Checkpoints(tmp_path) as checkpoints:
        params = checkpoints.params(1)
    np.testing.assert_array_equal(params["w"], np.arange(8.0))


def test_unfinished_checkpoint_does_not_exist(saved: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(saved, run)
    (run / "checkpoints" / "30" / seal.SEAL).unlink()
    with Checkpoints(run) as checkpoints:
        assert checkpoints.steps == [20]
    assert (run / "checkpoints" / "30").is_dir(), "a reader removes nothing"
    with Checkpoints(run, Retention(2, every=10)) as checkpoints:
        assert checkpoints.steps == [20]
        checkpoints.save(30, state_of(30), EarlyStopping())
        checkpoints.wait()
        assert checkpoints.steps == [20, 30]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_a_full_disk_is_a_sentence_and_the_last_checkpoint_stays(small_disk: Path) -> None:
    bulky = state_of(40)._replace(optimizer=jax.random.normal(jax.random.key(0), (1 << 19,)))
    with Checkpoints(small_disk, Retention(2, every=10)) as checkpoints:
        checkpoints.save(30, state_of(30), EarlyStopping(0.5, 1))
        told = r"step 40 could not be written \(the disk is full\); the last whole one is step 30"
        with pytest.raises(RunError, match=told):  # noqa: PT012
            checkpoints.save(40, bulky, EarlyStopping())  # either may notice
            checkpoints.wait()
    with Checkpoints(small_disk, Retention(2, every=10)) as checkpoints:
        state, stopping = checkpoints.newest(ABSTRACT)  # type: ignore[misc]
    assert equal(state, state_of(30))
    assert stopping == EarlyStopping(0.5, 1)


def test_early_stopping_counts_validations_without_a_better_loss() -> None:
    stopping = EarlyStopping()
    for loss, expected in ((3.0, 0), (2.0, 0), (2.0, 1), (2.5, 2), (1.0, 0)):
        stopping = stopping.after(loss)
        assert stopping.stale == expected
    assert stopping.best_loss == 1.0
