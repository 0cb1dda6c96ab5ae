"""A run directory: what it is made of, and whether it may be continued or used."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from t2t_jax import config, config_fields, trajectory
from t2t_jax.data.sources import Split, read_lines
from t2t_jax.data.store import SIDES, Store
from t2t_jax.data.tokenizer import FILES
from t2t_jax.errors import ConfigError, RunError
from t2t_jax.files import write_atomically
from t2t_jax.seal import is_sealed

CONFIG, DATA, CHECKPOINTS, AVERAGED = "config.json", "data.json", "checkpoints", "averaged"
BATCHES = "batches.json"
TEXTS = "translations"
METRICS, CALLS, REPORT, PAGE = "metrics.jsonl", "calls.jsonl", "report.json", "report.html"
LOG, FAILURE = "log.txt", "failure.json"  # of a run that a sweep has started


def check(run: Path, experiment: config.Experiment, origin: dict[str, Any]) -> None:
    """Refuse a directory that `experiment` on the data of `origin` may not go on in; touches nothing.

    What has no checkpoint yet may still become anything. Afterwards the trajectory is fixed; mesh, logging and the like
    may differ, and `num_steps` may grow.

    Raises:
      RunError: a folder of something else, or a run that was trained differently; every difference is named.
    """
    if not run.is_dir():
        return
    if not (run / CONFIG).is_file():
        there = {path.name for path in run.iterdir() if not path.name.startswith(".")}
        foreign = sorted(there - {"data", "lock", LOG, FAILURE})
        if foreign:
            raise RunError(f"{str(run)!r} holds something else than a run ({foreign[0]}, …); use another --workdir.")
        return
    before = load_config(run)
    done = finished_steps(run)
    if not done:
        return
    refuse_differences(run, before, experiment)
    if _read_manifest(run)["made_from"] != origin:
        raise RunError(f"The text or tokenizer of {str(run)!r} has changed; restore it, or use another --workdir.")
    if experiment.training.num_steps < done[-1]:
        wanted = experiment.training.num_steps
        raise RunError(f"{str(run)!r} has {done[-1]:,} steps already; num_steps={wanted} can grow, not shrink.")


def adopt(run: Path, experiment: config.Experiment, store: Store) -> None:
    """Make `run` the directory of `experiment`, with its settings, manifest, tokenizer and evaluation text.

    Raises:
      RunError: the directory cannot be written.
    """
    try:
        texts = run / TEXTS
        texts.mkdir(parents=True, exist_ok=True)
        for split, side in itertools.product(("validation", "test"), SIDES):
            write_atomically(texts / f"{split}.{side}", (store.directory / f"{split}.{side}").read_bytes())
        kept = store.tokenizer.save(run)
        for other in set(FILES) - {kept.name}:  # of settings that were never trained
            (run / other).unlink(missing_ok=True)
        write_atomically(run / DATA, json.dumps(store.manifest, indent=2, ensure_ascii=False) + "\n")
        write_atomically(run / CONFIG, config_fields.to_json(experiment))
    except OSError as error:
        raise RunError(f"The run directory {str(run)!r} cannot be written: {error.strerror or error}.") from None


def keep_schemes(run: Path, schemes: list[dict[str, Any]]) -> None:
    """Record how full the run's batches are, beside other ways to make them."""
    try:
        write_atomically(run / BATCHES, json.dumps(schemes, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise RunError(f"The run directory {str(run)!r} cannot be written: {error.strerror or error}.") from None


def evaluation_text(run: Path, split: Split) -> tuple[list[str], list[str]]:
    """Source and target lines of a run's validation or test split.

    Raises:
      RunError: the run has no such text.
    """
    files = [run / TEXTS / f"{split}.{side}" for side in SIDES]
    if not all(file.is_file() for file in files):
        raise RunError(f"{str(run)!r} has no {split} text; run `prepare` or `train` with this --workdir first.")
    source, target = ([line.decode(errors="replace") for line in read_lines(file)] for file in files)
    return source, target


def translations(run: Path, split: Split) -> Path:
    """The file with a run's translations of a split.

    Raises:
      RunError: not a run, or it has not been evaluated.
    """
    load_config(run)
    path = run / TEXTS / f"{split}.hypothesis"
    if not path.is_file():
        raise RunError(
            f"{str(run)!r} has no translations of the {split} split; `evaluate` makes those of its evaluation.splits."
        )
    return path


def finished_steps(run: Path) -> list[int]:
    """Steps that have a finished checkpoint, ascending."""
    folders = (run / CHECKPOINTS).glob("*")
    return sorted(int(path.name) for path in folders if path.name.isdigit() and is_sealed(path))


def refuse_differences(run: Path, before: config.Experiment, now: config.Experiment) -> None:
    """Raise `RunError` if the two would train differently."""
    old, new = trajectory.fields(before), trajectory.fields(now)
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
        return config_fields.from_json(path.read_text(encoding="utf-8"))
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        raise RunError(f"{str(path)!r} cannot be used: {error}") from None


def _read_manifest(run: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((run / DATA).read_text(encoding="utf-8"))
        return {"made_from": manifest["made_from"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{str(run / DATA)!r} is missing or damaged ({error!r}); use another --workdir.") from None
