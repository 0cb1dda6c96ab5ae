"""Self-attention within a window: Beltagy et al., "Longformer" (2020), section 3.1."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from t2t_jax.model.choices.varied import VariedAttention


class WindowAttention(VariedAttention):
    """A query at i sees the keys at j with |i - j| < w; positions in blocks of w meet only the blocks beside theirs.

    So n positions make 3 n w scores, or 2 n w in a decoder, whatever n is.
    """

    def heads(
        self, queries: jax.Array, keys: jax.Array, values: jax.Array, real: jax.Array | None, *, deterministic: bool
    ) -> jax.Array:
        """As `VariedAttention.heads`."""
        rows, length, pairs = *queries.shape[:2], self.pairs()
        width = min(self.choices.attention_window, length)
        blocks, after = -(-length // width), 0 if pairs.causal else width

        def in_blocks(x: jax.Array) -> jax.Array:
            """[B, n, …] to [B, blocks, w, …]."""
            filled = jnp.pad(x, [(0, 0), (0, blocks * width - length), *[(0, 0)] * (x.ndim - 2)])
            return filled.reshape(rows, blocks, width, *x.shape[2:])

        def beside(x: jax.Array) -> jax.Array:
            """[B, n, …] to each block with those next to it, [B, blocks, 2 w or 3 w, …]; zeros where there are none."""
            own = in_blocks(x)
            around = jnp.pad(own, [(0, 0), (1, 1), *[(0, 0)] * (own.ndim - 2)])
            parts = [around[:, i : i + blocks] for i in range(2 if pairs.causal else 3)]
            return jnp.concatenate(parts, axis=2)

        there = jnp.ones((rows, length), bool) if real is None else real
        starts = width * jnp.arange(blocks)[:, None]
        at, of = starts + jnp.arange(width), starts + jnp.arange(-width, width + after)
        scores = jax.vmap(pairs.scores, in_axes=(1, 1, 0, 0, 1), out_axes=1)(
            in_blocks(queries), beside(keys), at, of, beside(there)
        )  # [B, blocks, H, w, 2 w or 3 w]
        weights = jax.nn.softmax(scores, axis=-1).astype(self.dtype)
        weights = self.weight_dropout(weights, deterministic=deterministic)
        found = jnp.einsum("bnhqs,bnshv->bnqhv", weights, beside(values))
        return found.reshape(rows, blocks * width, *found.shape[3:])[:, :length]
