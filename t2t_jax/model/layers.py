"""Residual connection and the two kinds of layer, section 3.1."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from t2t_jax import config
from t2t_jax.model import sublayers
from t2t_jax.model.attention import LayerCache, Past
from t2t_jax.model.dropout import Dropout


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), section 3.1; with norm="pre", x + Dropout(Sublayer(LayerNorm(x)))."""

    config: config.Model
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, sublayer: Callable[[jax.Array], jax.Array], *, deterministic: bool) -> jax.Array:
        norm = sublayers.norm(self.config, self.dtype)
        dropout = functools.partial(Dropout(self.config.dropout), deterministic=deterministic)
        y = norm(x + dropout(sublayer(x))) if self.config.norm == "post" else x + dropout(sublayer(norm(x)))
        return nn.with_logical_constraint(y, ("batch", "length", "activation"))


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network."""

    config: config.Model
    dtype: jnp.dtype
    fused: str | None = None
    positions: Any = None
    """The stack's, for attentions that look at them themselves."""

    def setup(self) -> None:
        self.self_attention = sublayers.self_attention(self.config, self.dtype, self.fused, self.positions, "encoder")
        self.feed_forward = sublayers.feed_forward(self.config, self.dtype)
        self.residuals = [Residual(self.config, self.dtype) for _ in range(2)]

    def __call__(self, x: jax.Array, mask: jax.Array, *, deterministic: bool) -> jax.Array:
        """x [B, S, D], mask [B, 1, 1, S] of real positions; returns [B, S, D]."""

        def attend(y: jax.Array) -> jax.Array:
            keys, values = self.self_attention.keys_values(y)
            return self.self_attention(y, keys, values, mask, deterministic=deterministic)

        def transform(y: jax.Array) -> jax.Array:
            return self.feed_forward(y, mask[:, 0, 0], deterministic=deterministic)

        x = self.residuals[0](x, attend, deterministic=deterministic)
        return self.residuals[1](x, transform, deterministic=deterministic)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention over the encoder's output, then the feed-forward network."""

    config: config.Model
    dtype: jnp.dtype
    fused: str | None = None
    positions: Any = None
    """As `EncoderLayer.positions`."""

    def setup(self) -> None:
        self.self_attention = sublayers.self_attention(self.config, self.dtype, self.fused, self.positions, "decoder")
        self.cross_attention = sublayers.cross_attention(self.config, self.dtype, self.fused)
        self.feed_forward = sublayers.feed_forward(self.config, self.dtype)
        self.residuals = [Residual(self.config, self.dtype) for _ in range(3)]

    def memory_keys_values(self, memory: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Keys and values of the encoder's output [B, S, D], the same at every decoding step."""
        return self.cross_attention.keys_values(memory)

    def __call__(
        self,
        x: jax.Array,
        real: jax.Array,
        causal_mask: jax.Array,
        memory: tuple[jax.Array, jax.Array],
        memory_mask: jax.Array,
        *,
        deterministic: bool,
    ) -> jax.Array:
        """All target positions at once: x [B, T, D], of which some are real [B, T]; returns [B, T, D].

        The masks are [1, 1, T, T] and [B, 1, 1, S].
        """

        def attend(y: jax.Array) -> jax.Array:
            keys, values = self.self_attention.keys_values(y)
            return self.self_attention(y, keys, values, causal_mask, deterministic=deterministic)

        def attend_to_memory(y: jax.Array) -> jax.Array:
            return self.cross_attention(y, *memory, memory_mask, deterministic=deterministic)

        def transform(y: jax.Array) -> jax.Array:
            return self.feed_forward(y, real, deterministic=deterministic)

        x = self.residuals[0](x, attend, deterministic=deterministic)
        x = self.residuals[1](x, attend_to_memory, deterministic=deterministic)
        return self.residuals[2](x, transform, deterministic=deterministic)

    def empty_cache(self, rows: int, beam: int, length: int) -> LayerCache:
        """Of the self-attention, before the first step."""
        return self.self_attention.empty_cache(rows, beam, length)

    def memory_cache(self, memory: jax.Array) -> LayerCache:
        """Of the encoder's output [B, S, D], for all steps."""
        return self.cross_attention.memory_cache(memory)

    def step(
        self, x: jax.Array, past: Past, cache: LayerCache, memory: LayerCache, memory_mask: jax.Array
    ) -> tuple[jax.Array, LayerCache]:
        """One target position of W hypotheses a row: x [B, W, D]; returns [B, W, D] and the self-attention's cache.

        The W hypotheses of a row are W queries over one copy of its memory.
        """
        grown = cache

        def attend(y: jax.Array) -> jax.Array:
            nonlocal grown
            y, grown = self.self_attention.step(y, past, cache)
            return y

        def attend_to_memory(y: jax.Array) -> jax.Array:
            return self.cross_attention.over_cache(y, memory, memory_mask)

        x = self.residuals[0](x, attend, deterministic=True)
        x = self.residuals[1](x, attend_to_memory, deterministic=True)
        return self.residuals[2](x, lambda y: self.feed_forward(y, deterministic=True), deterministic=True), grown
