"""States that a search's hypotheses carry from step to step, where each goes on from one of those before."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def of_parents(states: Any, index: jax.Array, writers: jax.Array) -> Any:
    """For leaves [B, W, …] after the position before `index`, those of each hypothesis's past.

    `writers` is a step's [B, W, T]: the last position of a hypothesis's past says whose state it goes on from.
    """
    parents = jax.lax.dynamic_index_in_dim(writers, jnp.maximum(index - 1, 0), axis=2, keepdims=False)
    return jax.tree.map(lambda leaf: jax.vmap(lambda row, order: row[order])(leaf, parents), states)
