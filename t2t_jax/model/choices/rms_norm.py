"""Normalisation by size alone: Zhang and Sennrich, "Root mean square layer normalization" (2019)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn

from t2t_jax.model.parameters import parameter


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + epsilon) * scale over D, computed in float32: neither centred nor shifted."""

    dtype: jnp.dtype
    epsilon: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = parameter(self, "scale", nn.initializers.ones, (None,), x.shape[-1:])
        x = x.astype(jnp.float32)
        size = jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + self.epsilon)
        return (x * size * scale).astype(self.dtype)
