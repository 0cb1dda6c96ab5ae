"""Self-attention over a fixed number of positions: Wang et al., "Linformer" (2020)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen as nn

from t2t_jax.model.choices.varied import VariedAttention
from t2t_jax.model.parameters import parameter


class LinformerAttention(VariedAttention):
    """softmax(Q (E K)^T / sqrt(d_k)) F V, where E and F mix n positions into k of them; both are shared by all heads.

    E and F have a column for each position up to `max_positions`. A shorter sentence takes the first of them, and
    padding is zero before it is mixed in, so it changes nothing.
    """

    def setup(self) -> None:
        super().setup()
        shape = self.choices.linformer_length, self.choices.max_positions
        init = nn.initializers.normal(self.choices.linformer_length**-0.5)
        self.length_keys, self.length_values = (
            parameter(self, name, init, (None, None), shape) for name in ("length_keys", "length_values")
        )

    def heads(
        self, queries: jax.Array, keys: jax.Array, values: jax.Array, real: jax.Array | None, *, deterministic: bool
    ) -> jax.Array:
        """As `VariedAttention.heads`.

        Raises:
          ValueError: a sentence is longer than `max_positions`.
        """
        length, most = keys.shape[1], self.choices.max_positions
        if length > most:
            raise ValueError(f"length {length} is beyond the {most} positions that Linformer's projections have")

        def mixed(side: jax.Array, mixing: jax.Array) -> jax.Array:
            side = side if real is None else jnp.where(real[..., None, None], side, 0)
            # In float32, since a gradient that is summed over a batch's rows is.
            return jnp.einsum("bshk,ns->bnhk", side.astype(jnp.float32), mixing[:, :length]).astype(self.dtype)

        keys, values = mixed(keys, self.length_keys), mixed(values, self.length_values)
        return super().heads(queries, keys, values, None, deterministic=deterministic)
