"""Claims about shared keys: with fewer heads of keys and values a decoder's cache is smaller and its steps faster.

A search's cache is made as the model makes it, and steps of decoding are taken from the middle of it on.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import jax

from benchmarks import page
from benchmarks.decoding_steps import STEPS, Sizes, decoding_steps
from benchmarks.timing import mean_seconds
from t2t_jax import config, model
from t2t_jax.model import EncoderDecoder

ROWS, BEAM, HEADS, SOURCE = 8, 4, 8, 32
VOCABULARY = 1000  # small, so that logits don't hide what attention costs
SHARED = {"multi-head": HEADS, "grouped-query": 2, "multi-query": 1}


def settings(kv_heads: int, layers: int = 2) -> config.Model:
    """Two layers of d_model 256 with 8 heads, of which so many for keys and values."""
    return config.Model(layers, 256, 1024, HEADS, num_kv_heads=kv_heads)


def steps(kv_heads: int, length: int, layers: int = 2) -> tuple[Callable[[], object], int]:
    """A function that takes `STEPS` steps of decoding, and the bytes of keys and values of its past."""
    net = model.build(settings(kv_heads, layers), VOCABULARY)
    assert isinstance(net, EncoderDecoder)
    run, cache = decoding_steps(net, Sizes(ROWS, BEAM, SOURCE, length))
    return run, sum(leaf.nbytes for leaf in jax.tree.leaves(cache.layers))


def measure(lengths: Sequence[int], rounds: int) -> dict[str, Any]:
    """Bytes of the cache, and seconds of a step in turns, by heads and by positions that the cache has room for."""
    made = {(name, length): steps(heads, length) for name, heads in SHARED.items() for length in lengths}
    seconds: dict[tuple[str, int], list[float]] = {place: [] for place in made}
    for run, _ in made.values():
        run()
    for _ in range(rounds):
        for place, (run, _) in made.items():
            seconds[place].append(mean_seconds(run, 0.03) / STEPS)
    return {
        "points": [
            {"kind": name, "n": length, "bytes": kept, "seconds": statistics.median(seconds[name, length])}
            for (name, length), (_, kept) in made.items()
        ]
    }


def section(found: dict[str, Any]) -> page.Section:
    """The part of the page."""
    of = {name: [p for p in found["points"] if p["kind"] == name] for name in SHARED}
    lengths = [p["n"] for p in of["multi-head"]]
    curves = {
        key: [
            page.Curve(name, lengths, [p[key] * scale for p in points], hue)
            for hue, (name, points) in enumerate(of.items())
        ]
        for key, scale in (("bytes", 2**-20), ("seconds", 1e3))
    }
    whole, last = of["multi-head"][-1], {name: points[-1] for name, points in of.items()}
    smaller, faster = (
        ", ".join(f"{name} {whole[key] / last[name][key]:.2f}" for name in SHARED if name != "multi-head")
        for key in ("bytes", "seconds")
    )
    rows = [
        [f"{name}, n = {p['n']:,}", str(SHARED[name]), f"{p['bytes'] / 2**20:.2f}", f"{1e3 * p['seconds']:.2f}"]
        for name, points in of.items()
        for p in points
    ]
    return page.Section(
        "Shared keys and values",
        "Claimed: a decoding step is bound by reading the keys and values of the past, so that one head of them for "
        "all queries makes it much faster (Shazeer 2019), and a few heads nearly so (Ainslie et al. 2023). Measured: "
        f"the cache of two layers, d_model 256, {HEADS} query heads, {ROWS} rows of {BEAM} hypotheses, and a step of "
        "the whole model on it. That bandwidth is what binds is a claim about accelerators.",
        [
            page.Plot("Cache", "MiB", "positions n", curves["bytes"], f"Times smaller at the longest: {smaller}."),
            page.Plot("A step", "ms", "positions n", curves["seconds"], f"Times as fast at the longest: {faster}."),
        ],
        [page.Table(["", "key heads", "cache, MiB", "ms a step"], rows)],
    )
