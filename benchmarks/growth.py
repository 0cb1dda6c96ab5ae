"""How the time and memory of a training step grow, beside what the model's sizes say they should be.

    python -m benchmarks.growth [--output growth.html] [--quick] [--rounds N] [--json]

Varies sequence length, d_model, vocabulary and devices, one at a time, around a Transformer of 2 + 2 layers with
d_model 256 and 8,000 entries. Time is measured in turns; memory is the compiler's account. Predicted are

    time        the FLOPs of all products, forward and backward, at the rate that a product of two 2,048 x 2,048 float32
                matrices reaches in the same rounds
    arguments   12 bytes a parameter (itself and Adam's two moments), and the batch
    temporaries 4 bytes a parameter (a gradient), and every activation that the way back needs, once

so a curve above its prediction shows work or copies that the model does not ask for. Everything runs on the CPU,
several devices as virtual ones that share its cores. They add no computing power: they show what dividing costs, and
what memory it saves.
The numbers are printed (as a table, or with --json as one object) and drawn on a page (--output).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import jax

from benchmarks import growth_worker, page, page_command
from benchmarks.fits import exponent
from benchmarks.growth_cases import Case, Sweep, device_cases, sweeps
from benchmarks.timing import spread
from benchmarks.train_step import MATRIX_FLOPS

MIB = 2**20
PREDICTED = "predicted"
AXES = {"data": "rows divided (data)", "fsdp": "rows and state divided (fsdp)"}


def measure(quick: bool, rounds: int, turn: float) -> dict[str, Any]:
    """Compile every case, then let each take steps for `turn` seconds in every round."""
    busy, began = page.busy(), time.monotonic()
    chosen, divided = sweeps(quick), device_cases(quick)
    cases = [case for group in [s.cases for s in chosen.values()] + list(divided.values()) for case in group.values()]
    cases = list(dict.fromkeys(cases))
    workers = {n: growth_worker.start(n) for n in dict.fromkeys(case.devices for case in cases)}
    try:
        compiling = {case: workers[case.devices].submit(growth_worker.compile_case, case) for case in cases}
        memory = {case: compiled.result() for case, compiled in compiling.items()}
        seconds, products = _in_turns(workers, cases, rounds, turn)
    finally:
        for worker in workers.values():
            worker.shutdown()
    rate = MATRIX_FLOPS / statistics.median(products)
    points = {case: _point(case, seconds[case], memory[case], rate) for case in cases}
    facts = page.circumstances() | {
        "Matrix rate (2,048², float32)": f"{rate / 1e9:.0f} GFLOP/s",
        "Rounds": f"{rounds}, {turn:g} s a turn",
        "Spread": spread(points.values()),
        "Taken": f"{(time.monotonic() - began) / 60:.1f} min",
    }
    return {
        "facts": facts,
        "warning": busy,
        "matrix_gflops": rate / 1e9,
        "sweeps": {name: [{"size": n} | points[c] for n, c in s.cases.items()] for name, s in chosen.items()},
        "devices": {axis: [{"size": n} | points[c] for n, c in group.items()] for axis, group in divided.items()},
    }


def _in_turns(
    workers: Mapping[int, ProcessPoolExecutor], cases: Sequence[Case], rounds: int, turn: float
) -> tuple[dict[Case, list[float]], list[float]]:
    """Seconds of a step of every case, and of a product, in each round."""
    seconds: dict[Case, list[float]] = {case: [] for case in cases}
    products = []
    for _ in range(rounds):
        products.append(workers[1].submit(growth_worker.seconds_of_product, turn).result())
        for case in cases:
            step = workers[case.devices].submit(growth_worker.seconds_of_step, case, turn)
            seconds[case].append(step.result())
    return seconds, products


def _point(case: Case, seconds: Sequence[float], memory: dict[str, int], rate: float) -> dict[str, float]:
    median = statistics.median(seconds)
    return {
        "seconds": median,
        "fastest_seconds": min(seconds),
        "slowest_seconds": max(seconds),
        "predicted_seconds": case.flops / rate,
        "matrix_rate_fraction": case.flops / rate / median,
        "gflop": case.flops / 1e9,
        "parameters": case.parameters,
        **memory,
        "predicted_arguments": case.predicted_arguments(),
        "predicted_temporaries": case.predicted_temporaries(),
    }


def table(found: dict[str, Any]) -> str:
    """The numbers for people."""
    lines = [f"{label}: {value}" for label, value in found["facts"].items()]
    lines += [found["warning"]] if found["warning"] else []
    head = (
        f"{'':>10}{'ms a step':>11}{'(from – to)':>21}{'predicted':>11}{'of matrix rate':>16}"
        f"{'temporaries, MiB':>18}{'predicted':>11}{'arguments, MiB':>16}{'predicted':>11}"
    )
    for name, points in (found["sweeps"] | found["devices"]).items():
        title = f"devices, {AXES[name]}" if name in AXES else name
        lines += ["", title, head]
        for p in points:
            ends = f"({1e3 * p['fastest_seconds']:.1f} – {1e3 * p['slowest_seconds']:.1f})"
            lines.append(
                f"{p['size']:>10,}{1e3 * p['seconds']:>11.1f}{ends:>21}{1e3 * p['predicted_seconds']:>11.1f}"
                f"{100 * p['matrix_rate_fraction']:>15.0f}%"
                f"{p['temporaries'] / MIB:>18.1f}{p['predicted_temporaries'] / MIB:>11.1f}"
                f"{p['arguments'] / MIB:>16.1f}{p['predicted_arguments'] / MIB:>11.1f}"
            )
    return "\n".join(lines)


def html(found: dict[str, Any]) -> str:
    """The page."""
    described = sweeps(quick=False)
    sections = [_section(described[name], points) for name, points in found["sweeps"].items()]
    lead = (
        "One optimizer step of training on the CPU, dropout included; its memory is the compiler's account. Dashed is "
        "what the model's sizes alone say. Time: the FLOPs of all products at the matrix rate below. Arguments, which "
        "are the state and the batch: 12 bytes a parameter and 4 a token. Temporaries: 4 bytes a parameter, and every "
        "activation that the way back needs, once. Axes are logarithmic: a power is a straight line, its exponent the "
        "slope."
    )
    title = "How a training step grows"
    return page.render(title, lead, found["facts"], found["warning"], [*sections, _devices(found["devices"])])


def _section(sweep: Sweep, points: Sequence[dict[str, float]]) -> page.Section:
    sizes = [p["size"] for p in points]

    def series(key: str, unit: float) -> list[float]:
        return [p[key] / unit for p in points]

    def curves(names: tuple[str, str], key: str, unit: float, hue: int) -> list[page.Curve]:
        return [
            page.Curve(names[0], sizes, series(key, unit), hue),
            page.Curve(names[1], sizes, series(f"predicted_{key}", unit), hue, dashed=True),
        ]

    time_plot = page.Plot(
        f"Time of a step by {sweep.title.lower()}",
        "ms",
        sweep.x_label,
        curves(("measured", PREDICTED), "seconds", 1e-3, 0),
        _growth_says("time", sweep.symbol, points, "seconds"),
    )
    memory_plot = page.Plot(
        f"Memory by {sweep.title.lower()}",
        "MiB",
        sweep.x_label,
        [
            curve
            for hue, key in enumerate(("temporaries", "arguments"))
            for curve in curves((key, f"{key}, {PREDICTED}"), key, MIB, hue)
        ],
        f"{_growth_says('temporaries', sweep.symbol, points, 'temporaries')} Arguments are "
        f"{_factors(points, 'arguments')} the predicted.",
    )
    return page.Section(sweep.title, sweep.lead, [time_plot, memory_plot])


def _growth_says(what: str, symbol: str, points: Sequence[dict[str, float]], key: str) -> str:
    """How both grow, and how far apart they are; `what` is one thing or several."""
    sizes = [p["size"] for p in points]
    measured, predicted = (exponent(sizes, [p[k] for p in points]) for k in (key, f"predicted_{key}"))
    grow, are = ("grow", "they are") if what.endswith("s") else ("grows", "it is")
    return (
        f"Towards {symbol} = {sizes[-1]:,} {what} {grow} as {symbol}^{measured:.2f}, predicted "
        f"{symbol}^{predicted:.2f}; {are} {_factors(points, key)} the predicted."
    )


def _factors(points: Sequence[dict[str, float]], key: str) -> str:
    """Measured over predicted, from the smallest to the largest size."""
    first, last = (f"{p[key] / p[f'predicted_{key}']:.2f}" for p in (points[0], points[-1]))
    return f"{first} times" if first == last else f"{first} times (smallest) to {last} times (largest)"


def _devices(found: dict[str, list[dict[str, float]]]) -> page.Section:
    sizes = [p["size"] for p in next(iter(found.values()))]
    most = sizes[-1]

    def curves(key: str, unit: float, both: bool) -> list[page.Curve]:
        drawn = []
        for hue, (axis, points) in enumerate(found.items()):
            drawn.append(page.Curve(AXES[axis], sizes, [p[key] / unit for p in points], hue))
            if both or not hue:
                values = [p[f"predicted_{key}"] / unit for p in points]
                name = f"{AXES[axis]}, {PREDICTED}" if both else PREDICTED
                drawn.append(page.Curve(name, sizes, values, hue, dashed=True))
        return drawn

    def ratio(axis: str, key: str) -> float:
        return found[axis][-1][key] / found[axis][0][key]

    time_says = (
        f"The step of one device takes {ratio('data', 'seconds'):.2f} times as long when {most} virtual devices share "
        f"its rows, {ratio('fsdp', 'seconds'):.2f} times when they share the state too: smaller products, sums between "
        "devices and, with fsdp, matrices gathered before each use. The work in all is the same, and so is the "
        "prediction."
    )
    held_says = (
        f"On {most} devices each holds {ratio('data', 'arguments'):.2f} of what one device would with data, "
        f"{ratio('fsdp', 'arguments'):.2f} with fsdp, where an even division is {1 / most:.2f}."
    )
    temporaries_says = (
        f"Each of {most} needs {ratio('data', 'temporaries'):.2f} of one device's temporaries with data, "
        f"{ratio('fsdp', 'temporaries'):.2f} with fsdp; predicted {ratio('data', 'predicted_temporaries'):.2f} and "
        f"{ratio('fsdp', 'predicted_temporaries'):.2f}. With data each has a whole gradient, with fsdp its part."
    )
    label = "virtual devices"
    return page.Section(
        "Devices",
        "The same batch of 1,024 + 1,024 tokens divided over virtual devices, which are threads on the cores of this "
        "machine. They add no cores: a step that takes longer on more of them shows the overhead of dividing, one that "
        "takes less did not keep the cores busy before. What is real is what each device saves in memory.",
        [
            page.Plot("Time of a step by devices", "ms", label, curves("seconds", 1e-3, both=False), time_says),
            page.Plot("Arguments of each", "MiB", label, curves("arguments", MIB, both=True), held_says),
            page.Plot("Temporaries of each", "MiB", label, curves("temporaries", MIB, both=True), temporaries_says),
        ],
    )


def main() -> None:
    """Run the script; see the module's text."""
    parser = page_command.parser(__doc__, "growth")
    parser.add_argument("--quick", action="store_true", help="leave out the sizes that cost most")
    parser.add_argument("--turn", type=float, default=0.3, help="seconds of a turn, one step at least (0.3)")
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    found = measure(options.quick, options.rounds, options.turn)
    page_command.deliver(found, options, table, html)


if __name__ == "__main__":
    main()
