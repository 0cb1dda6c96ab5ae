"""Attention with linear biases: Press et al., "Train short, test long" (2022)."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from t2t_jax.model.choices.distances import Bias, Distances, Side


def slopes(heads: int) -> np.ndarray:
    """2^(-8/h), 2^(-16/h), …, 2^-8 for a power of two; else those of the power below, then every other of twice it."""
    power = 2 ** int(np.log2(heads))
    first = 2.0 ** (-8 * np.arange(1, power + 1) / power)
    between = 2.0 ** (-8 * np.arange(1, 2 * power + 1, 2) / (2 * power))
    return np.concatenate([first, between[: heads - power]])


@dataclass(frozen=True)
class Alibi(Distances):
    """Head h's score of a query at i and a key at j is lowered by m_h |i - j|.

    Its source is a causal model; that an encoder counts distance to both sides alike is the usual reading.
    """

    num_heads: int

    def bias(self, side: Side) -> Bias:
        """As `Distances.bias`."""
        slope = jnp.asarray(slopes(self.num_heads), jnp.float32)[:, None, None]
        return lambda queries, keys: -slope * jnp.abs(queries[:, None] - keys).astype(jnp.float32)
