"""Claims about attention that costs less than all pairs: how far its numbers are from the exact ones.

Performer: the error of its output by the number of random features, orthogonal as in the model and independent, on
Gaussian queries and keys. Linformer: what it computes has weights of rank m at most, so the best matrix of that rank is
the least error it can have; how it comes near, training has to find out.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import page
from benchmarks.fits import exponent
from t2t_jax.model.choices.performer import directions, positive_features, quotient

LENGTH, WIDTH = 256, 32  # positions, and d_k
FEATURES = (16, 32, 64, 128, 256, 512, 1024)
RANKS = (8, 16, 32, 64, 128)
SIZES = (0.25, 0.5, 1.0)  # standard deviation of queries and keys, which decides how sharp attention is


def independent(width: int, count: int, seed: int) -> np.ndarray:
    """Gaussian directions [M, K] without regard to one another."""
    return np.random.RandomState(seed).standard_normal((count, width)).astype(np.float32)


def drawn(size: float, seed: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries, keys and values [1, n, 1, K]; the values of variance one."""
    rng = np.random.default_rng(seed)
    queries, keys, values = (jnp.asarray(rng.standard_normal((1, LENGTH, 1, WIDTH)), jnp.float32) for _ in range(3))
    return size * queries, size * keys, values


def weights(queries: jax.Array, keys: jax.Array) -> jax.Array:
    """The softmax of all scores, [n, n]."""
    return jax.nn.softmax(jnp.einsum("qk,sk->qs", queries[0, :, 0], keys[0, :, 0]) * WIDTH**-0.5)


def relative_error(found: Any, exact: Any) -> float:
    """The Frobenius norm of the difference over that of the exact one."""
    return float(jnp.linalg.norm(jnp.ravel(found - exact)) / jnp.linalg.norm(jnp.ravel(exact)))


@jax.jit
def by_features(queries: jax.Array, keys: jax.Array, values: jax.Array, omega: jax.Array) -> jax.Array:
    """Performer's output [1, n, 1, K] by directions [M, K]."""
    queries, keys = positive_features(queries, omega, of_queries=True), positive_features(keys, omega)
    return quotient("bqhm,bhmv->bqhv", queries, jnp.einsum("bshm,bshv->bhmv", keys, values), jnp.sum(keys, axis=1))


def performer_error(size: float, count: int, seed: int, orthogonal: bool) -> float:
    """Relative error of the output."""
    queries, keys, values = drawn(size, seed)
    omega = (directions if orthogonal else independent)(WIDTH, count, seed)
    exact = weights(queries, keys) @ values[0, :, 0]
    return relative_error(by_features(queries, keys, values, omega)[0, :, 0], exact)


@functools.cache
def singular_values(size: float, seed: int) -> np.ndarray:
    """Of the attention weights, in falling order."""
    queries, keys, _ = drawn(size, seed)
    return np.linalg.svd(np.asarray(weights(queries, keys), np.float64), compute_uv=False)


def rank_error(size: float, rank: int, seed: int) -> float:
    """Relative error of the best weights of a rank (Eckart and Young)."""
    squares = np.square(singular_values(size, seed))
    return float(np.sqrt(squares[rank:].sum() / squares.sum()))


def measure(seeds: Sequence[int], features: Sequence[int] = FEATURES, ranks: Sequence[int] = RANKS) -> dict[str, Any]:
    """Mean errors over seeds, which draw queries, keys, values and features."""
    performer = [
        {"size": size, "features": count, "orthogonal": orthogonal}
        | {"error": statistics.mean(performer_error(size, count, seed, orthogonal) for seed in seeds)}
        for size in SIZES
        for orthogonal in (True, False)
        for count in features
    ]
    linformer = [
        {"size": size, "rank": rank, "error": statistics.mean(rank_error(size, rank, seed) for seed in seeds)}
        for size in SIZES
        for rank in ranks
    ]
    return {"seeds": list(seeds), "performer": performer, "linformer": linformer}


def sections(found: dict[str, Any]) -> list[page.Section]:
    """The parts of the page."""
    how = (
        f"{LENGTH} positions, d_k = {WIDTH}; queries and keys are Gaussian of deviation s, which makes attention the "
        f"sharper the larger it is; the mean over {len(found['seeds'])} seeds."
    )
    return [
        page.Section(
            "Random features for the exponential",
            "Claimed: a softmax can be had without its pairs, as the mean of products of random features, with an "
            "error that falls as more are drawn, and faster if they are drawn orthogonal (Choromanski et al. 2021). "
            f"Measured: the output's error relative to its size, {how}",
            [_performer_plot(found)],
            [_performer_table(found)],
        ),
        page.Section(
            "Attention of low rank",
            "Claimed: attention matrices are nearly of low rank, so keys and values may be mixed into a fixed number "
            "of positions m (Wang et al. 2020). Measured: the relative error of the best weights of rank m, which is "
            f"the least that m positions can do. Weights that were trained may be of lower rank than these: {how}",
            tables=[_rank_table(found)],
        ),
    ]


def _of(found: dict[str, Any], size: float, orthogonal: bool) -> tuple[list[int], list[float]]:
    chosen = [p for p in found["performer"] if (p["size"], p["orthogonal"]) == (size, orthogonal)]
    return [p["features"] for p in chosen], [p["error"] for p in chosen]


def _performer_plot(found: dict[str, Any]) -> page.Plot:
    drawn_as = {True: "orthogonal", False: "independent"}
    curves = [
        page.Curve(f"s = {size:g}, {name}", *_of(found, size, orthogonal), hue, dashed=not orthogonal)
        for hue, size in enumerate(SIZES)
        for orthogonal, name in drawn_as.items()
    ]
    powers = ", ".join(f"M^{exponent(*_of(found, size, True)):.2f} for s = {size:g}" for size in SIZES)
    return page.Plot("Performer’s error", "of the output’s size", "features M", curves, f"Orthogonal: {powers}.")


def _performer_table(found: dict[str, Any]) -> page.Table:
    features = _of(found, SIZES[0], True)[0]
    rows = [
        [f"s = {size:g}, {name}", *(f"{error:.3f}" for error in _of(found, size, orthogonal)[1])]
        for size in SIZES
        for orthogonal, name in ((True, "orthogonal"), (False, "independent"))
    ]
    return page.Table(["features", *(f"{count:,}" for count in features)], rows)


def _rank_table(found: dict[str, Any]) -> page.Table:
    ranks = list(dict.fromkeys(p["rank"] for p in found["linformer"]))
    rows = [
        [f"s = {size:g}", *(f"{p['error']:.3f}" for p in found["linformer"] if p["size"] == size)] for size in SIZES
    ]
    return page.Table(["m", *map(str, ranks)], rows)
