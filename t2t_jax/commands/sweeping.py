"""Verbs that train the rows of a table."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from t2t_jax import run_lock
from t2t_jax.command_line import DONE, FAILED, STOPPED
from t2t_jax.commands import training
from t2t_jax.errors import ConfigError, RunError, exit_status, in_one_line
from t2t_jax.evaluation.measures import measure_of
from t2t_jax.options import Sweep, Train, TrainRow
from t2t_jax.progress import say
from t2t_jax.sweeps import cluster, forecast, local, report, rows
from t2t_jax.sweeps.live import LiveTable, title
from t2t_jax.sweeps.rows import Row, State
from t2t_jax.training import calls

REPORTED = ("parameters", "split", "perplexity", "bleu", "f1", "accuracy")


def sweep(targets: Sequence[Path], options: Sweep) -> int:
    """Train every row that is not done, as far as nothing else does, and print what there is."""
    (file,) = targets
    directory = options.workdir or Path("runs") / file.stem
    if options.jobs < 1:
        raise ConfigError(f"--jobs {options.jobs} must be at least 1.")
    planned = rows.plan_rows(file.stem, directory, options.rows, options.seeds)
    planned = dataclasses.replace(planned, command=calls.command())
    if options.dry_run:
        jax.config.update("jax_platforms", "cpu")  # shapes take no device, which another program may be using
        forecasts = forecast.forecast(planned)
        told = {"sweep": planned.name, "rows": forecast.as_json(forecasts)}
        print(json.dumps(told, indent=2) if options.json else forecast.as_text(planned, forecasts))
        return DONE
    _refuse_foreign(planned)
    with run_lock.locked(directory):
        states = _states(planned)
        wanted = [row for row in planned.rows if _is_wanted(states[row], options.retry)]
        ready = local.prepare_data(planned, wanted)
        rows.save(planned)
        for row in ready:
            rows.forget_outcome(row)
        undisturbed = True
        if options.launcher == "slurm":
            cluster.submit_rows(planned, ready, options.slurm)
        else:
            with LiveTable(planned, _states(planned)) as live:
                undisturbed = local.train(ready, options.jobs, live.show)
        states = _states(planned)
        # Of jobs that are only now in the queue there is nothing to tell.
        if options.launcher != "slurm" or any(state.kind == "done" for state in states.values()):
            say(f"Report: {report.write(directory)}")
    print(json.dumps(_as_json(planned, states), indent=2) if options.json else _as_text(planned, states))
    kinds = {state.kind for state in states.values()}
    if undisturbed and "failed" in kinds:
        return FAILED
    return DONE if kinds == {"done"} or options.launcher == "slurm" else STOPPED


def train_row(targets: Sequence[Path], options: TrainRow) -> int:
    """Train one run of a sweep from what sweep.json says of it; keep in its directory why it failed, if it does."""
    directory, folder = targets
    row = rows.row_in(rows.load(directory), folder.name)
    if (owner := run_lock.owner(row.directory)) is not None:
        raise RunError(f"{owner} is writing in {str(row.directory)!r}; wait for it, or stop it.")
    rows.forget_outcome(row)
    try:
        return training.train([], Train(rows.experiment_to_run(row), workdir=row.directory))
    except Exception as error:
        rows.record_failure(row, in_one_line(error), exit_status(error))
        raise


def _is_wanted(state: State, retry: bool) -> bool:
    """Whether a row in this state is to be trained; what another process or a job does is left to it."""
    return state.kind in ("stopped", "not begun") or (retry and state.kind == "failed")


def _states(planned: rows.Sweep) -> dict[Row, State]:
    elsewhere = cluster.in_queue(planned)
    return {row: elsewhere.get(row) or rows.state(row) for row in planned.rows}


def _refuse_foreign(planned: rows.Sweep) -> None:
    """A sweep goes only into a directory that is new, empty, or its own.

    Raises:
      RunError: something else is there.
    """
    directory = planned.directory
    if (directory / rows.SWEEP).is_file():
        if (there := rows.load(directory).name) != planned.name:
            raise RunError(
                f"{str(directory)!r} holds the sweep {there!r}, not {planned.name!r}; use another --workdir."
            )
    elif directory.exists():
        # Prepared data alone are left by a sweep that got no further.
        ours = {run_lock.LOCK, rows.STORES}
        if not directory.is_dir() or {path.name for path in directory.iterdir()} - ours:
            raise RunError(f"{str(directory)!r} holds something else than a sweep; use another --workdir.")


def _as_json(planned: rows.Sweep, states: dict[Row, State]) -> dict[str, Any]:
    reports = {row: rows.read_report(row) or {} for row in planned.rows}
    return {
        "sweep": planned.name,
        "directory": str(planned.directory),
        "rows": [
            {
                "row": row.name,
                "seed": row.seed,
                "config_hash": row.config_hash,
                "run": row.directory.name,
                "state": states[row].kind,
                "step": states[row].step,
                "num_steps": row.experiment.training.num_steps,
                "reason": states[row].reason,
                **{key: reports[row].get(key) for key in REPORTED},
            }
            for row in planned.rows
        ],
    }


def _as_text(planned: rows.Sweep, states: dict[Row, State]) -> str:
    measure = measure_of(planned.rows[0].experiment)
    lines = [["row", "parameters", "perplexity", measure.title, "state"]]
    for row in planned.rows:
        state, report = states[row], rows.read_report(row)
        told = [""] * 3
        if report:
            score = report.get(measure.key)
            told = [f"{report['parameters']:,}", f"{report['perplexity']:.2f}", "" if score is None else f"{score:.2f}"]
        at = f" at step {state.step:,}" if state.kind == "stopped" else ""
        lines.append([title(row, planned), *told, state.kind + at + (f": {state.reason}" if state.reason else "")])
    return forecast.aligned(lines, right={1, 2, 3})
