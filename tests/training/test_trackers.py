"""What trackers keep of a run, across a resumption, read back by their own tools."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from t2t_jax import config, trajectory
from t2t_jax.errors import ConfigError
from t2t_jax.training import trackers
from t2t_jax.training.metrics import MetricsWriter, read


def experiment(*names: Any) -> config.Experiment:
    return config.Experiment("tracked", training=config.Training(trackers=names))


def log_and_resume(run: Path, tracked: config.Experiment) -> None:
    """Steps 10, 20, 30 are logged; a crash takes the run back to step 20, from where 30 is done again, and 40."""
    for resumed_at, steps in ((0, (10, 20, 30)), (20, (30, 40))):
        with MetricsWriter(run, resumed_at, trackers.start(tracked, run, resumed_at)) as writer:
            for step in steps:
                writer.write({"step": step, "loss": 100 / step})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory, in a process that has told no tracker where to keep things."""
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_CACHE_DIR", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def test_tensorboard_by_default(run: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event

    log_and_resume(run, config.Experiment())
    scalars, purged = [], set()
    for path in run.glob("events.out.tfevents.*"):
        data = path.read_bytes()
        while data:  # length, its check sum, an event, its check sum
            (length,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]
            scalars += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
            if event.session_log.status == event.session_log.START:
                purged.add(event.step)
    assert {step for step, *_ in scalars} == {10, 20, 30, 40}
    assert (20, "loss", 5.0) in scalars
    assert purged == {1, 21}, "TensorBoard drops what comes from these steps on in earlier files"
    assert [entry["step"] for entry in read(run)] == [10, 20, 30, 40]


def test_none_at_all(run: Path) -> None:
    log_and_resume(run, experiment())
    assert [path.name for path in run.iterdir()] == ["metrics.jsonl"]


def test_mlflow_goes_on_in_the_same_run(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    from mlflow.tracking import MlflowClient

    log_and_resume(run, experiment("mlflow"))
    client = MlflowClient(f"sqlite:///{run / 'mlflow.db'}")
    found = client.get_experiment_by_name("t2t_jax")
    assert found is not None
    (tracked,) = client.search_runs([found.experiment_id])
    assert (tracked.info.run_name, tracked.info.status) == ("tracked", "FINISHED")
    assert tracked.data.params["model.d_model"] == "512"
    history = {(metric.step, metric.value) for metric in client.get_metric_history(tracked.info.run_id, "loss")}
    assert history == {(10, 10.0), (20, 5.0), (30, 100 / 30), (40, 2.5)}
    assert {path.name for path in tmp_path.iterdir()} <= {"run", "home"}


def log_records(data: bytes) -> Iterator[bytes]:
    """The records of a wandb file: LevelDB's log format, in blocks of 32 KiB, after seven bytes of its own."""
    place, whole = 7, b""
    while place < len(data):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # all of a record, or its last part
            yield whole
            whole = b""


def test_wandb_goes_on_in_the_same_run_offline(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    from wandb.proto.wandb_internal_pb2 import Record

    log_and_resume(run, experiment("wandb"))
    (name,) = {path.name for path in (run / "wandb").rglob("run-*.wandb")}
    assert name == f"run-{(run / 'wandb' / 'id').read_text()}.wandb"
    logged = []
    for path in sorted((run / "wandb").rglob(name)):
        records: list[Any] = []
        while not any(record.HasField("exit") for record in records):  # wandb's own process writes it, in its own time
            time.sleep(0.1)
            records = [Record.FromString(data) for data in log_records(path.read_bytes())]
        for record in records:
            if record.HasField("history"):
                items = {(item.key or item.nested_key[0]): json.loads(item.value_json) for item in record.history.item}
                logged.append((items["_step"], items["loss"]))
    assert logged == [(10, 10.0), (20, 5.0), (30, 100 / 30), (30, 100 / 30), (40, 2.5)]
    assert {path.name for path in tmp_path.iterdir()} <= {"run", "home"}
    assert not list((tmp_path / "home").rglob("*.log"))


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_an_absent_package_is_named_with_its_extra(name: str) -> None:
    if importlib.util.find_spec(name) is not None:
        pytest.skip(f"{name} is installed")
    with pytest.raises(
        ConfigError, match=rf"trackers='{name}' needs a package that is not here: pip install '.\[{name}\]'"
    ):
        trackers.check(("tensorboard", name))


def test_trackers_are_no_part_of_the_trajectory() -> None:
    assert trajectory.config_hash(experiment("mlflow")) == trajectory.config_hash(config.Experiment("other"))
    with pytest.raises(ConfigError, match="trackers"):
        dataclasses.replace(config.Training(), trackers=("neptune",))
