"""Feed-forward network, residual connection and the two kinds of layer, section 3.1 and 3.3."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from t2t_jax import config
from t2t_jax.model.attention import MultiHeadAttention
from t2t_jax.model.dropout import Dropout
from t2t_jax.model.linear import linear


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W1 + b1) W2 + b2, equation 2, at every position alike; or with swish instead of max(0, ·)."""

    config: config.Model
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, *, deterministic: bool) -> jax.Array:
        d_model, d_ff = self.config.d_model, self.config.d_ff
        xavier = nn.initializers.xavier_uniform()
        widen = linear(self, "w1", xavier, ("embed", "mlp"), (d_model, d_ff), self.dtype, bias="b1")
        narrow = linear(self, "w2", xavier, ("mlp", "embed"), (d_ff, d_model), self.dtype, bias="b2")
        activation = nn.relu if self.config.activation == "relu" else nn.swish
        return narrow(Dropout(self.config.relu_dropout)(activation(widen(x)), deterministic=deterministic))


class LayerNorm(nn.Module):
    """Layer normalisation over D, computed in float32."""

    dtype: jnp.dtype
    epsilon: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        norm = nn.LayerNorm(epsilon=self.epsilon, dtype=jnp.float32, name="norm")
        return norm(x.astype(jnp.float32)).astype(self.dtype)


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), section 3.1; with norm="pre", x + Dropout(Sublayer(LayerNorm(x)))."""

    config: config.Model
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, sublayer: Callable[[jax.Array], jax.Array], *, deterministic: bool) -> jax.Array:
        norm = LayerNorm(self.dtype, self.config.norm_epsilon)
        dropout = functools.partial(Dropout(self.config.dropout), deterministic=deterministic)
        y = norm(x + dropout(sublayer(x))) if self.config.norm == "post" else x + dropout(sublayer(norm(x)))
        return nn.with_logical_constraint(y, ("batch", "length", "activation"))


def attention(config: config.Model, dtype: jnp.dtype, fused: str | None) -> MultiHeadAttention:
    """Multi-head attention of the config's sizes."""
    widths = config.d_model, config.num_heads, config.key_width, config.value_width
    return MultiHeadAttention(*widths, config.attention_dropout, dtype, biases=config.biases == "all", fused=fused)


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network."""

    config: config.Model
    dtype: jnp.dtype
    fused: str | None = None

    def setup(self) -> None:
        self.self_attention = attention(self.config, self.dtype, self.fused)
        self.feed_forward = FeedForward(self.config, self.dtype)
        self.residuals = [Residual(self.config, self.dtype) for _ in range(2)]

    def __call__(self, x: jax.Array, mask: jax.Array, *, deterministic: bool) -> jax.Array:
        """x [B, S, D], mask [B, 1, 1, S] of real positions; returns [B, S, D]."""

        def attend(y: jax.Array) -> jax.Array:
            keys, values = self.self_attention.keys_values(y)
            return self.self_attention(y, keys, values, mask, deterministic=deterministic)

        def transform(y: jax.Array) -> jax.Array:
            return self.feed_forward(y, deterministic=deterministic)

        x = self.residuals[0](x, attend, deterministic=deterministic)
        return self.residuals[1](x, transform, deterministic=deterministic)


class LayerCache(NamedTuple):
    """One decoder layer's keys and values of the tokens decoded so far, of all of a row's hypotheses.

    It is never put in another order: a hypothesis knows which of them its past was written by.
    """

    keys: jax.Array  # [B, H, K, T W]
    values: jax.Array  # [B, H, T W, V]


class DecoderLayer(nn.Module):
    """Causal self-attention, attention over the encoder's output, then the feed-forward network."""

    config: config.Model
    dtype: jnp.dtype
    fused: str | None = None

    def setup(self) -> None:
        self.self_attention = attention(self.config, self.dtype, self.fused)
        self.cross_attention = attention(self.config, self.dtype, self.fused)
        self.feed_forward = FeedForward(self.config, self.dtype)
        self.residuals = [Residual(self.config, self.dtype) for _ in range(3)]

    def memory_keys_values(self, memory: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Keys and values of the encoder's output [B, S, D], the same at every decoding step."""
        return self.cross_attention.keys_values(memory)

    def __call__(
        self,
        x: jax.Array,
        causal_mask: jax.Array,
        memory: tuple[jax.Array, jax.Array],
        memory_mask: jax.Array,
        *,
        deterministic: bool,
    ) -> jax.Array:
        """All target positions at once: x [B, T, D], masks [1, 1, T, T] and [B, 1, 1, S]; returns [B, T, D]."""

        def attend(y: jax.Array) -> jax.Array:
            keys, values = self.self_attention.keys_values(y)
            return self.self_attention(y, keys, values, causal_mask, deterministic=deterministic)

        def attend_to_memory(y: jax.Array) -> jax.Array:
            return self.cross_attention(y, *memory, memory_mask, deterministic=deterministic)

        def transform(y: jax.Array) -> jax.Array:
            return self.feed_forward(y, deterministic=deterministic)

        x = self.residuals[0](x, attend, deterministic=deterministic)
        x = self.residuals[1](x, attend_to_memory, deterministic=deterministic)
        return self.residuals[2](x, transform, deterministic=deterministic)

    def memory_cache(self, memory: jax.Array) -> LayerCache:
        """The same for decoding, with the positions of the encoder's output in place of T W."""
        return _as_cache(*self.memory_keys_values(memory))

    def step(
        self,
        x: jax.Array,
        index: jax.Array,
        past: jax.Array,
        cache: LayerCache,
        memory: LayerCache,
        memory_mask: jax.Array,
    ) -> tuple[jax.Array, LayerCache]:
        """One target position of W hypotheses a row: x [B, W, D] at position `index`; returns [B, W, D] and the cache.

        The W hypotheses of a row are W queries over one copy of its memory, and over the keys that all of them have
        written, of which `past` [B, 1, W, T W] masks those of others. Copying each one's past together costs more.
        """
        grown = cache

        def attend(y: jax.Array) -> jax.Array:
            nonlocal grown
            new, place = _as_cache(*self.self_attention.keys_values(y)), index * y.shape[1]
            grown = LayerCache(
                jax.lax.dynamic_update_slice_in_dim(cache.keys, new.keys, place, axis=3),
                jax.lax.dynamic_update_slice_in_dim(cache.values, new.values, place, axis=2),
            )
            return self.self_attention.over_cache(y, *grown, past)

        def attend_to_memory(y: jax.Array) -> jax.Array:
            return self.cross_attention.over_cache(y, *memory, memory_mask)

        x = self.residuals[0](x, attend, deterministic=True)
        x = self.residuals[1](x, attend_to_memory, deterministic=True)
        return self.residuals[2](x, lambda y: self.feed_forward(y, deterministic=True), deterministic=True), grown


def _as_cache(keys: jax.Array, values: jax.Array) -> LayerCache:
    """Keys [B, S, H, K] and values [B, S, H, V] as a cache has them."""
    return LayerCache(jnp.transpose(keys, (0, 2, 3, 1)), jnp.swapaxes(values, 1, 2))
