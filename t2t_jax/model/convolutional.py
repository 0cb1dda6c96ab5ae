"""What the Transformer displaced next: gated convolutions.

Gehring et al., "Convolutional sequence to sequence learning" (2017), with one width for embeddings and layers, and
without weight normalisation and the scaling of the encoder's gradients.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from t2t_jax import config
from t2t_jax.model import sublayers
from t2t_jax.model.attention import MASKED
from t2t_jax.model.dropout import Dropout
from t2t_jax.model.encoder_decoder import EncoderDecoder
from t2t_jax.model.hypotheses import of_parents
from t2t_jax.model.linear import linear

HALF = 0.5**0.5  # keeps the variance of a sum of two


class GatedConvolution(nn.Module):
    """[a b] = W x + w over k neighbouring positions, then a * sigmoid(b): section 3.2 there."""

    config: config.Model
    dtype: jnp.dtype

    def setup(self) -> None:
        init = nn.initializers.variance_scaling(4.0, "fan_in", "normal", in_axis=(0, 1), out_axis=(2, 3))
        d_model = self.config.d_model
        axes, shape = (None, "embed", None, None), (self.config.kernel_width, d_model, 2, d_model)
        self.convolution = linear(self, "convolution", init, axes, shape, self.dtype, inputs=2, bias="bias")
        self.dropout = Dropout(self.config.dropout)

    def windows(self, x: jax.Array, *, before: int, deterministic: bool) -> jax.Array:
        """[B, n, D] to each position's neighbours [B, n, k, D], of which `before` come before it, zeros outside."""
        width, length = self.config.kernel_width, x.shape[1]
        filled = jnp.pad(self.dropout(x, deterministic=deterministic), [(0, 0), (before, width - 1 - before), (0, 0)])
        return jnp.stack([filled[:, i : i + length] for i in range(width)], axis=2)

    def __call__(self, windows: jax.Array) -> jax.Array:
        """[..., k, D] to [..., D]."""
        both = self.convolution(windows)
        return both[..., 0, :] * jax.nn.sigmoid(both[..., 1, :])


class ConvolutionalDecoderLayer(nn.Module):
    """A convolution over the past, then an attention to the encoder's output of its own: section 3.3 there."""

    config: config.Model
    dtype: jnp.dtype

    def setup(self) -> None:
        d_model, xavier = self.config.d_model, nn.initializers.xavier_uniform()
        self.convolution = GatedConvolution(self.config, self.dtype)
        shape = d_model, d_model
        self.query = linear(self, "query", xavier, ("embed", None), shape, self.dtype, bias="query_bias")

    def __call__(self, x: jax.Array, windows: jax.Array, e: jax.Array, memory: jax.Array, real: jax.Array) -> jax.Array:
        """x [B, Q, D] with its past [B, Q, k, D], embeddings [B, Q, D], memory [B, S, 2 D], real [B, S]; [B, Q, D]."""
        h = self.convolution(windows)
        keys, values = jnp.split(memory, 2, axis=-1)
        queries = self.query(h) + e
        scores = jnp.einsum("bqd,bsd->bqs", queries, keys, preferred_element_type=jnp.float32)
        weights = jax.nn.softmax(jnp.where(real[:, None], scores, MASKED), axis=-1)
        self.sow("intermediates", "weights", weights[:, None])
        size = jnp.sqrt(jnp.sum(real, axis=1, dtype=jnp.float32))[:, None, None]
        context = jnp.einsum("bqs,bsd->bqd", weights.astype(self.dtype), values) * size.astype(self.dtype)
        return nn.with_logical_constraint(((h + context) * HALF + x) * HALF, ("batch", "length", "activation"))


class ConvolutionalCache(NamedTuple):
    """What a decoding step reads."""

    pasts: tuple[jax.Array, ...]  # the inputs of each layer at the last k - 1 positions, [B, W, k - 1, D]
    memory: jax.Array  # [B, S, 2 D]
    real: jax.Array  # [B, S]

    def lengthened(self, size: int) -> ConvolutionalCache:
        """As `transformer.Cache.lengthened`: a layer looks back no further."""
        return self


class Convolutional(EncoderDecoder):
    """The convolutional model. Its encoder's output is [B, S, 2 D]: what is scored, and what is then summed."""

    def setup(self) -> None:
        super().setup()
        layers = range(self.config.num_layers)
        self.positions = sublayers.positions(self.config)
        self.encoder = [GatedConvolution(self.config, self.dtype) for _ in layers]
        self.decoder = [ConvolutionalDecoderLayer(self.config, self.dtype) for _ in layers]
        shape, xavier = (self.config.d_model,) * 2, nn.initializers.xavier_uniform()
        self.last = linear(self, "last", xavier, ("embed", None), shape, self.dtype, bias="last_bias")
        self.last_dropout = Dropout(self.config.dropout)

    def alignment(self) -> tuple[str, ...]:
        """As for every `EncoderDecoder`."""
        return f"decoder_{self.config.num_layers - 1}", "weights"

    def _embed(self, rows: jax.Array, positions: jax.Array, deterministic: bool) -> jax.Array:
        """The Transformer's over sqrt(d_model), as theirs are small: nothing between here and the logits normalises."""
        return super()._embed(rows, positions, deterministic) * self.config.d_model**-0.5

    def _encode(self, rows: jax.Array, real: jax.Array, deterministic: bool) -> jax.Array:
        x = e = self._embed(rows, self.positions(rows.shape[1]), deterministic)
        for layer in self.encoder:
            # What padding holds must not reach its neighbours.
            inside = jnp.where(real[..., None], x, 0)
            windows = layer.windows(inside, before=self.config.kernel_width // 2, deterministic=deterministic)
            x = nn.with_logical_constraint((layer(windows) + x) * HALF, ("batch", "length", "activation"))
        return jnp.concatenate([x, x + e], axis=-1)

    def _decode(
        self, memory: jax.Array, real: jax.Array, rows: jax.Array, target_real: jax.Array, deterministic: bool
    ) -> jax.Array:
        x = e = self._embed(rows, self.positions(rows.shape[1]), deterministic)
        for layer in self.decoder:
            past = self.config.kernel_width - 1
            windows = layer.convolution.windows(x, before=past, deterministic=deterministic)
            x = layer(x, windows, e, memory, real)
        return self.last(self.last_dropout(x, deterministic=deterministic))

    def start_cache(self, memory: jax.Array, real: jax.Array, beam: int, length: int) -> ConvolutionalCache:
        """As for every `EncoderDecoder`."""
        past = jnp.zeros((len(memory), beam, self.config.kernel_width - 1, self.config.d_model), self.dtype)
        return ConvolutionalCache((past,) * self.config.num_layers, memory, real)

    def decode_step(
        self, tokens: jax.Array, index: jax.Array, writers: jax.Array, cache: ConvolutionalCache
    ) -> tuple[jax.Array, ConvolutionalCache]:
        """As for every `EncoderDecoder`."""
        position = jax.lax.dynamic_slice_in_dim(self.positions(writers.shape[2]), index, 1)
        x = e = self._embed(self.embedding[tokens], position, deterministic=True)
        pasts = []
        for layer, past in zip(self.decoder, of_parents(cache.pasts, index, writers), strict=True):
            windows = jnp.concatenate([past, x[:, :, None]], axis=2)
            pasts.append(windows[:, :, 1:])
            x = layer(x, windows, e, cache.memory, cache.real)
        return self._logits(self.last(x)), cache._replace(pasts=tuple(pasts))
