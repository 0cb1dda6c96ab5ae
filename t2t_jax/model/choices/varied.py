"""Multi-head attention, section 3.2.2, with what later attentions share: fewer key heads, distances, other sums."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from t2t_jax import config
from t2t_jax.model.attention import MASKED, LayerCache, MultiHeadAttention, Past, as_cache
from t2t_jax.model.choices.distances import Bias, Distances
from t2t_jax.model.linear import Linear, linear


class Pairs(NamedTuple):
    """Which pairs of positions a self-attention compares, and what their distance adds to the score."""

    causal: bool = False
    window: int | None = None
    bias: Bias | None = None

    def hidden(self, queries: jax.Array, keys: jax.Array) -> jax.Array:
        """True where a query [Q] may not see a key [S], were all of them real: [Q, S]."""
        after = keys - queries[:, None]
        hidden = after > 0 if self.causal else jnp.zeros(after.shape, bool)
        return hidden if self.window is None else hidden | (jnp.abs(after) >= self.window)

    def scores(
        self, queries: jax.Array, keys: jax.Array, at: jax.Array, of: jax.Array, real: jax.Array | None
    ) -> jax.Array:
        """Masked scores [B, H, Q, S] of queries [B, Q, H, K] at positions [Q] and keys [B, S, H, K] at [S].

        Of the keys some are real [B, S]; None means all. In float32.
        """
        scale = queries.shape[-1] ** -0.5
        scores = jnp.einsum("bqhk,bshk->bhqs", queries * scale, keys, preferred_element_type=jnp.float32)
        if self.bias is not None:
            scores = scores + self.bias(at, of)
        hidden = self.hidden(at, of)[None, None]
        if real is not None:
            hidden = hidden | ~real[:, None, None, :]
        return jnp.where(hidden, MASKED, scores)


class VariedAttention(MultiHeadAttention):
    """The paper's with any number of key heads and any distances; what it does with pairs is for heirs to change.

    Grouped queries are those of Ainslie et al., "GQA" (2023): each of the `num_kv_heads` keys and values serves as many
    query heads that follow each other. One such head is Shazeer's multi-query attention (2019).
    """

    choices: config.Model = config.Model()
    role: Literal["encoder", "decoder", "cross"] = "encoder"
    positions: Any = Distances()
    """Of self-attention: `Distances`, or a module like it."""

    @property
    def memory_heads(self) -> int:
        """As the paper's."""
        return self.choices.num_kv_heads or self.num_heads

    @property
    def group(self) -> int:
        """Query heads that share a key."""
        return self.num_heads // self.memory_heads

    def projection(self, name: str, init: nn.initializers.Initializer, heads: int, width: int) -> Linear:
        """As the paper's; a single shared head is kept by every device."""
        if heads == self.num_heads:
            return super().projection(name, init, heads, width)
        axis, bias = "memory_heads" if heads > 1 else None, f"{name}_bias" if self.biases else None
        return linear(self, name, init, ("embed", axis, "kv"), (self.d_model, heads, width), self.dtype, bias=bias)

    def keys_values(self, memory: jax.Array) -> tuple[jax.Array, jax.Array]:
        """As the paper's, for `memory_heads`."""
        keys, values = super().keys_values(memory)
        return self.positions.turned(keys, jnp.arange(memory.shape[1])), values

    def __call__(
        self, x: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array, *, deterministic: bool
    ) -> jax.Array:
        """As the paper's; of the mask only which keys are real is looked at, and in a decoder's not even that."""
        queries = self.positions.turned(self.query(x), jnp.arange(x.shape[1]))
        keys, values = (jnp.repeat(side, self.group, axis=2) for side in (keys, values))
        real = None if self.role == "decoder" else mask[:, 0, 0]
        return self.output(self.heads(queries, keys, values, real, deterministic=deterministic))

    def pairs(self) -> Pairs:
        """Those of this attention."""
        kind = {"encoder": self.choices.encoder_attention, "decoder": self.choices.decoder_attention}.get(self.role)
        window = self.choices.attention_window if kind == "window" else None
        return Pairs(self.role == "decoder", window, None if self.role == "cross" else self.positions.bias(self.role))

    def heads(
        self, queries: jax.Array, keys: jax.Array, values: jax.Array, real: jax.Array | None, *, deterministic: bool
    ) -> jax.Array:
        """What each head finds, [B, Q, H, V], for queries [B, Q, H, K], keys and values of as many heads."""
        at, of = jnp.arange(queries.shape[1]), jnp.arange(keys.shape[1])
        weights = jax.nn.softmax(self.pairs().scores(queries, keys, at, of, real), axis=-1)
        self.sow("intermediates", "weights", weights)
        weights = self.weight_dropout(weights.astype(self.dtype), deterministic=deterministic)
        return jnp.einsum("bhqs,bshv->bqhv", weights, values)

    def step(self, x: jax.Array, past: Past, cache: LayerCache) -> tuple[jax.Array, LayerCache]:
        """As the paper's."""
        here, beam, pairs = past.at[None], x.shape[1], self.pairs()
        keys, values = super().keys_values(x)
        grown = cache.written(as_cache(self.positions.turned(keys, here), values), past.at * beam)
        of = jnp.arange(grown.keys.shape[3]) // beam
        bias = None if pairs.bias is None else pairs.bias(here, of)
        mask = past.own & ~pairs.hidden(here, of)
        return self._over(self.positions.turned(self.query(x), here), grown, mask, bias), grown

    def over_cache(self, x: jax.Array, cache: LayerCache, mask: jax.Array) -> jax.Array:
        """As the paper's."""
        return self._over(self.query(x), cache, mask, None)

    def _over(self, queries: jax.Array, cache: LayerCache, mask: jax.Array, bias: jax.Array | None) -> jax.Array:
        """Queries [B, Q, H, K], those of a group over the same keys; mask [B, 1, Q or 1, S], bias [H, 1, S]."""
        rows, count, *_ = queries.shape
        grouped = jnp.moveaxis((queries * self.d_k**-0.5).reshape(rows, count, -1, self.group, self.d_k), 1, 3)
        scores = jnp.einsum("bgrqk,bgks->bgrqs", grouped, cache.keys, preferred_element_type=jnp.float32)
        if bias is not None:
            scores = scores + bias.reshape(*scores.shape[1:3], 1, -1)
        weights = jax.nn.softmax(jnp.where(mask[:, None], scores, MASKED), axis=-1).astype(self.dtype)
        heads = jnp.einsum("bgrqs,bgsv->bgrqv", weights, cache.values)
        return self.output(jnp.moveaxis(heads, 3, 1).reshape(rows, count, self.num_heads, self.d_v))
