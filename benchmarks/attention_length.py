"""What an attention costs by the length of the sequence: the paper's, and those that promise to cost less.

    python -m benchmarks.attention_length [--output attention_length.html] [--quick] [--memory GiB] [--json]

One self-attention of an encoder with its projections, as the model holds it: d_model 256, 8 heads, one sequence of 128
to 8,192 positions, float32, no dropout. Full; the same numbers computed block by block; keys shared by groups of query
heads, or by all; a window of 128 positions to either side; Performer with 128 features; Linformer with 128 positions.

    time        of the way forward, and of forward and backward, in turns; the medians count
    memory      the compiler's temporaries, which is what a program needs besides its arguments and results

A program whose memory is above --memory is not run; its memory is still told, since compiling it takes none.
The numbers are printed (as a table, or with --json as one object) and drawn on a page (--output).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from benchmarks import page, page_command
from benchmarks.fits import crossing, exponent
from benchmarks.timing import mean_seconds, spread
from t2t_jax import config
from t2t_jax.model import sublayers
from t2t_jax.parallel.memory import keep_freed_memory
from t2t_jax.parallel.platform import choose_platform

LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
WAYS = {"forward": "forward", "training": "forward and backward"}
MIB, GIB = 2**20, 2**30
SMALL = 128  # positions of a window to either side, features, positions that keys are mixed into
FULL = "full"


@dataclass(frozen=True)
class Kind:
    """An attention: what it changes in the config, what computes it, and what it promises in n, d and m = `SMALL`."""

    changes: dict[str, Any]
    promise: str
    fused: str | None = None
    exact: bool = True  # whether every position sees every position

    def model(self, longest: int) -> config.Model:
        """A config whose encoder has this attention, for so many positions at most."""
        sizes: dict[str, Any] = {"d_model": 256, "num_heads": 8, "max_positions": longest}
        small = {"attention_window": SMALL, "performer_features": SMALL, "linformer_length": SMALL}
        return config.Model(**sizes, **small, **self.changes)


KINDS = {
    FULL: Kind({}, "n² d time, n² memory"),
    "blockwise": Kind({}, "n² d time, n memory", fused="blockwise"),
    "grouped-query": Kind({"num_kv_heads": 2}, "n² d time, n² memory"),
    "multi-query": Kind({"num_kv_heads": 1}, "n² d time, n² memory"),
    "window": Kind({"encoder_attention": "window"}, "n m d time, n m memory", exact=False),
    "Performer": Kind({"encoder_attention": "performer"}, "n m d time, n m memory", exact=False),
    "Linformer": Kind({"encoder_attention": "linformer"}, "n m d time, n m memory", exact=False),
}


def attention(kind: Kind, longest: int) -> tuple[Callable[[Any, jax.Array], jax.Array], Any]:
    """The attention as a function of parameters and x [1, n, D], and its parameters."""
    model = kind.model(longest)
    module = sublayers.self_attention(model, jnp.dtype("float32"), kind.fused, sublayers.positions(model), "encoder")

    def to_itself(module: Any, x: jax.Array) -> jax.Array:
        everywhere = jnp.ones((1, 1, 1, x.shape[1]), bool)
        return module(x, *module.keys_values(x), everywhere, deterministic=True)

    def apply(params: Any, x: jax.Array) -> jax.Array:
        return module.apply({"params": params}, x, method=to_itself)

    params = module.init(jax.random.key(0), jnp.zeros((1, 8, model.d_model)), method=to_itself)["params"]
    return apply, nn.unbox(params)


@dataclass(frozen=True)
class Program:
    """A compiled attention, ready to run, and the compiler's account of its temporaries in bytes."""

    run: Callable[[], object]
    temporaries: int


def compile_attention(kind: Kind, n: int, longest: int, backward: bool) -> Program:
    """Its output, or with `backward` the gradient of its square by parameters and input."""
    apply, params = attention(kind, longest)
    x = jax.random.normal(jax.random.key(1), (1, n, kind.model(longest).d_model))
    gradient = jax.grad(lambda params, x: jnp.sum(apply(params, x) ** 2), argnums=(0, 1))
    compiled = jax.jit(gradient if backward else apply).lower(params, x).compile()
    return Program(lambda: jax.block_until_ready(compiled(params, x)), compiled.memory_analysis().temp_size_in_bytes)


def measure(lengths: Sequence[int], rounds: int, memory: float) -> dict[str, Any]:
    """Compile every attention at every length, then let each that needs at most `memory` bytes run in each round."""
    busy, began = page.busy(), time.monotonic()
    programs = {
        (name, n, way): compile_attention(kind, n, lengths[-1], backward=way == "training")
        for name, kind in KINDS.items()
        for n in lengths
        for way in WAYS
    }
    seconds: dict[tuple[str, int, str], list[float]] = {
        place: [] for place, program in programs.items() if program.temporaries <= memory
    }
    for place in seconds:
        programs[place].run()
    for _ in range(rounds):
        for place, times in seconds.items():
            times.append(mean_seconds(programs[place].run, 0.03))
    points = [
        {"kind": place[0], "n": place[1], "way": place[2], "temporaries": program.temporaries} | _times(seconds, place)
        for place, program in programs.items()
    ]
    timed = [point for point in points if "seconds" in point]
    return {
        "facts": page.circumstances()
        | {
            "Layer": "d_model 256, 8 heads, one sequence, float32",
            "Sizes": f"window, features and Linformer's length {SMALL}",
            "Rounds": str(rounds),
            "Spread": spread(timed) if timed else "nothing was run",
            "Not run": f"{len(points) - len(timed)} programs above {memory / GIB:g} GiB of temporaries",
            "Taken": f"{(time.monotonic() - began) / 60:.1f} min",
        },
        "warning": busy,
        "lengths": list(lengths),
        "memory_limit": memory,
        "points": points,
    }


def _times(seconds: dict[tuple[str, int, str], list[float]], place: tuple[str, int, str]) -> dict[str, float]:
    if place not in seconds:
        return {}
    times = seconds[place]
    return {"seconds": statistics.median(times), "fastest_seconds": min(times), "slowest_seconds": max(times)}


def series(found: dict[str, Any], key: str, kind: str, way: str) -> tuple[list[int], list[float]]:
    """Lengths, and what was found at them; only those at which there is something."""
    chosen = [p for p in found["points"] if (p["kind"], p["way"]) == (kind, way) and key in p]
    return [p["n"] for p in chosen], [p[key] for p in chosen]


def overtakes(found: dict[str, Any], key: str, kind: str, way: str) -> str:
    """The length from which an attention needs less than the full one, in words."""
    (lengths, ours), (others, theirs) = (series(found, key, name, way) for name in (FULL, kind))
    both = min(len(lengths), len(others))
    ours, theirs, lengths = ours[:both], theirs[:both], lengths[:both]
    if not both or ours[-1] <= theirs[-1]:
        return f"not up to {lengths[-1]:,}" if both else "not run"
    place = crossing(lengths, ours, theirs)
    return f"{place:,.0f}" if place is not None else f"below {lengths[0]:,}"


def table(found: dict[str, Any]) -> str:
    """The numbers for people."""
    lines = [f"{label}: {value}" for label, value in found["facts"].items()]
    lines += [found["warning"]] if found["warning"] else []
    for key, unit, scale in (("seconds", "ms", 1e3), ("temporaries", "MiB of temporaries", 1 / MIB)):
        for way, title in WAYS.items():
            lines += ["", f"{unit}, {title}, by n", f"{'':14}" + "".join(f"{n:>11,}" for n in found["lengths"])]
            for kind in KINDS:
                values = dict(zip(*series(found, key, kind, way), strict=True))
                cells = (f"{values[n] * scale:>11.1f}" if n in values else f"{'not run':>11}" for n in found["lengths"])
                lines.append(f"{kind:14}" + "".join(cells))
    return "\n".join(lines)


def html(found: dict[str, Any]) -> str:
    """The page."""
    exact = [name for name, kind in KINDS.items() if kind.exact]
    others = [FULL, *(name for name, kind in KINDS.items() if not kind.exact)]
    groups = {"Every position sees every position": exact, "Something else is computed": others}
    sections = [
        page.Section(
            "Beside the full attention",
            f"n positions, width d, m = {SMALL}. Exponents fit the larger half of the lengths, forward and backward.",
            tables=[_summary(found)],
        )
    ]
    for title, names in groups.items():
        plots = [
            _plot(found, f"{what}, {WAYS[way]}", key, unit, scale, names, way)
            for what, key, unit, scale in (("Time", "seconds", "ms", 1e3), ("Memory", "temporaries", "MiB", 1 / MIB))
            for way in WAYS
        ]
        drawn = [plot for plot in plots if plot.curves]
        sections.append(page.Section(title, "Axes are logarithmic: a power is a straight line.", drawn))
    lead = (
        "One self-attention of an encoder, projections included. Memory is the compiler's account of what a program "
        f"needs besides its arguments and results; what needs more than {found['memory_limit'] / GIB:g} GiB was "
        "compiled and not run. The window, Performer and Linformer compute something else than the full attention, so "
        "this says what they save and nothing of what they lose."
    )
    return page.render("Attention by length", lead, found["facts"], found["warning"], sections)


def _plot(
    found: dict[str, Any], caption: str, key: str, unit: str, scale: float, names: Sequence[str], way: str
) -> page.Plot:
    curves, powers = [], []
    for hue, name in enumerate(names):
        lengths, values = series(found, key, name, way)
        if lengths:
            curves.append(page.Curve(name, lengths, [value * scale for value in values], hue))
        if len(lengths) >= 3:
            powers.append(f"{name} n^{exponent(lengths, values):.2f}")
    return page.Plot(caption, unit, "sequence length n", curves, f"Towards the longest: {', '.join(powers) or '–'}.")


def _summary(found: dict[str, Any]) -> page.Table:
    def power(key: str, name: str) -> str:
        lengths, values = series(found, key, name, "training")
        return f"n^{exponent(lengths, values):.2f}" if len(lengths) >= 3 else "not run"

    def beyond(key: str, name: str) -> str:
        return "–" if name == FULL else overtakes(found, key, name, "training")

    rows = [
        [
            name,
            kind.promise,
            *(cell for key in ("seconds", "temporaries") for cell in (power(key, name), beyond(key, name))),
        ]
        for name, kind in KINDS.items()
    ]
    columns = ["attention", "what it promises", "time", "faster from n =", "memory", "smaller from n ="]
    return page.Table(columns, rows)


def main() -> None:
    """Run the script; see the module's text."""
    parser = page_command.parser(__doc__, "attention_length")
    parser.add_argument("--quick", action="store_true", help="only up to n = 1,024")
    parser.add_argument("--memory", type=float, default=8.0, help="GiB of temporaries above which none is run (8)")
    options = parser.parse_args()
    if options.memory <= 0:
        parser.error("--memory: more than 0")
    choose_platform()
    keep_freed_memory()
    found = measure(LENGTHS[:4] if options.quick else LENGTHS, options.rounds, options.memory * GIB)
    page_command.deliver(found, options, table, html)


if __name__ == "__main__":
    main()
