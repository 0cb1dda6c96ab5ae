"""The Transformer, section 3: positions, a stack of encoder layers and one of decoder layers."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from t2t_jax.model import sublayers
from t2t_jax.model.attention import LayerCache, Past
from t2t_jax.model.encoder_decoder import EncoderDecoder
from t2t_jax.model.layers import DecoderLayer, EncoderLayer


class Cache(NamedTuple):
    """What a decoding step reads: per layer the past's keys and values, and those of the encoder's output."""

    layers: tuple[LayerCache, ...]
    memory: tuple[LayerCache, ...]
    memory_mask: jax.Array  # [B, 1, 1, S]

    def lengthened(self, size: int) -> Cache:
        """With room for `size` keys a row and head, W at each position."""
        return self._replace(layers=tuple(layer.lengthened(size) for layer in self.layers))


class Transformer(EncoderDecoder):
    """The paper's model, whose sub-layers may be chosen (`sublayers.py`)."""

    def setup(self) -> None:
        super().setup()
        self.positions = sublayers.positions(self.config)
        given = self.config, self.dtype, self.fused, self.positions
        self.encoder = [EncoderLayer(*given) for _ in range(self.config.num_layers)]
        self.decoder = [DecoderLayer(*given) for _ in range(self.config.num_layers)]
        if self.config.norm == "pre":  # nothing has normalised a pre-norm stack's last sum
            self.encoder_norm = sublayers.norm(self.config, self.dtype)
            self.decoder_norm = sublayers.norm(self.config, self.dtype)

    def alignment(self) -> tuple[str, ...]:
        """As for every `EncoderDecoder`."""
        return f"decoder_{self.config.num_layers - 1}", "cross_attention", "weights"

    def _encode(self, rows: jax.Array, real: jax.Array, deterministic: bool) -> jax.Array:
        x = self._embed(rows, self.positions(rows.shape[1]), deterministic)
        for layer in self.encoder:
            x = self._through(layer, x, real[:, None, None, :], deterministic=deterministic)
        return self.encoder_norm(x) if self.config.norm == "pre" else x

    def _decode(
        self, memory: jax.Array, real: jax.Array, rows: jax.Array, target_real: jax.Array, deterministic: bool
    ) -> jax.Array:
        length = rows.shape[1]
        causal = jnp.tril(jnp.ones((length, length), bool))[None, None]
        x = self._embed(rows, self.positions(length), deterministic)
        for layer in self.decoder:
            memory_given = layer.memory_keys_values(memory), real[:, None, None, :]
            x = self._through(layer, x, target_real, causal, *memory_given, deterministic=deterministic)
        return self.decoder_norm(x) if self.config.norm == "pre" else x

    def start_cache(self, memory: jax.Array, real: jax.Array, beam: int, length: int) -> Cache:
        """As for every `EncoderDecoder`."""
        empty = self.decoder[0].empty_cache(memory.shape[0], beam, length)
        of_memory = tuple(layer.memory_cache(memory) for layer in self.decoder)
        return Cache((empty,) * self.config.num_layers, of_memory, real[:, None, None, :])

    def decode_step(
        self, tokens: jax.Array, index: jax.Array, writers: jax.Array, cache: Cache
    ) -> tuple[jax.Array, Cache]:
        """As for every `EncoderDecoder`."""
        beam, length = tokens.shape[1], cache.layers[0].length(writers)
        position = jax.lax.dynamic_slice_in_dim(self.positions(length), index, 1)
        x = self._embed(self.embedding[tokens], position, deterministic=True)
        wrote = writers[:, :, :length, None] == jnp.arange(beam)  # [B, W, T, W]
        own = (wrote & (jnp.arange(length) <= index)[:, None]).reshape(-1, 1, beam, length * beam)
        layers = []
        for layer, layer_cache, of_memory in zip(self.decoder, cache.layers, cache.memory, strict=True):
            x, grown = layer.step(x, Past(index, writers, own), layer_cache, of_memory, cache.memory_mask)
            layers.append(grown)
        x = self.decoder_norm(x) if self.config.norm == "pre" else x
        return self._logits(x), cache._replace(layers=tuple(layers))

    def _through(self, layer: nn.Module, *arrays: Any, deterministic: bool) -> jax.Array:
        def call(layer: Any, *arrays: Any) -> jax.Array:
            return layer(*arrays, deterministic=deterministic)

        through: jax.Array = (nn.remat(call) if self.rematerialise else call)(layer, *arrays)
        return through
