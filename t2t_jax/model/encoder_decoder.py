"""What a model that writes token by token is to training and search: an encoder, a decoder, a cache between steps."""

from __future__ import annotations

import abc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from t2t_jax.model.sequence_model import SequenceModel, Unprojected
from t2t_jax.symbols import BOS_ID, PAD_ID


class EncoderDecoder(SequenceModel):
    """Encoder and decoder, section 3.1.

    A kind of model is what it does in `_encode`, `_decode`, `start_cache`, `decode_step` and `alignment`.
    """

    def unprojected(self, source: jax.Array, target: jax.Array, *, deterministic: bool) -> Unprojected:
        """Teacher forcing: the output [B, T, D] at each target token [B, T], from source [B, S] and those before."""
        real = source != PAD_ID
        # What is looked up is looked up at once, so that devices add up one gradient of the embedding instead of three.
        tokens = [source, shift_right(target), target]
        ends = np.cumsum([side.shape[1] for side in tokens])[:-1]
        sources, inputs, gold = jnp.split(self.embedding[jnp.concatenate(tokens, axis=1)], ends, axis=1)
        memory = self._encode(sources, real, deterministic)
        x = self._decode(memory, real, inputs, target != PAD_ID, deterministic)
        return self._to_be_projected(x, gold)

    def encode(self, source: jax.Array, *, deterministic: bool) -> jax.Array:
        """Token ids [B, S] to the encoder's output [B, S, D]."""
        return self._encode(self.embedding[source], source != PAD_ID, deterministic)

    @abc.abstractmethod
    def start_cache(self, memory: jax.Array, real: jax.Array, beam: int, length: int) -> Any:
        """A cache for W = `beam` hypotheses a row and T = `length` positions over the encoder's output [B, S, D].

        Its leaves are [B, …], and its `lengthened(size)` has room for `size` = T W.
        """

    @abc.abstractmethod
    def decode_step(self, tokens: jax.Array, index: jax.Array, writers: jax.Array, cache: Any) -> tuple[jax.Array, Any]:
        """Input tokens [B, W] at position `index` to the logits [B, W, Z] of what follows, and the cache after them.

        Hypothesis w of a row goes on from what hypothesis writers[b, w, t] wrote at each position t < `index`, and
        from itself at `index`: writers is [B, W, at least T] for a cache of T positions.
        """

    @abc.abstractmethod
    def alignment(self) -> tuple[str, ...] | None:
        """Where teacher forcing sows the last layer's weights [B, heads, T, S] over the source; None without any."""

    @abc.abstractmethod
    def _encode(self, rows: jax.Array, real: jax.Array, deterministic: bool) -> jax.Array:
        """The embedding's rows [B, S, D] of tokens, of which some are real [B, S], to the encoder's output."""

    @abc.abstractmethod
    def _decode(
        self, memory: jax.Array, real: jax.Array, rows: jax.Array, target_real: jax.Array, deterministic: bool
    ) -> jax.Array:
        """Encoder's output, its real positions, rows [B, T, D] of the decoder's inputs and the real ones; [B, T, D]."""


def shift_right(target: jax.Array) -> jax.Array:
    """Decoder inputs: the target [B, T] delayed by one position behind a begin-of-sentence token."""
    return jnp.concatenate([jnp.full_like(target[:, :1], BOS_ID), target[:, :-1]], axis=1)
