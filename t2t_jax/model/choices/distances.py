"""Positions that are added to no embedding: self-attention sees how far apart a query and a key are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

Side = Literal["encoder", "decoder"]
Bias = Callable[[jax.Array, jax.Array], jax.Array]
"""(positions of queries [Q], of keys [S]) -> what is added to their scores [H, Q, S], in float32."""


@dataclass(frozen=True)
class Distances:
    """What attention asks of positions; this one answers as if there were none."""

    def __call__(self, length: int) -> jax.Array:
        """What is added to embeddings: nothing, [length, 1]."""
        return jnp.zeros((length, 1))

    def turned(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """Queries or keys [B, n, H, K] as their positions [n] (or [1], of all) change them."""
        return x

    def bias(self, side: Side) -> Bias | None:
        """What distances add to the scores of a stack's self-attention."""
        return None
