"""Normalisation of a position's vector, section 3.1."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn


class LayerNorm(nn.Module):
    """Layer normalisation over D, computed in float32."""

    dtype: jnp.dtype
    epsilon: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        norm = nn.LayerNorm(epsilon=self.epsilon, dtype=jnp.float32, name="norm")
        return norm(x.astype(jnp.float32)).astype(self.dtype)
