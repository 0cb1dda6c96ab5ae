"""Images as sequences: Dosovitskiy et al., "An image is worth 16x16 words" (2021).

An image is a line of intensities, row by row, each a token of its own. The vocabulary begins with them, from dark to
bright, so that a token's place in it is how bright it is.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from t2t_jax.model import sublayers
from t2t_jax.model.encoder_decoder import EncoderDecoder
from t2t_jax.model.layers import EncoderLayer
from t2t_jax.model.linear import linear
from t2t_jax.model.parameters import parameter
from t2t_jax.model.sequence_model import Unprojected
from t2t_jax.symbols import PAD_ID, SPECIAL_SYMBOLS


class ClassCache(NamedTuple):
    """What a decoding step reads."""

    image: jax.Array  # [B, D]

    def lengthened(self, size: int) -> ClassCache:
        """As `transformer.Cache.lengthened`: nothing that is written is looked at."""
        return self


class PatchClassifier(EncoderDecoder):
    """An encoder over a class token and patches. The target's first token is read from the former; then comes an end.

    That end is the same for every image, so a vector of its own learns it.
    """

    def setup(self) -> None:
        super().setup()
        d_model, area = self.config.d_model, self.config.patch_size**2
        self.positions = sublayers.positions(self.config)
        small = nn.initializers.normal(d_model**-0.5)
        self.patch = linear(self, "patch", small, (None, "embed"), (area, d_model), self.dtype)
        self.class_token = parameter(self, "class", small, (None,), (d_model,))
        self.end = parameter(self, "end", small, (None,), (d_model,))
        given = self.config, self.dtype, self.fused, self.positions
        self.encoder = [EncoderLayer(*given) for _ in range(self.config.num_layers)]
        if self.config.norm == "pre":
            self.encoder_norm = sublayers.norm(self.config, self.dtype)

    def alignment(self) -> None:
        """As for every `EncoderDecoder`: nothing is written that could be aligned."""

    def unprojected(self, source: jax.Array, target: jax.Array, *, deterministic: bool) -> Unprojected:
        """As for every `SequenceModel`."""
        gold = self.embedding[target]
        memory = self.encode(source, deterministic=deterministic)
        return self._to_be_projected(
            self._decode(memory, source != PAD_ID, gold, target != PAD_ID, deterministic), gold
        )

    def encode(self, source: jax.Array, *, deterministic: bool) -> jax.Array:
        """Pixels as token ids [B, S] to the encoder's output [B, 1 + patches, D]."""
        bright = self.config.image_levels - 1
        intensities = jnp.clip(source - len(SPECIAL_SYMBOLS), 0, bright)[..., None] / bright
        return self._encode(intensities, source != PAD_ID, deterministic)

    def _encode(self, rows: jax.Array, real: jax.Array, deterministic: bool) -> jax.Array:
        """Of intensities [B, S, 1] from 0 to 1; those that a line has too many go, those that it lacks are 0."""
        side, patch = self.config.image_size, self.config.patch_size
        (count, length, _), across = rows.shape, side // patch
        pixels = jnp.pad(rows, [(0, 0), (0, max(0, side**2 - length)), (0, 0)])[:, : side**2]
        grid = jnp.swapaxes(pixels.reshape(count, across, patch, across, patch), 2, 3)
        patches = self.patch(grid.reshape(count, across**2, patch**2))
        first = jnp.broadcast_to(self.class_token, (count, 1, self.config.d_model))
        x = jnp.concatenate([first, patches.astype(jnp.float32)], axis=1)
        x = self._embed(x, self.positions(x.shape[1]), deterministic)
        there = jnp.broadcast_to(real[:, None, None, :1], (count, 1, 1, x.shape[1]))  # an image is whole
        for layer in self.encoder:
            x = layer(x, there, deterministic=deterministic)
        return self.encoder_norm(x) if self.config.norm == "pre" else x

    def _decode(
        self, memory: jax.Array, real: jax.Array, rows: jax.Array, target_real: jax.Array, deterministic: bool
    ) -> jax.Array:
        first = (jnp.arange(rows.shape[1]) == 0)[:, None]
        return jnp.where(first, memory[:, :1], self.end.astype(self.dtype))

    def start_cache(self, memory: jax.Array, real: jax.Array, beam: int, length: int) -> ClassCache:
        """As for every `EncoderDecoder`."""
        return ClassCache(memory[:, 0])

    def decode_step(
        self, tokens: jax.Array, index: jax.Array, writers: jax.Array, cache: ClassCache
    ) -> tuple[jax.Array, ClassCache]:
        """As for every `EncoderDecoder`."""
        x = jnp.where(index == 0, cache.image, self.end.astype(self.dtype))
        return self._logits(jnp.broadcast_to(x[:, None], (*tokens.shape, x.shape[1]))), cache
