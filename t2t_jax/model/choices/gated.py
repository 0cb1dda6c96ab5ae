"""A feed-forward network whose inner units are gated: Shazeer, "GLU variants improve Transformer" (2020)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn

from t2t_jax import config
from t2t_jax.model.dropout import Dropout
from t2t_jax.model.linear import linear


class GatedFeedForward(nn.Module):
    """FFN(x) = (swish(x W1) * x W3) W2 with d_ff inner units, without biases, as its source has it."""

    config: config.Model
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, real: jax.Array | None = None, *, deterministic: bool) -> jax.Array:
        """As `FeedForward`."""
        d_model, d_ff = self.config.d_model, self.config.d_ff
        xavier = nn.initializers.xavier_uniform()
        gate, widen = (linear(self, w, xavier, ("embed", "mlp"), (d_model, d_ff), self.dtype) for w in ("w1", "w3"))
        narrow = linear(self, "w2", xavier, ("mlp", "embed"), (d_ff, d_model), self.dtype)
        inner = nn.swish(gate(x)) * widen(x)
        return narrow(Dropout(self.config.relu_dropout)(inner, deterministic=deterministic))
