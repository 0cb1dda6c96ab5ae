"""T5's relative position bias: Raffel et al., "Exploring the limits of transfer learning" (2020), section 2.1."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from t2t_jax import config
from t2t_jax.model.choices.distances import Bias, Side
from t2t_jax.model.parameters import parameter


def buckets(distances: np.ndarray, count: int, furthest: int) -> np.ndarray:
    """Which of `count` buckets a distance >= 0 is in: the first half hold one each, the others grow up to `furthest`.

    In float32, as T5's own code has it, so that distances at a bucket's edge fall where they fell there.
    """
    exact = count // 2
    growth = np.log(np.maximum(distances, 1).astype(np.float32) / np.float32(exact)) / np.log(
        np.float32(furthest / exact)
    )
    grown = exact + (growth * np.float32(count - exact)).astype(np.int32)
    return np.where(distances < exact, distances, np.minimum(grown, count - 1))


class RelativeBias(nn.Module):
    """A learned number a head and bucket of distances is added to the score; one table for all layers of a stack.

    In the encoder half the buckets are for keys after the query. Unlike T5's, scores stay divided by sqrt(d_k).
    """

    config: config.Model

    def setup(self) -> None:
        init = nn.initializers.normal(self.config.d_model**-0.5)
        shape = self.config.t5_buckets, self.config.num_heads
        self.encoder, self.decoder = (
            parameter(self, side, init, (None, "heads"), shape) for side in ("encoder", "decoder")
        )

    def __call__(self, length: int) -> jax.Array:
        """As `Distances.__call__`."""
        return jnp.zeros((length, 1))

    def turned(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """As `Distances.turned`."""
        return x

    def bias(self, side: Side) -> Bias:
        """As `Distances.bias`."""
        table, furthest = getattr(self, side), self.config.t5_max_distance
        count = self.config.t5_buckets // (2 if side == "encoder" else 1)
        bucket_of = jnp.asarray(buckets(np.arange(furthest + 1), count, furthest))

        def bias(queries: jax.Array, keys: jax.Array) -> jax.Array:
            after = keys - queries[:, None]
            bucket = bucket_of[jnp.minimum(jnp.abs(after), furthest)]
            if side == "encoder":
                bucket = bucket + jnp.where(after > 0, count, 0)
            return jnp.moveaxis(table[bucket], -1, 0)

        return bias
