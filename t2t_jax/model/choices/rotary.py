"""Rotary positions: Su et al., "RoFormer: Enhanced Transformer with rotary position embedding" (2021)."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from t2t_jax.model.choices.distances import Distances


@dataclass(frozen=True)
class Rotary(Distances):
    """Turns each pair of numbers (x_2i, x_2i+1) at position m by the angle m / 10000^(2i/d_k), section 3.2.2 there.

    The product of a query and a key then depends on their distance alone.
    """

    def turned(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """As `Distances.turned`; angles, sines and cosines in float32."""
        frequencies = 10000.0 ** (-jnp.arange(0, x.shape[-1], 2) / x.shape[-1])
        angles = (positions[:, None] * frequencies)[:, None, :]  # [n, 1, K / 2]
        even, odd = x[..., 0::2], x[..., 1::2]
        cosine, sine = jnp.cos(angles), jnp.sin(angles)
        return (
            jnp.stack([even * cosine - odd * sine, even * sine + odd * cosine], axis=-1)
            .reshape(x.shape)
            .astype(x.dtype)
        )
