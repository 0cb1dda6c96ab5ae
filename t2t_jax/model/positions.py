"""Position encodings, section 3.5."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from t2t_jax import config
from t2t_jax.model.parameters import gather, parameter


def sinusoids(length: int, d_model: int, layout: str = "interleaved") -> np.ndarray:
    """PE[pos, 2i] = sin(pos / 10000^(2i/d_model)), PE[pos, 2i+1] = cos(...): [length, d_model] in float32.

    The layout "concatenated" is tensor2tensor's: all sines, then all cosines, with wavelengths that reach 10000 * 2pi
    exactly (the exponent's divisor is d_model/2 - 1).
    """
    half = np.arange(d_model // 2)
    exponent = 2 * half / d_model if layout == "interleaved" else half / max(d_model // 2 - 1, 1)
    angles = np.arange(length)[:, None] / 10000.0**exponent
    pair = np.stack if layout == "interleaved" else np.concatenate
    return pair([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, d_model).astype(np.float32)


class Positions(nn.Module):
    """A row of [D] for every position, fixed or learned."""

    config: config.Model

    @nn.compact
    def __call__(self, length: int) -> jax.Array:
        """The rows of positions 0 to length-1: [length, D] in float32."""
        if self.config.positions == "sinusoidal":
            return jnp.asarray(sinusoids(length, self.config.d_model, self.config.sinusoid_layout))
        if length > self.config.max_positions:
            raise ValueError(f"length {length} is beyond the learned table's {self.config.max_positions} positions")
        shape, init = (
            (self.config.max_positions, self.config.d_model),
            nn.initializers.normal(self.config.d_model**-0.5),
        )
        return gather(parameter(self, "table", init, (None, "embed"), shape), (None, "embed"))[:length]
