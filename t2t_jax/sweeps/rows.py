"""The rows of a sweep as they lie on disk: sweep.json, a run directory for each row and seed, and how far each is."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from t2t_jax import config_fields, run_directory, run_lock, trajectory
from t2t_jax.config import Experiment
from t2t_jax.errors import ConfigError, RunError, UserError
from t2t_jax.files import write_atomically

SWEEP, FORMAT = "sweep.json", 1
STORES = "data"
# Data settings that say how prepared text becomes batches, and where it lies; all others decide what is prepared.
BATCHING = {"source_tokens_per_batch", "target_tokens_per_batch", "max_shapes", "shapes", "store"}
# What says nothing about the scores of a run: where and how it is run.
INCIDENTAL = {"name", "data.directory", "data.store", "data.tokenizer_from", "training.log_every", "training.trackers"}


@dataclass(frozen=True)
class Row:
    """One training run: a row of the table with one seed."""

    name: str
    """The row's, which its other seeds share."""
    seed: int
    experiment: Experiment
    directory: Path
    """Run directory, directly inside the sweep's."""

    @property
    def config_hash(self) -> str:
        """Names the trajectory; seed and all."""
        return trajectory.config_hash(self.experiment)


@dataclass(frozen=True)
class Sweep:
    """Runs in the order of the table; those of one row follow each other, by seed."""

    name: str
    directory: Path
    rows: tuple[Row, ...]
    command: str = ""
    """The one that began it or went on with it last."""


Kind = Literal["done", "failed", "stopped", "running", "queued", "not begun"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class State:
    """How far a run is."""

    kind: Kind
    """stopped: there are checkpoints to go on from. done: the report is that of the row's present settings."""
    step: int = 0
    """The newest finished checkpoint's, or the report's."""
    reason: str | None = None
    """failed: in one line, why. running: who does it."""
    status: int | None = None
    """failed: the exit status, negative for a signal."""


def plan_rows(name: str, directory: Path, experiments: Mapping[str, Experiment], seeds: int = 1) -> Sweep:
    """The runs of a sweep: each row with its own training.seed and the `seeds` - 1 that follow it.

    Raises:
      ConfigError: two rows would be one: by name, once it is a folder's, or by every setting that matters.
    """
    if not experiments:
        raise ConfigError(f"The sweep {name!r} has no rows.")
    if seeds < 1:
        raise ConfigError(f"--seeds {seeds} must be at least 1.")
    rows: list[Row] = []
    slugs: dict[str, str] = {}
    same: dict[str, str] = {}
    for row, own in experiments.items():
        slug = _slug(row)
        if slug in slugs:
            raise ConfigError(f"The rows {slugs[slug]!r} and {row!r} would share the folder {slug!r}; rename one.")
        slugs[slug] = row
        for seed in range(own.training.seed, own.training.seed + seeds):
            training = dataclasses.replace(own.training, seed=seed)
            experiment = dataclasses.replace(own, name=slug, training=training)
            settings = json.dumps(_settings(experiment, {"name"}))
            if settings in same:
                raise ConfigError(
                    f"The rows {same[settings]!r} and {row!r} are the same experiment (seed {seed}, config hash "
                    f"{trajectory.config_hash(experiment)}); leave out one, or what makes them equal."
                )
            same[settings] = row
            rows.append(Row(row, seed, experiment, directory / f"{slug}-{trajectory.config_hash(experiment)}"))
    return Sweep(name, directory, tuple(rows))


def save(sweep: Sweep) -> None:
    """Write sweep.json into the sweep's directory, which is made if need be.

    Raises:
      RunError: the directory cannot be written.
    """
    runs = [
        {
            "row": row.name,
            "seed": row.seed,
            "run": row.directory.name,
            "config_hash": row.config_hash,
            "config": dataclasses.asdict(row.experiment),
        }
        for row in sweep.rows
    ]
    content = {"format": FORMAT, "name": sweep.name, "command": sweep.command, "runs": runs}
    try:
        sweep.directory.mkdir(parents=True, exist_ok=True)
        write_atomically(sweep.directory / SWEEP, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise RunError(
            f"The sweep's directory {str(sweep.directory)!r} cannot be written: {error.strerror or error}."
        ) from None


def load(directory: Path) -> Sweep:
    """Read what `save` has written.

    Raises:
      RunError: no sweep, a damaged one, or one that another version has written.
    """
    path = directory / SWEEP
    if not path.is_file():
        raise RunError(f"{str(directory)!r} is not the directory of a sweep: it has no {SWEEP}.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise RunError(f"{str(path)!r} was written by another version of t2t_jax.")
        rows = tuple(_read_row(directory, run) for run in content["runs"])
        if not isinstance(content["name"], str) or not rows:
            raise ValueError("no name or no rows")
        return Sweep(content["name"], directory, rows, str(content.get("command", "")))
    except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
        raise RunError(f"{str(path)!r} cannot be used: {error}") from None


def row_in(sweep: Sweep, folder: str) -> Row:
    """The run of a sweep that lies in `folder`.

    Raises:
      UserError: there is none.
    """
    for row in sweep.rows:
        if row.directory.name == folder:
            return row
    raise UserError(f"The sweep {str(sweep.directory)!r} has no run {folder!r}.")


def state(row: Row) -> State:
    """How far a run is, from its directory alone; looks only."""
    run = row.directory
    if (who := run_lock.owner(run)) is not None:
        return State("running", _newest(run), who)
    if (report := read_report(row)) is not None:  # then what failed before has been made good
        return State("done", report["steps"])
    if (failure := read_failure(row)) is not None:
        return State("failed", _newest(run), failure["reason"], failure["status"])
    return State("stopped", step) if (step := _newest(run)) else State("not begun")


def read_report(row: Row) -> dict[str, Any] | None:
    """report.json of a run that was trained and scored as the row says; None if there is no such report."""
    report = _read_json(row.directory / run_directory.REPORT)
    if report is None or report.get("config_hash") != row.config_hash or not isinstance(report.get("steps"), int):
        return None
    try:
        there = run_directory.load_config(row.directory)
    except RunError:
        return None
    training = row.experiment.training
    enough = report["steps"] >= training.num_steps or training.patience is not None
    return report if enough and _settings(there, INCIDENTAL) == _settings(row.experiment, INCIDENTAL) else None


def read_failure(row: Row) -> dict[str, Any] | None:
    """Why the run's last attempt failed: reason, status, config_hash, when; None if it did not."""
    failure = _read_json(row.directory / run_directory.FAILURE)
    if failure is None or failure.get("config_hash") != row.config_hash:
        return None
    return failure if {"reason", "status"} <= failure.keys() else None


def record_failure(row: Row, reason: str, status: int) -> None:
    """Keep in the run why it failed."""
    when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    failure = {"reason": reason, "status": status, "config_hash": row.config_hash, "when": when}
    row.directory.mkdir(parents=True, exist_ok=True)
    write_atomically(row.directory / run_directory.FAILURE, json.dumps(failure, indent=1, ensure_ascii=False) + "\n")


def forget_outcome(row: Row) -> None:
    """Take away what an earlier attempt came to; called before a new one, so that none is taken for another's."""
    for name in (run_directory.FAILURE, run_directory.REPORT):
        (row.directory / name).unlink(missing_ok=True)


def experiment_to_run(row: Row) -> Experiment:
    """The row's experiment with its place for prepared data: shared by all runs of the sweep with the same text."""
    experiment = row.experiment
    if experiment.data.store is not None:
        return experiment
    settings = {name: value for name, value in dataclasses.asdict(experiment.data).items() if name not in BATCHING}
    decides = json.dumps([settings, experiment.training.initialise_from], sort_keys=True)
    key = hashlib.sha256(decides.encode()).hexdigest()[:12]
    store = row.directory.parent / STORES / key
    return dataclasses.replace(experiment, data=dataclasses.replace(experiment.data, store=str(store)))


def _read_row(directory: Path, run: Any) -> Row:
    folder = run["run"]
    if not re.fullmatch(r"[\w-][\w.-]*", folder):
        raise ValueError(f"{folder!r} is not the name of a folder in the sweep's directory.")
    row = Row(run["row"], run["seed"], config_fields.from_json(json.dumps(run["config"])), directory / folder)
    if not isinstance(row.name, str) or row.seed != row.experiment.training.seed:
        raise ValueError(f"the run {folder!r} has another seed than its config, or no name.")
    if row.config_hash != run["config_hash"]:
        raise ValueError(f"the config of {folder!r} has not the hash {run['config_hash']!r}.")
    return row


def _slug(name: str) -> str:
    slug = re.sub(r"[^\w.-]+", "-", name).strip("-.")
    if not slug:
        raise ConfigError(f"The row {name!r} needs a letter or a digit in its name, which names its folder.")
    return slug


def _settings(experiment: Experiment, without: set[str]) -> dict[str, Any]:
    """Every setting but some, two ways to say the same thing being equal."""
    flat = config_fields.flatten(experiment) | trajectory.fields(experiment)
    return {path: value for path, value in flat.items() if path not in without and not path.startswith("mesh.")}


def _newest(run: Path) -> int:
    return max(run_directory.finished_steps(run), default=0)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
