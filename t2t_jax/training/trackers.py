"""Where a run's logged numbers go besides metrics.jsonl: TensorBoard, Weights & Biases, MLflow.

All keep what they have in the run directory unless the environment says otherwise (WANDB_MODE, MLFLOW_TRACKING_URI).
A resumed run goes on in the same tracked run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from t2t_jax import config, config_fields
from t2t_jax.errors import ConfigError
from t2t_jax.files import write_atomically

Entry = dict[str, float | int]
PROJECT = "t2t_jax"


class Tracker(Protocol):
    """Takes logged steps one after another; after a resumption some of them for a second time."""

    def write(self, entry: Entry) -> None:
        """Record one logged step; `entry` has at least "step"."""

    def close(self, whole: bool) -> None:
        """Nothing more comes; `whole` unless an error ended it."""


class TensorBoard:
    """Event files in the run directory."""

    def __init__(self, experiment: config.Experiment, run: Path, resumed_at: int):
        from tensorboardX import SummaryWriter  # takes a second to import, which `--help` should not

        # Names end in the second they were made in, which two short calls may share.
        self._events = SummaryWriter(str(run), purge_step=resumed_at + 1, filename_suffix=f".{resumed_at}")

    def write(self, entry: Entry) -> None:
        for name, value in _numbers(entry):
            self._events.add_scalar(name, value, int(entry["step"]))

    def close(self, whole: bool) -> None:
        self._events.close()


class WeightsAndBiases:
    """A run of the project t2t_jax: offline in RUN/wandb, for `wandb sync` to send, unless WANDB_MODE is set."""

    def __init__(self, experiment: config.Experiment, run: Path, resumed_at: int):
        import wandb

        folder = run.resolve() / "wandb"
        folder.mkdir(exist_ok=True)
        os.environ.setdefault("WANDB_CACHE_DIR", str(folder / "cache"))
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=experiment.name,
            id=_kept(folder / "id", lambda: secrets.token_hex(4)),
            resume="allow",
            mode=os.environ.get("WANDB_MODE", "offline"),
            dir=str(folder.parent),
            config=config_fields.flatten(experiment),
            settings=wandb.Settings(console="off", silent=True),
        )

    def write(self, entry: Entry) -> None:
        self._run.log(dict(_numbers(entry)), step=int(entry["step"]))

    def close(self, whole: bool) -> None:
        self._run.finish(exit_code=0 if whole else 1)


class MLflow:
    """A run of the experiment t2t_jax: in RUN/mlflow.db, unless MLFLOW_TRACKING_URI names a server or another place."""

    def __init__(self, experiment: config.Experiment, run: Path, resumed_at: int):
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        self._metric = Metric
        run = run.resolve()
        place = os.environ.get("MLFLOW_TRACKING_URI")
        self._client = MlflowClient(place or f"sqlite:///{run / 'mlflow.db'}")

        def begin() -> str:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            found = self._client.get_experiment_by_name(name)
            artifacts = None if place else (run / "mlartifacts").as_uri()  # none are written
            parent = found.experiment_id if found else self._client.create_experiment(name, artifacts)
            made = self._client.create_run(parent, run_name=experiment.name)
            params = [Param(path, str(value)) for path, value in config_fields.flatten(experiment).items()]
            self._client.log_batch(made.info.run_id, params=params)
            return str(made.info.run_id)

        self._id = _kept(run / "mlflow.id", begin)
        self._client.update_run(self._id, status="RUNNING")

    def write(self, entry: Entry) -> None:
        now = round(1000 * time.time())
        metrics = [self._metric(name, value, now, int(entry["step"])) for name, value in _numbers(entry)]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self, whole: bool) -> None:
        self._client.set_terminated(self._id, status="FINISHED" if whole else "FAILED")


TRACKERS: dict[str, tuple[type[TensorBoard] | type[WeightsAndBiases] | type[MLflow], str]] = {
    "tensorboard": (TensorBoard, "tensorboardX"),
    "wandb": (WeightsAndBiases, "wandb"),
    "mlflow": (MLflow, "mlflow"),
}
"""By the name in `training.trackers`, with the module that each needs."""


def check(names: Sequence[str]) -> None:
    """Refuse a tracker whose package is absent, before anything else is done.

    Raises:
      ConfigError: names the tracker and what to install.
    """
    for name in names:
        if importlib.util.find_spec(TRACKERS[name][1]) is None:
            raise ConfigError(f"training: trackers={name!r} needs a package that is not here: pip install '.[{name}]'.")


def start(experiment: config.Experiment, run: Path, resumed_at: int) -> list[Tracker]:
    """Those that the experiment names, each once."""
    return [TRACKERS[name][0](experiment, run, resumed_at) for name in dict.fromkeys(experiment.training.trackers)]


def _numbers(entry: Entry) -> list[tuple[str, float | int]]:
    return [(name, value) for name, value in entry.items() if name != "step"]


def _kept(path: Path, make: Callable[[], str]) -> str:
    """The name that a tracked run was given when it began, which it keeps."""
    with contextlib.suppress(FileNotFoundError):
        return path.read_text(encoding="utf-8")
    name = make()
    write_atomically(path, name)
    return name
