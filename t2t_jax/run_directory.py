"""A run directory: what it is made of, and whether it may be continued or used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.data.store import Store
from t2t_jax.errors import ConfigError, RunError
from t2t_jax.files import write_atomically

CONFIG, DATA, CHECKPOINTS, AVERAGED = "config.json", "data.json", "checkpoints", "averaged"
METRICS, REPORT, PAGE = "metrics.jsonl", "report.json", "report.html"


def check(run: Path, experiment: config.Experiment) -> None:
    """Refuse to go on with a run that was trained differently; what has no checkpoint yet may still become anything.

    What does not change the trajectory (mesh, num_steps, logging, …) may differ.

    Raises:
      RunError: every difference is named.
    """
    if (run / CONFIG).exists() and has_checkpoint(run):
        refuse_differences(run, load_config(run), experiment)


def adopt(run: Path, experiment: config.Experiment, store: Store) -> None:
    """Make `run` the directory of `experiment` on the data of `store`, or go on with it.

    Raises:
      RunError: the run was trained on other data, or the directory cannot be written.
    """
    data = run / DATA
    if data.is_file() and has_checkpoint(run):
        before: dict[str, Any] = json.loads(data.read_text(encoding="utf-8"))
        if before["made_from"] != store.manifest["made_from"]:
            raise RunError(f"The text or tokenizer of {str(run)!r} has changed; restore it, or use another --workdir.")
    try:
        run.mkdir(parents=True, exist_ok=True)
        store.copy_to_run(run)
        write_atomically(run / CONFIG, config.to_json(experiment))
    except OSError as error:
        raise RunError(f"The run directory {str(run)!r} cannot be written: {error.strerror or error}.") from None


def has_checkpoint(run: Path) -> bool:
    """Whether training has saved anything in `run`."""
    return any((run / CHECKPOINTS).glob("*"))


def refuse_differences(run: Path, before: config.Experiment, now: config.Experiment) -> None:
    """Raise `RunError` if the two would train differently."""
    old, new = config.trajectory(before), config.trajectory(now)
    differences = [f"{path}={old.get(path)!r} there, {new[path]!r} now" for path in new if old.get(path) != new[path]]
    if differences:
        raise RunError(
            f"{str(run)!r} was made with other settings ({'; '.join(differences)}). Use those, or another --workdir."
        )


def load_config(run: Path) -> config.Experiment:
    """The experiment a run directory belongs to.

    Raises:
      RunError: not a run directory, or its config cannot be read.
    """
    path = run / CONFIG
    if not path.is_file():
        what = "is not a run directory: it has no config.json" if run.is_dir() else "does not exist"
        raise RunError(f"{str(run)!r} {what}.")
    try:
        return config.from_json(path.read_text(encoding="utf-8"))
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        raise RunError(f"{str(path)!r} cannot be used: {error}") from None
