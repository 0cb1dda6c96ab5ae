"""A masked language model: the encoder alone says which tokens stand where its source has gaps.

Devlin et al., "BERT: Pre-training of deep bidirectional transformers for language understanding" (2019). The encoder's
output is multiplied by the embedding at once; BERT has one more dense layer before.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from t2t_jax.model import sublayers
from t2t_jax.model.layers import EncoderLayer
from t2t_jax.model.sequence_model import SequenceModel, Unprojected
from t2t_jax.symbols import PAD_ID


class EncoderOnly(SequenceModel):
    """Source and target have the same positions: the target's token, or padding where none is asked for."""

    def setup(self) -> None:
        super().setup()
        self.positions = sublayers.positions(self.config)
        given = self.config, self.dtype, self.fused, self.positions
        self.encoder = [EncoderLayer(*given) for _ in range(self.config.num_layers)]
        if self.config.norm == "pre":
            self.encoder_norm = sublayers.norm(self.config, self.dtype)

    def unprojected(self, source: jax.Array, target: jax.Array, *, deterministic: bool) -> Unprojected:
        """As for every `SequenceModel`, of [B, S] and [B, S]; the target decides nothing but its own rows."""
        rows, gold = jnp.split(self.embedding[jnp.concatenate([source, target], axis=1)], [source.shape[1]], axis=1)
        real = source != PAD_ID
        x = self._embed(rows, self.positions(rows.shape[1]), deterministic)
        for layer in self.encoder:
            x = layer(x, real[:, None, None, :], deterministic=deterministic)
        return self._to_be_projected(self.encoder_norm(x) if self.config.norm == "pre" else x, gold)
