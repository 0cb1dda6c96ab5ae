"""Images as sequences: Dosovitskiy et al., "An image is worth 16x16 words" (2021).

An image is a line of intensities, row by row, each a token of its own. A patch is a linear map of its pixels'
embeddings; there it is one of the intensities themselves.
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
        split = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", in_axis=(0, 1), out_axis=2)
        self.patch = linear(self, "patch", split, (None, "embed", None), (area, d_model, d_model), self.dtype, inputs=2)
        small = nn.initializers.normal(d_model**-0.5)
        self.class_token = parameter(self, "class", small, (None,), (d_model,))
        self.end = parameter(self, "end", small, (None,), (d_model,))
        given = self.config, self.dtype, self.fused, self.positions
        self.encoder = [EncoderLayer(*given) for _ in range(self.config.num_layers)]
        if self.config.norm == "pre":
            self.encoder_norm = sublayers.norm(self.config, self.dtype)

    def alignment(self) -> None:
        """As for every `EncoderDecoder`: nothing is written that could be aligned."""

    def _encode(self, rows: jax.Array, real: jax.Array, deterministic: bool) -> jax.Array:
        """Of pixels [B, S, D] to [B, 1 + patches, D]; those that a line has too many go, those that it lacks are 0."""
        side, patch = self.config.image_size, self.config.patch_size
        (count, length, width), across = rows.shape, side // patch
        pixels = jnp.pad(rows, [(0, 0), (0, max(0, side**2 - length)), (0, 0)])[:, : side**2]
        grid = jnp.swapaxes(pixels.reshape(count, across, patch, across, patch, width), 2, 3)
        patches = self.patch(grid.reshape(count, across**2, patch**2, width))
        first = jnp.broadcast_to(self.class_token, (count, 1, width))
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
