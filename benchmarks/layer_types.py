"""Table 1 of the paper, measured: what four types of layer cost by sequence length n and width d.

    python -m benchmarks.layer_types [--output layer_types.html] [--quick] [--kernel K] [--neighbourhood R] [--json]

Self-attention, a recurrent layer (a long short-term memory), convolutions of width k (plain and separable) and
self-attention restricted to a neighbourhood of r positions, each as a small JAX function (benchmarks/layers.py):

    time        of the way forward, and of forward and backward, in turns; the medians count
    FLOPs       of the products in the compiled program, loops included
    sequential  the rounds of the loops in the compiled program, forward; 1 where it has none
    path        layers (steps, within a recurrent layer) until every position has heard of all before it, found from
                which outputs have a derivative by which inputs

beside the paper's columns, with the exponents of n and d that fit, and the length at which self-attention and
recurrence change places. The paper counts n²d for self-attention; a layer also has its four projections, 4nd², which it
leaves out. The numbers are printed (as a table, or with --json as one object) and drawn on a page (--output).
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from benchmarks import layers, page
from benchmarks.fits import crossing, exponent
from benchmarks.paths import influence, path_length
from benchmarks.timing import mean_seconds, spread
from t2t_jax.files import write_atomically
from t2t_jax.parallel.memory import keep_freed_memory
from t2t_jax.parallel.platform import choose_platform
from t2t_jax.planning.compiled_text import CompiledText

Layer: TypeAlias = Callable[[layers.Weights, jax.Array], jax.Array]

PATH_LENGTHS, PATH_WIDTH = (8, 16, 32, 64, 128), 4  # n and d at which paths are found
WAYS = {"forward": "forward", "training": "forward and backward"}
# Complexity of a layer, sequential operations, maximum path length; what is not in the table is in the text below it.
PAPER = {
    "self-attention": ("n²·d", "1", "1"),
    "recurrent": ("n·d²", "n", "n"),
    "convolutional": ("k·n·d²", "1", "n/k"),
    "dilated convolution": ("k·n·d²", "1", "logₖ(n)"),
    "separable convolution": ("k·n·d + n·d²", "1", "n/k"),
    "restricted self-attention": ("r·n·d", "1", "n/r"),
}


@dataclass(frozen=True)
class Kind:
    """A type of layer."""

    weights: Callable[[int], layers.Weights]  # of d
    apply: Layer


@dataclass(frozen=True)
class Stack:
    """Layers one upon another, for the length of paths."""

    weights: layers.Weights
    layer: Callable[[int], Layer]  # of its number, from 0 on


def kinds(k: int, r: int) -> dict[str, Kind]:
    """The types by name."""
    restricted = functools.partial(layers.restricted_self_attention, r=r)
    return {
        "self-attention": Kind(layers.attention_weights, layers.self_attention),
        "recurrent": Kind(layers.lstm_weights, layers.recurrent),
        "convolutional": Kind(functools.partial(layers.convolution_weights, k=k), layers.convolution),
        "separable convolution": Kind(
            functools.partial(layers.separable_convolution_weights, k=k), layers.separable_convolution
        ),
        "restricted self-attention": Kind(layers.attention_weights, restricted),
    }


def stacks(k: int, r: int) -> dict[str, Stack]:
    """The types by name; the dilated convolution's dilation grows by k from layer to layer."""
    d = PATH_WIDTH
    attention, kernel = layers.attention_weights(d), layers.convolution_weights(d, k)
    restricted = functools.partial(layers.restricted_self_attention, r=r)
    return {
        "self-attention": Stack(attention, lambda _: layers.self_attention),
        "recurrent": Stack(layers.lstm_weights(d), lambda _: layers.recurrence),
        "convolutional": Stack(kernel, lambda _: layers.convolution),
        "dilated convolution": Stack(kernel, lambda i: functools.partial(layers.dilated_convolution, dilation=k**i)),
        "separable convolution": Stack(
            layers.separable_convolution_weights(d, k), lambda _: layers.separable_convolution
        ),
        "restricted self-attention": Stack(attention, lambda _: restricted),
    }


def find_path(stack: Stack, n: int) -> int:
    """Layers until every one of n positions has heard of all before it."""

    @functools.lru_cache(maxsize=1)  # most stacks repeat one layer
    def of(layer: Layer) -> Any:
        return influence(functools.partial(layer, stack.weights), n, PATH_WIDTH)

    return path_length(of(stack.layer(number)) for number in range(n))


@dataclass(frozen=True)
class Program:
    """A compiled layer that is ready to run, and what its text says."""

    run: Callable[[], object]
    flops: int
    loop_rounds: int


def compile_layer(apply: Layer, weights: layers.Weights, x: jax.Array, backward: bool) -> Program:
    """The layer's output, or with `backward` the gradient of its square by weights and input."""

    def gradient(w: layers.Weights, x: jax.Array) -> Any:
        return jax.grad(lambda w, x: jnp.sum(apply(w, x) ** 2), argnums=(0, 1))(w, x)

    compiled = jax.jit(gradient if backward else apply).lower(weights, x).compile()
    text = CompiledText(compiled.as_text(), devices=1)
    flops = sum(product.flops for product in text.products)
    return Program(
        lambda: jax.block_until_ready(compiled(weights, x)), flops, sum(rounds or 1 for rounds in text.loops)
    )


def measure(
    lengths: Sequence[int],
    widths: Sequence[int],
    k: int,
    r: int,
    rows: int,
    rounds: int,
    path_lengths: Sequence[int] = PATH_LENGTHS,
) -> dict[str, Any]:
    """Compile every type at every size, then let each run in every round; find paths over `path_lengths` positions."""
    busy, began = page.busy(), time.monotonic()
    programs: dict[tuple[str, int, int, str], Program] = {}
    for d in widths:
        for name, kind in kinds(k, r).items():
            weights = kind.weights(d)
            for n in lengths:
                x = jax.random.normal(jax.random.key(0), (rows, n, d))
                for way in WAYS:
                    programs[name, n, d, way] = compile_layer(kind.apply, weights, x, backward=way == "training")
    seconds: dict[tuple[str, int, int, str], list[float]] = {place: [] for place in programs}
    for program in programs.values():
        program.run()
    for _ in range(rounds):
        for place, program in programs.items():
            seconds[place].append(mean_seconds(program.run, 0.03))
    points = [
        {
            "kind": name,
            "n": n,
            "d": d,
            "way": way,
            "seconds": statistics.median(seconds[name, n, d, way]),
            "fastest_seconds": min(seconds[name, n, d, way]),
            "slowest_seconds": max(seconds[name, n, d, way]),
            "gflop": program.flops / 1e9,
            "sequential_operations": max(1, program.loop_rounds),
        }
        for (name, n, d, way), program in programs.items()
    ]
    found = {
        "facts": page.circumstances()
        | {
            "Batch": f"{rows} sequences, float32",
            "Sizes": f"k = {k}, r = {r}",
            "Rounds": str(rounds),
            "Spread": spread(points),
            "Taken": f"{(time.monotonic() - began) / 60:.1f} min",
        },
        "warning": busy,
        "lengths": list(lengths),
        "widths": list(widths),
        "points": points,
        "paths": {
            name: [{"n": n, "length": find_path(stack, n)} for n in path_lengths]
            for name, stack in stacks(k, r).items()
        },
    }
    return found | {"fits": _fits(found), "crossings": _crossings(found)}


def _values(
    found: dict[str, Any], key: str, kind: str, way: str = "training", n: int | None = None, d: int | None = None
) -> list[float]:
    """Of one type by the size that is not given, in order."""
    chosen = (p for p in found["points"] if (p["kind"], p["way"]) == (kind, way))
    return [p[key] for p in sorted((p for p in chosen if n in (None, p["n"]) and d in (None, p["d"])), key=_place)]


def _place(point: dict[str, Any]) -> tuple[int, int]:
    return point["n"], point["d"]


def _fits(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Exponents of n at the smallest width and of d at the greatest length, where a term in n² has most weight."""
    lengths, widths = found["lengths"], found["widths"]
    return {
        kind: {
            f"{what}_{size}": exponent(sizes, _values(found, key, kind, **fixed))
            for what, key in (("time", "seconds"), ("flops", "gflop"))
            for size, sizes, fixed in (("n", lengths, {"d": widths[0]}), ("d", widths, {"n": lengths[-1]}))
        }
        for kind in dict.fromkeys(p["kind"] for p in found["points"])
    }


def _crossings(found: dict[str, Any]) -> list[dict[str, Any]]:
    """At each width the length from which self-attention costs more than recurrence; as text where out of sight."""

    def length(key: str, way: str, d: int) -> float | str:
        ours, theirs = (_values(found, key, kind, way, d=d) for kind in ("self-attention", "recurrent"))
        place = crossing(found["lengths"], ours, theirs)
        if place is not None:
            return round(place)
        return f"beyond {found['lengths'][-1]:,}" if ours[-1] <= theirs[-1] else f"below {found['lengths'][0]:,}"

    return [
        {"d": d, "by_flops": length("gflop", "training", d)}
        | {f"by_{way}_time": length("seconds", way, d) for way in WAYS}
        for d in found["widths"]
    ]


def table(found: dict[str, Any]) -> str:
    """The numbers for people."""
    lines = [f"{label}: {value}" for label, value in found["facts"].items()]
    lines += [found["warning"]] if found["warning"] else []
    for way, title in WAYS.items():
        for d in found["widths"]:
            lines += ["", f"ms {title}, d = {d}, by n"]
            lines.append(f"{'':26}" + "".join(f"{n:>10,}" for n in found["lengths"]))
            for kind in found["fits"]:
                values = _values(found, "seconds", kind, way, d=d)
                lines.append(f"{kind:26}" + "".join(f"{1e3 * value:>10.2f}" for value in values))
    for part in (_table_1(found), _crossing_table(found)):
        lines += ["", _aligned([part.columns, *part.rows]), part.says]
    return "\n".join(lines)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        f"{row[0]:<{widths[0]}}" + "".join(f"  {cell:>{w}}" for cell, w in zip(row[1:], widths[1:], strict=True))
        for row in rows
    )


def _table_1(found: dict[str, Any]) -> page.Table:
    """The paper's columns, each beside what was found."""
    n, longest = found["lengths"][-1], found["paths"]["recurrent"][-1]["n"]
    rows = []
    for name, (complexity, operations, path) in PAPER.items():
        measured = ["–"] * 3  # the dilated convolution costs what the other one does
        if name in found["fits"]:
            fit = found["fits"][name]
            depth = _values(found, "sequential_operations", name, "forward", n=n)[-1]
            measured = [_power(fit["flops_n"], fit["flops_d"]), _power(fit["time_n"], fit["time_d"]), f"{depth:,}"]
        flops, seconds, depth = measured
        length = f"{found['paths'][name][-1]['length']:,}"
        rows.append([name, f"O({complexity})", flops, seconds, f"O({operations})", depth, f"O({path})", length])
    columns = [
        "layer",
        "paper: cost",
        "FLOPs",
        "time",
        "paper: sequential",
        f"found, n = {n:,}",
        "paper: path",
        f"found, n = {longest:,}",
    ]
    return page.Table(
        columns,
        rows,
        f"Exponents of forward and backward: of n at d = {found['widths'][0]}, of d at n = {n:,}, over the larger half "
        "of the sizes. The paper leaves out self-attention's projections, which cost nd² like a recurrent layer's "
        "products and pull its exponents from n² and d towards n and d².",
    )


def _power(n: float, d: float) -> str:
    return f"n^{n:.2f} · d^{d:.2f}"


def _crossing_table(found: dict[str, Any]) -> page.Table:
    rows = [
        [f"d = {c['d']}", *(_length(c[key]) for key in ("by_flops", "by_forward_time", "by_training_time"))]
        for c in found["crossings"]
    ]
    says = (
        "The length from which self-attention costs more than the recurrent layer. The paper's n²d and nd² meet at "
        "n = d; with all their products (4nd² + 2n²d against 8nd²) the two layers meet at n = 2d. In time "
        "self-attention stays ahead for as long as n products in a row take longer than its n²d at once."
    )
    return page.Table(["", "n by FLOPs", "n by time forward", "n by time forward and backward"], rows, says)


def _length(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.0f}"


def html(found: dict[str, Any]) -> str:
    """The page."""
    lengths, widths, names = found["lengths"], found["widths"], list(found["fits"])
    some, most = widths[len(widths) // 2], lengths[-1]

    def by_n(key: str, scale: float, d: int, way: str) -> list[page.Curve]:
        return [
            page.Curve(kind, lengths, [v * scale for v in _values(found, key, kind, way, d=d)], hue)
            for hue, kind in enumerate(names)
        ]

    by_d = [
        page.Curve(kind, widths, [1e3 * v for v in _values(found, "seconds", kind, n=most)], hue)
        for hue, kind in enumerate(names)
    ]
    paths = [  # a separable convolution's paths are those of any contiguous one; its colour is free for the dilated one
        page.Curve(name, [p["n"] for p in points], [p["length"] for p in points], hue)
        for hue, (name, points) in enumerate(
            (name, points) for name, points in found["paths"].items() if name != "separable convolution"
        )
    ]
    label = "sequence length n"
    sections = [
        page.Section(
            "Table 1, measured",
            "Beside each of the paper's columns what was found here.",
            tables=[_table_1(found)],
        ),
        page.Section(
            "Time and FLOPs",
            "Forward and backward, gradients by weights and input. Axes are logarithmic: a power is a straight line.",
            [
                page.Plot(
                    f"Time by n at d = {d}", "ms", label, by_n("seconds", 1e3, d, "training"), _time_says(found, d)
                )
                for d in dict.fromkeys((widths[0], some))
            ]
            + [
                page.Plot(f"Time by d at n = {most:,}", "ms", "width d", by_d, _width_says(found)),
                page.Plot(
                    f"FLOPs by n at d = {some}",
                    "GFLOP",
                    label,
                    by_n("gflop", 1, some, "training"),
                    _flops_says(found, some),
                ),
            ],
        ),
        page.Section(
            "Sequential operations and paths",
            "What must wait for something else, and how far a signal has to travel.",
            [
                page.Plot(
                    "Sequential operations",
                    "rounds of the compiled program’s loops, forward",
                    label,
                    by_n("sequential_operations", 1, some, "forward"),
                    _sequential_says(found, some),
                ),
                page.Plot(
                    "Maximum path length",
                    "layers, or steps of recurrence",
                    label,
                    paths,
                    _paths_say(found),
                ),
            ],
        ),
        page.Section(
            "Where self-attention and recurrence change places",
            "Self-attention is the cheaper layer on shorter sequences.",
            tables=[_crossing_table(found)],
        ),
    ]
    lead = (
        "Four types of layer that turn n vectors of width d into n others, as small JAX functions: what they cost, how "
        "many operations must wait for one another, and how many layers a signal passes from one end to the other."
    )
    return page.render("Table 1 of the paper, measured", lead, found["facts"], found["warning"], sections)


def _time_says(found: dict[str, Any], d: int) -> str:
    at = {kind: exponent(found["lengths"], _values(found, "seconds", kind, d=d)) for kind in found["fits"]}
    longest = {kind: _values(found, "seconds", kind, d=d)[-1] for kind in at}
    fastest = min(longest, key=lambda kind: longest[kind])
    ratio = longest["recurrent"] / longest["self-attention"]
    powers = ", ".join(f"{kind} n^{a:.2f}" for kind, a in at.items())
    return (
        f"Towards n = {found['lengths'][-1]:,}: {powers}. There {fastest} is fastest, and the recurrent layer takes "
        f"{ratio:.2g} times as long as self-attention."
    )


def _width_says(found: dict[str, Any]) -> str:
    powers = ", ".join(f"{kind} d^{fit['time_d']:.2f}" for kind, fit in found["fits"].items())
    return f"Towards d = {found['widths'][-1]}: {powers}."


def _flops_says(found: dict[str, Any], d: int) -> str:
    at = {kind: exponent(found["lengths"], _values(found, "gflop", kind, d=d)) for kind in found["fits"]}
    steep = ", ".join(f"{kind} n^{a:.2f}" for kind, a in at.items() if a > 1.05)
    return f"Towards n = {found['lengths'][-1]:,}: {steep or 'none faster than n'}; all others in proportion to n."


def _sequential_says(found: dict[str, Any], d: int) -> str:
    depths = {kind: _values(found, "sequential_operations", kind, "forward", d=d) for kind in found["fits"]}
    growing = {kind: values for kind, values in depths.items() if len(set(values)) > 1}
    described = ", ".join(f"{kind}: {values[0]:,} to {values[-1]:,}" for kind, values in growing.items())
    return (
        f"Growing with n: {described or 'none'}. Every other layer has {min(map(min, depths.values()))} at all lengths."
    )


def _paths_say(found: dict[str, Any]) -> str:
    ends = ", ".join(f"{name} {points[-1]['length']:,}" for name, points in found["paths"].items())
    return f"At n = {found['paths']['recurrent'][-1]['n']}: {ends}."


def main() -> None:
    """Run the script; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--output", type=page.output, default=Path("layer_types.html"), help="the page (layer_types.html)"
    )
    parser.add_argument("--quick", action="store_true", help="only up to n = 512 and d = 256")
    parser.add_argument("--kernel", type=int, default=3, help="k, odd: positions that a convolution sees (3)")
    parser.add_argument(
        "--neighbourhood", type=int, default=32, help="r, even: restricted attention sees r/2 a side (32)"
    )
    parser.add_argument("--rows", type=int, default=4, help="sequences in a batch, two at least (4)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each; the median counts (5)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    options = parser.parse_args()
    if options.kernel < 3 or options.kernel % 2 == 0:
        parser.error("--kernel: an odd number from 3 on, a position and as many on either side")
    if options.neighbourhood < 2 or options.neighbourhood % 2:
        parser.error("--neighbourhood: an even number from 2 on, half of it on either side")
    if options.rows < 2:
        parser.error("--rows: at least 2; what the compiler makes of products with a single row is no product any more")
    if options.rounds < 1:
        parser.error("--rounds: at least 1")
    choose_platform()
    keep_freed_memory()
    lengths = (32, 64, 128, 256, 512) if options.quick else (32, 64, 128, 256, 512, 1024, 2048)
    widths = (64, 128, 256) if options.quick else (64, 128, 256, 512)
    found = measure(lengths, widths, options.kernel, options.neighbourhood, options.rows, options.rounds)
    write_atomically(options.output, html(found))
    print(json.dumps(found, indent=2) if options.json else f"{table(found)}\n\nDrawn in {options.output}")


if __name__ == "__main__":
    main()
