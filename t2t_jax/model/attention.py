"""Scaled dot-product and multi-head attention, section 3.2."""

from __future__ import annotations

from typing import Any, NamedTuple

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


class LayerCache(NamedTuple):
    """One attention's keys and values while decoding: of the encoder's output, or of what a row's hypotheses wrote.

    It is never put in another order: a hypothesis knows which of them its past was written by.
    """

    keys: jax.Array  # [B, H, K, T W], or S in place of T W
    values: jax.Array  # [B, H, T W, V]

    def written(self, new: LayerCache, place: jax.Array) -> LayerCache:
        """With the W new keys and values from `place` on."""
        return LayerCache(
            jax.lax.dynamic_update_slice_in_dim(self.keys, new.keys, place, axis=3),
            jax.lax.dynamic_update_slice_in_dim(self.values, new.values, place, axis=2),
        )

    def length(self, writers: jax.Array) -> int:
        """T, the positions that there is room for, where `writers` is a step's."""
        return self.keys.shape[3] // writers.shape[1]

    def lengthened(self, size: int) -> LayerCache:
        """With room for `size` keys a row and head, W at each position."""
        more = (0, size - self.keys.shape[3])
        keys = jnp.pad(self.keys, [(0, 0), (0, 0), (0, 0), more])
        return LayerCache(keys, jnp.pad(self.values, [(0, 0), (0, 0), more, (0, 0)]))


def as_cache(keys: jax.Array, values: jax.Array) -> LayerCache:
    """Keys [B, S, H, K] and values [B, S, H, V] as a cache has them."""
    return LayerCache(jnp.transpose(keys, (0, 2, 3, 1)), jnp.swapaxes(values, 1, 2))


class Past(NamedTuple):
    """Where a step of decoding stands, and whose past is whose."""

    at: jax.Array  # [], the position
    writers: jax.Array  # [B, W, at least T]: which hypothesis of the row wrote each position of each one's past
    own: jax.Array  # [B, 1, W, T W]: what of all that they wrote is a hypothesis's own past, itself included


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

        self.query = self.projection("query", split, self.num_heads, self.d_k)
        self.key = self.projection("key", split, self.memory_heads, self.d_k)
        self.value = self.projection("value", split, self.memory_heads, self.d_v)
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

    @property
    def memory_heads(self) -> int:
        """Heads that keys and values have."""
        return self.num_heads

    def projection(self, name: str, init: nn.initializers.Initializer, heads: int, width: int) -> Linear:
        """A projection from d_model to heads of a width."""
        bias = f"{name}_bias" if self.biases else None
        shape = self.d_model, heads, width
        return linear(self, name, init, ("embed", "heads", "kv"), shape, self.dtype, bias=bias)

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

    def empty_cache(self, rows: int, beam: int, length: int) -> LayerCache:
        """For self-attention when decoding, W = `beam` hypotheses a row and T = `length`."""
        size = length * beam
        return LayerCache(
            jnp.zeros((rows, self.memory_heads, self.d_k, size), self.dtype),
            jnp.zeros((rows, self.memory_heads, size, self.d_v), self.dtype),
        )

    def memory_cache(self, memory: jax.Array) -> LayerCache:
        """For attention over the encoder's output [B, S, D] when decoding."""
        return as_cache(*self.keys_values(memory))

    def step(self, x: jax.Array, past: Past, cache: LayerCache) -> tuple[jax.Array, LayerCache]:
        """Self-attention at one position of W hypotheses a row: x [B, W, D]; returns [B, W, D] and the cache after it.

        The hypotheses are queries over the keys that all of them have written, of which those of others are masked.
        Copying each one's past together costs more.
        """
        grown = cache.written(as_cache(*self.keys_values(x)), past.at * x.shape[1])
        return self.over_cache(x, grown, past.own), grown

    def over_cache(self, x: jax.Array, cache: LayerCache, mask: jax.Array) -> jax.Array:
        """Attend from x [B, Q, D] over a cache's S keys, that lie as they are multiplied; returns [B, Q, D].

        mask [B, 1, Q or 1, S]. Keys in another order would be copied into this one at every step.
        """
        queries = jnp.swapaxes(self.query(x) * self.d_k**-0.5, 1, 2)
        scores = jnp.einsum("bhqk,bhks->bhqs", queries, cache.keys, preferred_element_type=jnp.float32)
        weights = jax.nn.softmax(jnp.where(mask, scores, MASKED), axis=-1).astype(self.dtype)
        return self.output(jnp.swapaxes(jnp.einsum("bhqs,bhsv->bhqv", weights, cache.values), 1, 2))
