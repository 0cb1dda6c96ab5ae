"""A language model: one causal stack reads a source and goes on with its target, without any encoder.

Radford et al., "Improving language understanding by generative pre-training" (2018); translation as the continuation of
a prefix: Wang et al., "Language models are good translators" (2021). The sequence is the source with its end of
sentence, a begin of sentence that separates the two, and the target. Every position sees itself and those before it, in
the source too; only the target's are predicted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from t2t_jax import config
from t2t_jax.model import sublayers
from t2t_jax.model.attention import LayerCache, as_cache
from t2t_jax.model.choices.varied import VariedAttention
from t2t_jax.model.encoder_decoder import EncoderDecoder
from t2t_jax.model.layers import Residual


class ContinuingAttention(VariedAttention):
    """Causal self-attention behind a prefix of S positions, of which those that are real are its last."""

    def among(
        self, x: jax.Array, keys: jax.Array, values: jax.Array, real: jax.Array, deterministic: bool
    ) -> jax.Array:
        """Of all positions at once: x [B, n, D] over its keys and values, some real [B, n]; returns [B, n, D]."""
        queries = self.positions.turned(self.query(x), jnp.arange(x.shape[1]))
        keys, values = (jnp.repeat(side, self.group, axis=2) for side in (keys, values))
        return self.output(self.heads(queries, keys, values, real, deterministic=deterministic))

    def step_behind(
        self, x: jax.Array, index: jax.Array, own: jax.Array, cache: LayerCache, prefix: int
    ) -> tuple[jax.Array, LayerCache]:
        """As `MultiHeadAttention.step`, where the cache has one copy of the prefix before what the hypotheses wrote.

        x [B, W, D], own [B, 1, W, S + T W].
        """
        beam, here = x.shape[1], (prefix + index)[None]
        written = as_cache(self.positions.turned(self.key(x), here), self.value(x))
        grown = cache.written(written, prefix + index * beam)
        after = prefix + jnp.arange(own.shape[3] - prefix) // beam
        add = self.pairs().bias
        bias = None if add is None else add(here, jnp.concatenate([jnp.arange(prefix), after]))
        return self._over(self.positions.turned(self.query(x), here), grown, own, bias), grown


class ContinuingLayer(nn.Module):
    """A decoder's layer without attention over an encoder's output."""

    config: config.Model
    dtype: jnp.dtype
    positions: Any

    def setup(self) -> None:
        self.self_attention = sublayers.attention(
            ContinuingAttention, self.config, self.dtype, "decoder", self.positions
        )
        self.feed_forward = sublayers.feed_forward(self.config, self.dtype)
        self.residuals = [Residual(self.config, self.dtype) for _ in range(2)]

    def __call__(self, x: jax.Array, real: jax.Array, deterministic: bool) -> tuple[jax.Array, LayerCache]:
        """x [B, n, D], of which some are real [B, n]: the same after the layer, with its keys and values."""
        keys_values = x, x

        def attend(y: jax.Array) -> jax.Array:
            nonlocal keys_values
            keys_values = self.self_attention.keys_values(y)
            return self.self_attention.among(y, *keys_values, real, deterministic)

        x = self.residuals[0](x, attend, deterministic=deterministic)
        x = self.residuals[1](
            x, lambda y: self.feed_forward(y, real, deterministic=deterministic), deterministic=deterministic
        )
        return x, as_cache(*keys_values)

    def step(
        self, x: jax.Array, index: jax.Array, own: jax.Array, cache: LayerCache, prefix: int
    ) -> tuple[jax.Array, LayerCache]:
        """One position of W hypotheses a row, [B, W, D]; arguments as of `ContinuingAttention.step_behind`."""
        grown = cache

        def attend(y: jax.Array) -> jax.Array:
            nonlocal grown
            y, grown = self.self_attention.step_behind(y, index, own, cache, prefix)
            return y

        x = self.residuals[0](x, attend, deterministic=True)
        return self.residuals[1](x, lambda y: self.feed_forward(y, deterministic=True), deterministic=True), grown


class ContinuingCache(NamedTuple):
    """What a decoding step reads."""

    layers: tuple[LayerCache, ...]  # S keys of the prefix, then W at each position
    real: jax.Array  # [B, S], the prefix's

    def lengthened(self, size: int) -> ContinuingCache:
        """As `transformer.Cache.lengthened`; the prefix needs no more room."""
        return self._replace(layers=tuple(layer.lengthened(self.real.shape[1] + size) for layer in self.layers))


class DecoderOnly(EncoderDecoder):
    """The source is embedded where other models encode; the stack reads it together with the target."""

    def setup(self) -> None:
        super().setup()
        self.positions = sublayers.positions(self.config)
        given = self.config, self.dtype, self.positions
        self.decoder = [ContinuingLayer(*given) for _ in range(self.config.num_layers)]
        if self.config.norm == "pre":
            self.decoder_norm = sublayers.norm(self.config, self.dtype)

    def alignment(self) -> None:
        """As for every `EncoderDecoder`: nothing looks at the source alone."""

    def _encode(self, rows: jax.Array, real: jax.Array, deterministic: bool) -> jax.Array:
        return self._embed(rows, self.positions(rows.shape[1]), deterministic)

    def _decode(
        self, memory: jax.Array, real: jax.Array, rows: jax.Array, target_real: jax.Array, deterministic: bool
    ) -> jax.Array:
        prefix, length = memory.shape[1], rows.shape[1]
        places = jnp.sum(real, axis=1)[:, None] + jnp.arange(length)  # the target goes on where the source ends
        target = self._embed(rows, self.positions(prefix + length)[places], deterministic)
        source, real = at_the_end(memory, real)
        x = jnp.concatenate([source, target], axis=1)
        x, _ = self._through(x, jnp.concatenate([real, target_real], axis=1), deterministic)
        return x[:, prefix:]

    def start_cache(self, memory: jax.Array, real: jax.Array, beam: int, length: int) -> ContinuingCache:
        """As for every `EncoderDecoder`: reads the prefix, of which all hypotheses of a row share one copy."""
        source, real = at_the_end(memory, real)
        return ContinuingCache(self._through(source, real, deterministic=True)[1], real).lengthened(length * beam)

    def decode_step(
        self, tokens: jax.Array, index: jax.Array, writers: jax.Array, cache: ContinuingCache
    ) -> tuple[jax.Array, ContinuingCache]:
        """As for every `EncoderDecoder`."""
        (rows, beam), prefix = tokens.shape, cache.real.shape[1]
        length = (cache.layers[0].keys.shape[3] - prefix) // beam
        places = jnp.sum(cache.real, axis=1)[:, None] + index
        x = self._embed(self.embedding[tokens], self.positions(prefix + length)[places], deterministic=True)
        wrote = writers[:, :, :length, None] == jnp.arange(beam)  # [B, W, T, W]
        own = (wrote & (jnp.arange(length) <= index)[:, None]).reshape(rows, 1, beam, length * beam)
        seen = jnp.broadcast_to(cache.real[:, None, None, :], (rows, 1, beam, prefix))
        own, layers = jnp.concatenate([seen, own], axis=3), []
        for layer, layer_cache in zip(self.decoder, cache.layers, strict=True):
            x, grown = layer.step(x, index, own, layer_cache, prefix)
            layers.append(grown)
        x = self.decoder_norm(x) if self.config.norm == "pre" else x
        return self._logits(x), cache._replace(layers=tuple(layers))

    def _through(self, x: jax.Array, real: jax.Array, deterministic: bool) -> tuple[jax.Array, tuple[LayerCache, ...]]:
        """The stack over x [B, n, D], of which some are real [B, n], and the keys and values of each layer."""
        kept = []
        for layer in self.decoder:
            x, keys_values = layer(x, real, deterministic)
            kept.append(keys_values)
        return self.decoder_norm(x) if self.config.norm == "pre" else x, tuple(kept)


def at_the_end(x: jax.Array, real: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rows [B, S, D] whose real positions come first [B, S] with these last, so that distances to what follows hold."""
    padding = jnp.sum(~real, axis=1)[:, None]
    places = jnp.arange(x.shape[1]) - padding  # negative ones count from the end, where the padding is
    return jnp.take_along_axis(x, places[..., None] % x.shape[1], axis=1), places >= 0
