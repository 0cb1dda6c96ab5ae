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

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from benchmarks import layers, page, page_command
from benchmarks.fits import crossing, exponent
from benchmarks.layer_types_page import WAYS, html, table, values_of
from benchmarks.paths import influence, path_length
from benchmarks.timing import mean_seconds, spread
from t2t_jax.parallel.memory import keep_freed_memory
from t2t_jax.parallel.platform import choose_platform
from t2t_jax.planning.compiled_text import CompiledText

Layer: TypeAlias = Callable[[layers.Weights, jax.Array], jax.Array]

PATH_LENGTHS, PATH_WIDTH = (8, 16, 32, 64, 128), 4  # n and d at which paths are found


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


def _fits(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Exponents of n at the smallest width and of d at the greatest length, where a term in n² has most weight."""
    lengths, widths = found["lengths"], found["widths"]
    return {
        kind: {
            f"{what}_{size}": exponent(sizes, values_of(found, key, kind, **fixed))
            for what, key in (("time", "seconds"), ("flops", "gflop"))
            for size, sizes, fixed in (("n", lengths, {"d": widths[0]}), ("d", widths, {"n": lengths[-1]}))
        }
        for kind in dict.fromkeys(p["kind"] for p in found["points"])
    }


def _crossings(found: dict[str, Any]) -> list[dict[str, Any]]:
    """At each width the length from which self-attention costs more than recurrence; as text where out of sight."""

    def length(key: str, way: str, d: int) -> float | str:
        ours, theirs = (values_of(found, key, kind, way, d=d) for kind in ("self-attention", "recurrent"))
        place = crossing(found["lengths"], ours, theirs)
        if place is not None:
            return round(place)
        return f"beyond {found['lengths'][-1]:,}" if ours[-1] <= theirs[-1] else f"below {found['lengths'][0]:,}"

    return [
        {"d": d, "by_flops": length("gflop", "training", d)}
        | {f"by_{way}_time": length("seconds", way, d) for way in WAYS}
        for d in found["widths"]
    ]


def main() -> None:
    """Run the script; see the module's text."""
    parser = page_command.parser(__doc__, "layer_types")
    parser.add_argument("--quick", action="store_true", help="only up to n = 512 and d = 256")
    parser.add_argument("--kernel", type=int, default=3, help="k, odd: positions that a convolution sees (3)")
    parser.add_argument(
        "--neighbourhood", type=int, default=32, help="r, even: restricted attention sees r/2 a side (32)"
    )
    parser.add_argument("--rows", type=int, default=4, help="sequences in a batch, two at least (4)")
    options = parser.parse_args()
    if options.kernel < 3 or options.kernel % 2 == 0:
        parser.error("--kernel: an odd number from 3 on, a position and as many on either side")
    if options.neighbourhood < 2 or options.neighbourhood % 2:
        parser.error("--neighbourhood: an even number from 2 on, half of it on either side")
    if options.rows < 2:
        parser.error("--rows: at least 2; what the compiler makes of products with a single row is no product any more")
    choose_platform()
    keep_freed_memory()
    lengths = (32, 64, 128, 256, 512) if options.quick else (32, 64, 128, 256, 512, 1024, 2048)
    widths = (64, 128, 256) if options.quick else (64, 128, 256, 512)
    found = measure(lengths, widths, options.kernel, options.neighbourhood, options.rows, options.rounds)
    page_command.deliver(found, options, table, html)


if __name__ == "__main__":
    main()
