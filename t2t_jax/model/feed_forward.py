"""The position-wise feed-forward network, section 3.3."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from t2t_jax import config
from t2t_jax.model.dropout import Dropout
from t2t_jax.model.linear import linear

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": nn.relu,
    "swish": nn.swish,
    "gelu": functools.partial(nn.gelu, approximate=False),
}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W1 + b1) W2 + b2, equation 2, at every position alike; or another function for max(0, ·)."""

    config: config.Model
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, real: jax.Array | None = None, *, deterministic: bool) -> jax.Array:
        """x [..., D] to [..., D]; which positions are `real` is for mixtures of experts (`choices/experts.py`)."""
        d_model, d_ff = self.config.d_model, self.config.d_ff
        xavier = nn.initializers.xavier_uniform()
        widen = linear(self, "w1", xavier, ("embed", "mlp"), (d_model, d_ff), self.dtype, bias="b1")
        narrow = linear(self, "w2", xavier, ("mlp", "embed"), (d_ff, d_model), self.dtype, bias="b2")
        activation = ACTIVATIONS[self.config.activation]
        return narrow(Dropout(self.config.relu_dropout)(activation(widen(x)), deterministic=deterministic))
