"""What the rows of a sweep are and will take, before any is trained: differences, parameters, FLOPs, time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from t2t_jax import config, config_fields, model
from t2t_jax.planning import shapes
from t2t_jax.sweeps import rows
from t2t_jax.sweeps.live import duration, title
from t2t_jax.sweeps.rows import Row, Sweep
from t2t_jax.training.flops import step_flops
from t2t_jax.training.state import abstract_params, count_parameters

# FLOP/s at which the paper's eight P100 trained base: 9.4e12 a step as counted here, in 0.4 s (section 5.2).
PAPER = 9.4e12 / 0.4
UNTOLD = {"name", "training.seed", "data.store"}


@dataclass(frozen=True)
class Forecast:
    """One run."""

    row: Row
    differs: dict[str, Any]
    """Fields in which it is not the sweep's first run, but for the seed, with its values."""
    parameters: int
    flops: float
    """Of training, counted from the sizes of the model and of the batches."""
    assumed: str | None
    """Where the lengths come from that the batches were assumed from; None with prepared data."""


def forecast(sweep: Sweep) -> list[Forecast]:
    """A forecast for each run, in the sweep's order. Nothing is allocated or compiled, and no data is needed.

    Raises:
      DataError: prepared data that is damaged.
      ConfigError: budgets that hold no pair of the longest length.
    """
    first = config_fields.flatten(sweep.rows[0].experiment)
    workloads: dict[config.Data, shapes.Workload] = {}
    counts: dict[tuple[config.Model, int], int] = {}
    found = []
    for row in sweep.rows:
        experiment = rows.experiment_to_run(row)
        settings, training = experiment.model, experiment.training
        if experiment.data not in workloads:
            workloads[experiment.data] = shapes.workload(experiment.data, training.seed, row.directory)
        workload = workloads[experiment.data]
        vocabulary = workload.vocabulary_size
        if (settings, vocabulary) not in counts:
            transformer = model.build(settings, vocabulary)
            counts[settings, vocabulary] = count_parameters(abstract_params(transformer), transformer)
        batches = zip(workload.shapes, workload.batches, strict=True)
        epoch = sum(count * step_flops(settings, vocabulary, shape) for shape, count in batches)
        flops = training.num_steps * epoch / sum(workload.batches)
        flat = config_fields.flatten(row.experiment)
        differs = {path: value for path, value in flat.items() if path not in UNTOLD and value != first[path]}
        found.append(Forecast(row, differs, counts[settings, vocabulary], flops, workload.assumed))
    return found


def rate(forecasts: Sequence[Forecast]) -> tuple[float, str]:
    """FLOP/s that times are taken from, and where it comes from: the sweep's own done runs, or else the paper."""
    done = [(one.flops, report) for one in forecasts if (report := rows.read_report(one.row)) is not None]
    seconds = sum(report.get("training_seconds") or 0 for _, report in done)
    if not seconds:
        return PAPER, "as fast as the paper's eight P100 trained base (0.4 s a step)"
    measured = sum(flops for flops, _ in done) / seconds
    return measured, f"at {measured / 1e12:.3g} TFLOP/s, like the runs of this sweep that are done"


def as_json(forecasts: Sequence[Forecast]) -> list[dict[str, Any]]:
    """The table for programs."""
    per_second, _ = rate(forecasts)
    return [
        {
            "row": one.row.name,
            "seed": one.row.seed,
            "config_hash": one.row.config_hash,
            "run": one.row.directory.name,
            "parameters": one.parameters,
            "parameters_millions": round(one.parameters / 1e6, 1),
            "training_flops": one.flops,
            "expected_seconds": round(one.flops / per_second),
            "shapes_assumed": one.assumed is not None,
            "state": rows.state(one.row).kind,
            "differs": one.differs,
        }
        for one in forecasts
    ]


def as_text(sweep: Sweep, forecasts: Sequence[Forecast]) -> str:
    """The table for people."""
    per_second, basis = rate(forecasts)
    lines = [("row", "parameters", "(M)", "FLOPs", "time", "config hash", "state", "differs from the first")]
    for one in forecasts:
        differs = ", ".join(f"{path.split('.')[-1]}={_plain(value)}" for path, value in one.differs.items())
        lines.append(
            (
                title(one.row, sweep),
                f"{one.parameters:,}",
                f"{one.parameters / 1e6:.1f}",
                f"{one.flops:.2e}",
                duration(one.flops / per_second),
                one.row.config_hash,
                rows.state(one.row).kind,
                differs,
            )
        )
    total = sum(one.flops for one in forecasts) / per_second
    notes = [f"Time of training alone, {basis}; all rows: {duration(total)}."]
    for origin in sorted({one.assumed for one in forecasts if one.assumed is not None}):
        notes.append(f"shapes assumed: the data is not prepared. {origin}")
    return "\n".join([aligned(lines, right={1, 2, 3, 4}), "", *notes])


def aligned(lines: Sequence[Sequence[str]], right: set[int]) -> str:
    """A table of text; the first line is its head."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _plain(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)
