"""What every encoder-decoder here is to training and search: one embedding at both ends, a stack of its own between."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from t2t_jax import config
from t2t_jax.model.attention import MASKED
from t2t_jax.model.dropout import Dropout
from t2t_jax.model.parameters import gather, parameter
from t2t_jax.symbols import BOS_ID, PAD_ID


class Unprojected(NamedTuple):
    """The decoder's output and what makes logits of it: x table^T + bias."""

    x: jax.Array  # [B, T, D]
    gold: jax.Array  # [B, T, D] in float32, the table's rows of the targets
    table: jax.Array  # [Z, D] in float32, the embedding matrix
    bias: jax.Array | None  # [Z]


class EncoderDecoder(nn.Module):
    """Encoder and decoder over one shared vocabulary, sections 3.1 and 3.4; padding is id 0 and never attended to.

    Use it through `init` and `apply`: `apply(variables, source, target, deterministic=True)` gives logits. Dropout,
    when not deterministic, draws from the rng collection "dropout". A kind of model is what it does in `_encode`,
    `_decode`, `start_cache`, `decode_step` and `alignment`.
    """

    config: config.Model
    vocabulary_size: int
    dtype: jnp.dtype = jnp.float32
    fused: str | None = None
    """A kernel that computes attention, instead of plain products; see `config.Training.attention_kernel`."""
    rematerialise: bool = False
    """Keep only what goes from layer to layer for the gradient, and compute the rest again."""

    def setup(self) -> None:
        shape = (self.config.padded_vocabulary(self.vocabulary_size), self.config.d_model)
        axes = ("vocabulary", "embed")
        self.embedding = gather(parameter(self, "embedding", self._initial_embedding, axes, shape), axes)
        self.embedding_dropout = Dropout(self.config.dropout)
        if self.config.biases == "all":
            self.logits_bias = parameter(self, "logits_bias", nn.initializers.zeros, ("vocabulary",), shape[:1])

    def __call__(self, source: jax.Array, target: jax.Array, *, deterministic: bool) -> jax.Array:
        """Teacher forcing: logits [B, T, Z] of each target token [B, T] given source [B, S] and those before."""
        return self._logits(self.unprojected(source, target, deterministic=deterministic).x)

    def unprojected(self, source: jax.Array, target: jax.Array, *, deterministic: bool) -> Unprojected:
        """The same up to the projection, for a loss that does the rest itself."""
        real = source != PAD_ID
        # What is looked up is looked up at once, so that devices add up one gradient of the embedding instead of three.
        tokens = [source, shift_right(target), target]
        ends = np.cumsum([side.shape[1] for side in tokens])[:-1]
        sources, inputs, gold = jnp.split(self.embedding[jnp.concatenate(tokens, axis=1)], ends, axis=1)
        memory = self._encode(sources, real, deterministic)
        x = self._decode(memory, real, inputs, target != PAD_ID, deterministic)
        return Unprojected(x, gold, self.embedding, self.logits_bias if self.config.biases == "all" else None)

    def encode(self, source: jax.Array, *, deterministic: bool) -> jax.Array:
        """Token ids [B, S] to the encoder's output [B, S, D]."""
        return self._encode(self.embedding[source], source != PAD_ID, deterministic)

    def start_cache(self, memory: jax.Array, real: jax.Array, beam: int, length: int) -> Any:
        """A cache for W = `beam` hypotheses a row and T = `length` positions over the encoder's output [B, S, D].

        Its leaves are [B, …], and its `lengthened(size)` has room for `size` = T W.
        """
        raise NotImplementedError

    def decode_step(self, tokens: jax.Array, index: jax.Array, writers: jax.Array, cache: Any) -> tuple[jax.Array, Any]:
        """Input tokens [B, W] at position `index` to the logits [B, W, Z] of what follows, and the cache after them.

        Hypothesis w of a row goes on from what hypothesis writers[b, w, t] wrote at each position t < `index`, and
        from itself at `index`: writers is [B, W, at least T] for a cache of T positions.
        """
        raise NotImplementedError

    def alignment(self) -> tuple[str, ...] | None:
        """Where teacher forcing sows the last layer's weights [B, heads, T, S] over the source; None without any."""
        raise NotImplementedError

    def _encode(self, rows: jax.Array, real: jax.Array, deterministic: bool) -> jax.Array:
        """The embedding's rows [B, S, D] of tokens, of which some are real [B, S], to the encoder's output."""
        raise NotImplementedError

    def _decode(
        self, memory: jax.Array, real: jax.Array, rows: jax.Array, target_real: jax.Array, deterministic: bool
    ) -> jax.Array:
        """Encoder's output, its real positions, rows [B, T, D] of the decoder's inputs and the real ones; [B, T, D]."""
        raise NotImplementedError

    def _initial_embedding(self, key: jax.Array, shape: tuple[int, int]) -> jax.Array:
        table = nn.initializers.normal(self.config.d_model**-0.5)(key, shape)
        return jnp.where(jnp.arange(shape[0])[:, None] < self.vocabulary_size, table, 0)

    def _embed(self, rows: jax.Array, positions: jax.Array, deterministic: bool) -> jax.Array:
        """Section 3.4: the embedding's rows times sqrt(d_model), plus positions, with dropout on the sum."""
        x = rows * self.config.d_model**0.5 + positions
        x = self.embedding_dropout(x.astype(self.dtype), deterministic=deterministic)
        return nn.with_logical_constraint(x, ("batch", "length", "activation"))

    def _logits(self, x: jax.Array) -> jax.Array:
        """The pre-softmax projection by the embedding matrix; the vocabulary's filling rows are masked."""
        table = self.embedding.astype(self.dtype)
        logits = jnp.einsum("btd,zd->btz", x, table, preferred_element_type=jnp.float32)
        if self.config.biases == "all":
            logits = logits + self.logits_bias
        logits = nn.with_logical_constraint(logits, ("batch", "length", "vocabulary"))
        if len(table) == self.vocabulary_size:
            return logits
        return jnp.where(jnp.arange(table.shape[0]) < self.vocabulary_size, logits, MASKED)


def shift_right(target: jax.Array) -> jax.Array:
    """Decoder inputs: the target [B, T] delayed by one position behind a begin-of-sentence token."""
    return jnp.concatenate([jnp.full_like(target[:, :1], BOS_ID), target[:, :-1]], axis=1)
