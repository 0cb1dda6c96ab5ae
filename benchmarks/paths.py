"""How many layers a signal passes from one position to another: measured by what a layer's derivative says."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np


def influence(layer: Callable[[jax.Array], jax.Array], n: int, d: int) -> np.ndarray:
    """Which inputs influence which outputs of a layer from [1, n, d] to [1, n, d].

    Returns:
      [n, n], True at [i, j] where output i has a derivative by input j that is not zero, at a random input.
    """
    key, other = jax.random.split(jax.random.key(1))
    x, direction = jax.random.normal(key, (n, d)), jax.random.normal(other, (d,))
    derivative = jax.jit(jax.jacrev(lambda x: layer(x[None])[0] @ direction))(x)  # [n, n, d]
    return np.asarray(jnp.any(derivative != 0, axis=-1))


def path_length(layers: Iterable[np.ndarray]) -> int:
    """How many layers, whose influences these are, it takes until every position has heard of all before it.

    That is the maximum path length of Table 1. Later positions don't count: a recurrent layer never hears of them.

    Raises:
      ValueError: the layers end before that.
    """
    reach: np.ndarray | None = None
    for count, one in enumerate(layers, start=1):
        reach = one if reach is None else one.astype(np.float32) @ reach > 0
        if np.all(reach | ~np.tri(len(reach), dtype=bool)):
            return count
    raise ValueError("some position never hears of one before it")
