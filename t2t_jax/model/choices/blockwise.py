"""Exact attention in memory linear in length: Rabe and Staats, "Self-attention does not need O(n^2) memory" (2021)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from t2t_jax.model.attention import MASKED
from t2t_jax.model.choices.varied import Pairs, VariedAttention

BLOCK = 128  # queries, and keys, that meet at once


class BlockwiseAttention(VariedAttention):
    """The same numbers as full attention, without its weights [B, H, Q, S] ever being written out."""

    def heads(
        self, queries: jax.Array, keys: jax.Array, values: jax.Array, real: jax.Array | None, *, deterministic: bool
    ) -> jax.Array:
        """As `VariedAttention.heads`."""
        return blockwise(queries, keys, values, real, self.pairs())


def blockwise(
    queries: jax.Array, keys: jax.Array, values: jax.Array, real: jax.Array | None, pairs: Pairs, block: int = BLOCK
) -> jax.Array:
    """Attention [B, Q, H, V] of queries [B, Q, H, K] over keys [B, S, H, K] and values [B, S, H, V], some real [B, S].

    A block of queries meets the blocks of keys one after another. It keeps the largest score m so far, and relative to
    it the sum of exponentials and that of values, which shrink by exp(m - m') when a larger m' comes. Going back, each
    block of queries is computed again, so its gradient needs no more memory than itself.
    """
    (rows, count, heads, _), length = queries.shape, keys.shape[1]
    real = jnp.ones((rows, length), bool) if real is None else real
    wide, deep = min(block, length), min(block, count)
    key_blocks = [_blocks(side, wide) for side in (keys, values, real)]
    key_starts = wide * jnp.arange(len(key_blocks[0]))

    @jax.checkpoint
    def of_queries(given: tuple[jax.Array, jax.Array]) -> jax.Array:
        mine, start = given

        def meet(found: tuple, met: tuple) -> tuple:
            (largest, total, sums), (keys, values, real, first) = found, met
            of = first + jnp.arange(wide)
            scores = pairs.scores(mine, keys, start + jnp.arange(deep), of, real)
            # Keys that only fill the last block count for nothing even where no key is real.
            scores = jnp.where(of < length, scores, 2 * MASKED)
            higher = jax.lax.stop_gradient(jnp.maximum(largest, jnp.max(scores, axis=-1)))  # cancels out
            shrink, weights = jnp.exp(largest - higher), jnp.exp(scores - higher[..., None])
            gained = jnp.einsum(
                "bhqs,bshv->bhqv", weights.astype(values.dtype), values, preferred_element_type=jnp.float32
            )
            return higher, total * shrink + jnp.sum(weights, axis=-1), sums * shrink[..., None] + gained

        def go_on(found: tuple, met: tuple) -> tuple[tuple, None]:
            if not pairs.causal:
                return meet(found, met), None
            return jax.lax.cond(met[-1] < start + deep, meet, lambda found, _: found, found, met), None

        none = jnp.zeros((rows, heads, deep, values.shape[-1]))
        nothing = jnp.full(none.shape[:3], 2 * MASKED), none[..., 0], none
        (_, total, sums), _ = jax.lax.scan(go_on, nothing, (*key_blocks, key_starts))
        return jnp.swapaxes(sums / total[..., None], 1, 2).astype(values.dtype)

    query_blocks = _blocks(queries, deep)
    found = jax.lax.map(of_queries, (query_blocks, deep * jnp.arange(len(query_blocks))))  # [blocks, B, block, H, V]
    return jnp.moveaxis(found, 0, 1).reshape(rows, -1, heads, values.shape[-1])[:, :count]


def _blocks(x: jax.Array, block: int) -> jax.Array:
    """[B, n, …] to [blocks, B, block, …], filled up with zeros."""
    count = -(-x.shape[1] // block)
    filled = jnp.pad(x, [(0, 0), (0, count * block - x.shape[1]), *[(0, 0)] * (x.ndim - 2)])
    return jnp.moveaxis(filled.reshape(x.shape[0], count, block, *x.shape[2:]), 1, 0)
