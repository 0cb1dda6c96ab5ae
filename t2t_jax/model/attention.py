"""Scaled dot-product and multi-head attention, section 3.2."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from t2t_jax.model.dropout import Dropout
from t2t_jax.model.linear import Linear, linear

# Large enough that exp() of it is 0, finite so that a row with nothing to attend to gives numbers instead of NaN.
MASKED = -1e9


def scaled_dot_product_attention(
    queries: jax.Array,
    keys: jax.Array,
    mask: jax.Array,
) -> jax.Array:
    """The weights softmax(Q K^T / sqrt(d_k)) of equation 1, in float32.

    Args:
      queries: [B, Q, H, K].
      keys: [B, S, H, K].
      mask: [B or 1, 1, Q or 1, S], True where a query may attend.

    Returns:
      [B, H, Q, S]; each row sums to 1.
    """
    scale = queries.shape[-1] ** -0.5
    scores = jnp.einsum("bqhk,bshk->bhqs", queries * scale, keys, preferred_element_type=jnp.float32)
    return jax.nn.softmax(jnp.where(mask, scores, MASKED), axis=-1)


class MultiHeadAttention(nn.Module):
    """h heads in parallel, each with its own projections, joined by an output projection (section 3.2.2).

    The paper's projections have no biases; those of `config.Model.biases` "all" do. With `fused`, one of JAX's
    implementations of `jax.nn.dot_product_attention` computes weights and their sums of values in one.
    """

    d_model: int
    num_heads: int
    d_k: int
    d_v: int
    dropout: float
    dtype: jnp.dtype
    biases: bool = False
    fused: str | None = None

    def setup(self) -> None:
        split = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", in_axis=0, out_axis=(1, 2))
        join = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", in_axis=(0, 1), out_axis=2)

        def projection(name: str, width: int) -> Linear:
            bias = f"{name}_bias" if self.biases else None
            shape = self.d_model, self.num_heads, width
            return linear(self, name, split, ("embed", "heads", "kv"), shape, self.dtype, bias=bias)

        self.query, self.key, self.value = (
            projection(name, width) for name, width in (("query", self.d_k), ("key", self.d_k), ("value", self.d_v))
        )
        self.output = linear(
            self,
            "output",
            join,
            ("heads", "kv", "embed"),
            (self.num_heads, self.d_v, self.d_model),
            self.dtype,
            inputs=2,
            bias="output_bias" if self.biases else None,
        )
        self.weight_dropout = Dropout(self.dropout)

    def keys_values(self, memory: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Project what is attended to: [B, S, D] to keys [B, S, H, K] and values [B, S, H, V]."""
        return self.key(memory), self.value(memory)

    def __call__(
        self, x: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array, *, deterministic: bool
    ) -> jax.Array:
        """Attend from x [B, Q, D] over keys [B, S, H, K] and values [B, S, H, V]; returns [B, Q, D]."""
        queries = self.query(x)
        if self.fused is not None:
            implementation: Any = self.fused
            # cuDNN takes a mask for every pair of positions only.
            pairs = jnp.broadcast_to(mask, (*mask.shape[:2], queries.shape[1], keys.shape[1]))
            return self.output(
                jax.nn.dot_product_attention(queries, keys, values, mask=pairs, implementation=implementation)
            )
        weights = scaled_dot_product_attention(queries, keys, mask)
        self.sow("intermediates", "weights", weights)
        weights = self.weight_dropout(weights.astype(self.dtype), deterministic=deterministic)
        heads = jnp.einsum("bhqs,bshv->bqhv", weights, values)
        return self.output(heads)

    def over_cache(self, x: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array) -> jax.Array:
        """The same when decoding, over keys [B, H, K, S] and values [B, H, S, V] that lie as they are multiplied.

        x [B, Q, D], mask [B, 1, Q or 1, S]; returns [B, Q, D]. Other orders are copied into this one at every step.
        """
        queries = jnp.swapaxes(self.query(x) * self.d_k**-0.5, 1, 2)
        scores = jnp.einsum("bhqk,bhks->bhqs", queries, keys, preferred_element_type=jnp.float32)
        weights = jax.nn.softmax(jnp.where(mask, scores, MASKED), axis=-1).astype(self.dtype)
        return self.output(jnp.swapaxes(jnp.einsum("bhqs,bhsv->bhqv", weights, values), 1, 2))
