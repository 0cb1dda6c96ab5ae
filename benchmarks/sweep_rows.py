"""How fast each row of a sweep trains and decodes beside the row called base (or the first), in turns on this machine.

    python -m benchmarks.sweep_rows experiments/lineage.py [--output sweep_rows.html] [--shape S T ROWS] [--json]

training   the whole step that `train` takes, on a batch of ROWS pairs of S + T tokens
decoding   a step of a search for 32 sentences of S tokens with the sweep's beam, in the middle of its cache

A sweep's own times are of whatever else the machine did meanwhile; here rows take turns, and what counts is the ratio
to base within a round, of which the median and the range are told. Parameters and tokens are random.
The numbers are printed (as a table, or with --json as one object) and put on a page (--output).
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks import page, page_command
from benchmarks.decoding_steps import STEPS, Sizes, decoding_steps
from benchmarks.timing import mean_seconds
from benchmarks.training_steps import training_steps
from t2t_jax import config, model, progress
from t2t_jax.data.batching import Shape
from t2t_jax.errors import UserError
from t2t_jax.experiment_file import load_sweep
from t2t_jax.model import EncoderDecoder
from t2t_jax.parallel.memory import keep_freed_memory
from t2t_jax.parallel.platform import choose_platform
from t2t_jax.sweeps.forecast import aligned

SENTENCES = 32
TURN = 0.3
WAYS = ("training", "decoding")


def search_step(experiment: config.Experiment, shape: Shape) -> Callable[[], object] | None:
    """A function that takes `STEPS` steps of a search; None for a model that writes nothing."""
    net = model.build(experiment.model, experiment.data.vocabulary_size, experiment.training.compute_dtype)
    if not isinstance(net, EncoderDecoder):
        return None
    length = max(2 * STEPS, shape.target)
    return decoding_steps(net, Sizes(SENTENCES, experiment.decoding.beam_size, shape.source, length))[0]


def measure(rows: Mapping[str, config.Experiment], shape: Shape, rounds: int) -> dict[str, Any]:
    """Compile both steps of every row, then let all take turns."""
    busy, began = page.busy(), time.monotonic()
    runs: dict[tuple[str, str], Callable[[], object]] = {}
    with progress.bar() as bar:
        for name, experiment in bar.track(rows.items(), description="compiling"):
            train, _ = training_steps(experiment, experiment.data.vocabulary_size, shape)
            runs[name, "training"] = functools.partial(train, 1)
            if (search := search_step(experiment, shape)) is not None:
                runs[name, "decoding"] = search
        for run in runs.values():
            run()
        seconds: dict[tuple[str, str], list[float]] = {place: [] for place in runs}
        for _ in bar.track(range(rounds), description="taking turns"):
            for place, run in runs.items():
                seconds[place].append(mean_seconds(run, TURN) / (STEPS if place[1] == "decoding" else 1))
    base = "base" if "base" in rows else next(iter(rows))
    return {
        "facts": page.circumstances()
        | {
            "Batch": f"{shape.rows} × ({shape.source} + {shape.target}) tokens",
            "Search": f"{SENTENCES} sentences of {shape.source} tokens, beam {rows[base].decoding.beam_size}",
            "Rounds": str(rounds),
            "Taken": f"{(time.monotonic() - began) / 60:.1f} min",
        },
        "warning": busy,
        "base": base,
        "rows": [{"row": name} | {way: _beside(seconds, name, base, way) for way in WAYS} for name in rows],
    }


def _beside(seconds: Mapping[tuple[str, str], list[float]], name: str, base: str, way: str) -> dict[str, float] | None:
    if (name, way) not in seconds:
        return None
    ratios = [theirs / ours for theirs, ours in zip(seconds[name, way], seconds[base, way], strict=True)]
    return {
        "milliseconds": 1e3 * statistics.median(seconds[name, way]),
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
    }


def cells(found: dict[str, Any]) -> page.Table:
    """A line for each row: milliseconds, and times base's."""

    def told(way: dict[str, float] | None) -> list[str]:
        if way is None:
            return ["–", "–", "–"]
        ratio, ends = f"{way['ratio']:.2f}", f"{way['least']:.2f}–{way['most']:.2f}"
        return [f"{way['milliseconds']:.1f}", ratio, ends]

    columns = [f"{way}, {unit}" for way in WAYS for unit in ("ms a step", f"× {found['base']}", "range")]
    return page.Table(
        ["row", *columns], [[row["row"], *(c for way in WAYS for c in told(row[way]))] for row in found["rows"]]
    )


def table(found: dict[str, Any]) -> str:
    """The numbers for people."""
    lines = [f"{label}: {value}" for label, value in found["facts"].items()]
    lines += [found["warning"]] if found["warning"] else []
    made = cells(found)
    return "\n".join([*lines, "", aligned([made.columns, *made.rows], right=set(range(1, len(made.columns))))])


def html(found: dict[str, Any]) -> str:
    """The page."""
    lead = (
        f"A training step and a step of decoding of every row of the sweep, beside {found['base']}'s in the same "
        "round: above 1 is slower. Parameters and tokens are random."
    )
    section = page.Section("Time of a step", "Medians over rounds, and the range of the ratio.", tables=[cells(found)])
    return page.render("The rows of a sweep, in turns", lead, found["facts"], found["warning"], [section])


def main() -> None:
    """Run the script; see the module's text."""
    parser = page_command.parser(__doc__, "sweep_rows")
    parser.add_argument("sweep", help="a file with get_sweep()")
    numbers = {"type": page_command.at_least_one, "metavar": ("S", "T", "ROWS"), "nargs": 3}
    parser.add_argument("--shape", **numbers, default=(16, 16, 88), help="the batch (16 16 88, captions)")
    options = parser.parse_args()
    try:
        rows = load_sweep(options.sweep)
    except UserError as error:
        parser.error(str(error))
    choose_platform()
    keep_freed_memory()
    page_command.deliver(measure(rows, Shape(*options.shape), options.rounds), options, table, html)


if __name__ == "__main__":
    main()
