"""Table 1 of the paper as it was measured (`layer_types`): a table for people, and a page of plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks import page
from benchmarks.fits import exponent

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


def values_of(
    found: dict[str, Any], key: str, kind: str, way: str = "training", n: int | None = None, d: int | None = None
) -> list[float]:
    """Of one type by the size that is not given, in order."""
    chosen = (p for p in found["points"] if (p["kind"], p["way"]) == (kind, way))
    return [p[key] for p in sorted((p for p in chosen if n in (None, p["n"]) and d in (None, p["d"])), key=_place)]


def _place(point: dict[str, Any]) -> tuple[int, int]:
    return point["n"], point["d"]


def table(found: dict[str, Any]) -> str:
    """The numbers for people."""
    lines = [f"{label}: {value}" for label, value in found["facts"].items()]
    lines += [found["warning"]] if found["warning"] else []
    for way, title in WAYS.items():
        for d in found["widths"]:
            lines += ["", f"ms {title}, d = {d}, by n"]
            lines.append(f"{'':26}" + "".join(f"{n:>10,}" for n in found["lengths"]))
            for kind in found["fits"]:
                values = values_of(found, "seconds", kind, way, d=d)
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
            depth = values_of(found, "sequential_operations", name, "forward", n=n)[-1]
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
            page.Curve(kind, lengths, [v * scale for v in values_of(found, key, kind, way, d=d)], hue)
            for hue, kind in enumerate(names)
        ]

    by_d = [
        page.Curve(kind, widths, [1e3 * v for v in values_of(found, "seconds", kind, n=most)], hue)
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
    at = {kind: exponent(found["lengths"], values_of(found, "seconds", kind, d=d)) for kind in found["fits"]}
    longest = {kind: values_of(found, "seconds", kind, d=d)[-1] for kind in at}
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
    at = {kind: exponent(found["lengths"], values_of(found, "gflop", kind, d=d)) for kind in found["fits"]}
    steep = ", ".join(f"{kind} n^{a:.2f}" for kind, a in at.items() if a > 1.05)
    return f"Towards n = {found['lengths'][-1]:,}: {steep or 'none faster than n'}; all others in proportion to n."


def _sequential_says(found: dict[str, Any], d: int) -> str:
    depths = {kind: values_of(found, "sequential_operations", kind, "forward", d=d) for kind in found["fits"]}
    growing = {kind: values for kind, values in depths.items() if len(set(values)) > 1}
    described = ", ".join(f"{kind}: {values[0]:,} to {values[-1]:,}" for kind, values in growing.items())
    return (
        f"Growing with n: {described or 'none'}. Every other layer has {min(map(min, depths.values()))} at all lengths."
    )


def _paths_say(found: dict[str, Any]) -> str:
    ends = ", ".join(f"{name} {points[-1]['length']:,}" for name, points in found["paths"].items())
    return f"At n = {found['paths']['recurrent'][-1]['n']}: {ends}."
