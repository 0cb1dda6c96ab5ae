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
    """One decoder layer's keys and values of the tokens decoded so far."""

    keys: jax.Array  # [B, W, T, H, K]
    values: jax.Array  # [B, W, T, H, V]


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

        return self._rest(self.residuals[0](x, attend, deterministic=deterministic), memory, memory_mask, deterministic)

    def step(
        self,
        x: jax.Array,
        index: jax.Array,
        cache: LayerCache,
        memory: tuple[jax.Array, jax.Array],
        memory_mask: jax.Array,
    ) -> tuple[jax.Array, LayerCache]:
        """One target position of W hypotheses a row: x [B, W, D] at position `index`; returns [B, W, D] and the cache.

        The W hypotheses of a row read one copy of its memory: to the cross-attention they are W queries.
        """
        rows, beam, length = cache.keys.shape[:3]
        grown = cache

        def attend(y: jax.Array) -> jax.Array:
            nonlocal grown
            key, value = self.self_attention.keys_values(y.reshape(rows * beam, 1, -1))
            start = (0, 0, index, 0, 0)
            grown = LayerCache(
                jax.lax.dynamic_update_slice(cache.keys, key.reshape(rows, beam, *key.shape[1:]), start),
                jax.lax.dynamic_update_slice(cache.values, value.reshape(rows, beam, *value.shape[1:]), start),
            )
            seen = (jnp.arange(length) <= index)[None, None, None, :]
            keys, values = (a.reshape(rows * beam, *a.shape[2:]) for a in grown)
            attended = self.self_attention(y.reshape(rows * beam, 1, -1), keys, values, seen, deterministic=True)
            return attended.reshape(rows, beam, -1)

        return self._rest(self.residuals[0](x, attend, deterministic=True), memory, memory_mask, True), grown

    def _rest(
        self, x: jax.Array, memory: tuple[jax.Array, jax.Array], memory_mask: jax.Array, deterministic: bool
    ) -> jax.Array:
        def attend_to_memory(y: jax.Array) -> jax.Array:
            return self.cross_attention(y, *memory, memory_mask, deterministic=deterministic)

        def transform(y: jax.Array) -> jax.Array:
            return self.feed_forward(y, deterministic=deterministic)

        x = self.residuals[1](x, attend_to_memory, deterministic=deterministic)
        return self.residuals[2](x, transform, deterministic=deterministic)
