"""The whole model, section 3: embeddings, encoder, decoder and the tied projection to the vocabulary."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from t2t_jax import config
from t2t_jax.model.attention import MASKED
from t2t_jax.model.dropout import Dropout
from t2t_jax.model.layers import DecoderLayer, EncoderLayer, LayerCache, LayerNorm
from t2t_jax.model.parameters import gather, parameter
from t2t_jax.model.positions import Positions
from t2t_jax.symbols import BOS_ID, PAD_ID


class Cache(NamedTuple):
    """What a decoding step reads: per layer the past's keys and values, and those of the encoder's output."""

    layers: tuple[LayerCache, ...]
    memory: tuple[LayerCache, ...]
    memory_mask: jax.Array  # [B, 1, 1, S]

    def lengthened(self, size: int) -> Cache:
        """With room for `size` keys a row and head, W at each position."""
        more = (0, size - self.layers[0].keys.shape[3])

        def lengthen(layer: LayerCache) -> LayerCache:
            keys = jnp.pad(layer.keys, [(0, 0), (0, 0), (0, 0), more])
            return LayerCache(keys, jnp.pad(layer.values, [(0, 0), (0, 0), more, (0, 0)]))

        return self._replace(layers=tuple(map(lengthen, self.layers)))


class Unprojected(NamedTuple):
    """The decoder's output and what makes logits of it: x table^T + bias."""

    x: jax.Array  # [B, T, D]
    gold: jax.Array  # [B, T, D] in float32, the table's rows of the targets
    table: jax.Array  # [Z, D] in float32, the embedding matrix
    bias: jax.Array | None  # [Z]


class Transformer(nn.Module):
    """Encoder and decoder over one shared vocabulary; padding is id 0 everywhere and never attended to.

    Use it through `init` and `apply`: `apply(variables, source, target, deterministic=True)` gives logits. Dropout,
    when not deterministic, draws from the rng collection "dropout".
    """

    config: config.Model
    vocabulary_size: int
    dtype: jnp.dtype = jnp.float32
    fused: str | None = None
    """An implementation of `jax.nn.dot_product_attention` that computes attention, instead of plain products."""
    rematerialise: bool = False
    """Keep only what goes from layer to layer for the gradient, and compute the rest again."""

    def setup(self) -> None:
        shape = (self.config.padded_vocabulary(self.vocabulary_size), self.config.d_model)
        axes = ("vocabulary", "embed")
        self.embedding = gather(parameter(self, "embedding", self._initial_embedding, axes, shape), axes)
        self.positions = Positions(self.config)
        self.encoder = [EncoderLayer(self.config, self.dtype, self.fused) for _ in range(self.config.num_layers)]
        self.decoder = [DecoderLayer(self.config, self.dtype, self.fused) for _ in range(self.config.num_layers)]
        self.embedding_dropout = Dropout(self.config.dropout)
        if self.config.norm == "pre":  # nothing has normalised a pre-norm stack's last sum
            self.encoder_norm = LayerNorm(self.dtype, self.config.norm_epsilon)
            self.decoder_norm = LayerNorm(self.dtype, self.config.norm_epsilon)
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
        x = self._decode(self._encode(sources, real, deterministic), real, inputs, deterministic)
        return Unprojected(x, gold, self.embedding, self.logits_bias if self.config.biases == "all" else None)

    def encode(self, source: jax.Array, *, deterministic: bool) -> jax.Array:
        """Token ids [B, S] to the encoder's output [B, S, D]."""
        return self._encode(self.embedding[source], source != PAD_ID, deterministic)

    def _encode(self, rows: jax.Array, real: jax.Array, deterministic: bool) -> jax.Array:
        """The embedding's rows [B, S, D] of tokens, of which some are real [B, S], to the encoder's output."""
        x = self._embed(rows, self.positions(rows.shape[1]), deterministic)
        for layer in self.encoder:
            x = self._through(layer, x, real[:, None, None, :], deterministic=deterministic)
        return self.encoder_norm(x) if self.config.norm == "pre" else x

    def _decode(self, memory: jax.Array, real: jax.Array, rows: jax.Array, deterministic: bool) -> jax.Array:
        """Encoder output [B, S, D], its real positions [B, S], rows [B, T, D] of the decoder's inputs; to [B, T, D]."""
        length = rows.shape[1]
        causal = jnp.tril(jnp.ones((length, length), bool))[None, None]
        x = self._embed(rows, self.positions(length), deterministic)
        for layer in self.decoder:
            keys_values = layer.memory_keys_values(memory)
            x = self._through(layer, x, causal, keys_values, real[:, None, None, :], deterministic=deterministic)
        return self.decoder_norm(x) if self.config.norm == "pre" else x

    def start_cache(self, memory: jax.Array, real: jax.Array, beam: int, length: int) -> Cache:
        """An empty cache for `beam` hypotheses a row and `length` positions over the encoder output [B, S, D]."""
        rows, heads, size = memory.shape[0], self.config.num_heads, length * beam
        empty = LayerCache(
            jnp.zeros((rows, heads, self.config.key_width, size), self.dtype),
            jnp.zeros((rows, heads, size, self.config.value_width), self.dtype),
        )
        of_memory = tuple(layer.memory_cache(memory) for layer in self.decoder)
        return Cache((empty,) * self.config.num_layers, of_memory, real[:, None, None, :])

    def decode_step(
        self, tokens: jax.Array, index: jax.Array, writers: jax.Array, cache: Cache
    ) -> tuple[jax.Array, Cache]:
        """Input tokens [B, W] at position `index` to the logits [B, W, Z] of what follows, and the cache after them.

        Hypothesis w of a row goes on from what hypothesis writers[b, w, t] wrote at each position t < `index`, and
        from itself at `index`: writers is [B, W, at least T] for a cache of T positions.
        """
        beam = tokens.shape[1]
        length = cache.layers[0].keys.shape[3] // beam
        position = jax.lax.dynamic_slice_in_dim(self.positions(length), index, 1)
        x = self._embed(self.embedding[tokens], position, deterministic=True)
        own = writers[:, :, :length, None] == jnp.arange(beam)  # [B, W, T, W]
        past = (own & (jnp.arange(length) <= index)[:, None]).reshape(-1, 1, beam, length * beam)
        layers = []
        for layer, layer_cache, keys_values in zip(self.decoder, cache.layers, cache.memory, strict=True):
            x, grown = layer.step(x, index, past, layer_cache, keys_values, cache.memory_mask)
            layers.append(grown)
        x = self.decoder_norm(x) if self.config.norm == "pre" else x
        return self._logits(x), cache._replace(layers=tuple(layers))

    def _through(self, layer: nn.Module, *arrays: Any, deterministic: bool) -> jax.Array:
        def call(layer: Any, *arrays: Any) -> jax.Array:
            return layer(*arrays, deterministic=deterministic)

        through: jax.Array = (nn.remat(call) if self.rematerialise else call)(layer, *arrays)
        return through

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


def build(
    model: config.Model,
    vocabulary_size: int,
    compute_dtype: str = "float32",
    *,
    training: config.Training | None = None,
) -> Transformer:
    """The module for a config; `training` says how its steps are to be computed, where it is to be trained."""
    if training is None:
        return Transformer(model, vocabulary_size, jnp.dtype(compute_dtype))
    fused = None if training.attention_kernel == "xla" else training.attention_kernel
    return Transformer(model, vocabulary_size, jnp.dtype(training.compute_dtype), fused, training.rematerialise)
