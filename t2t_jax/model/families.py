"""The module that a config describes."""

from __future__ import annotations

import jax.numpy as jnp

from t2t_jax import config
from t2t_jax.model.convolutional import Convolutional
from t2t_jax.model.decoder_only import DecoderOnly
from t2t_jax.model.encoder_only import EncoderOnly
from t2t_jax.model.patches import PatchClassifier
from t2t_jax.model.recurrent import Recurrent
from t2t_jax.model.sequence_model import SequenceModel
from t2t_jax.model.transformer import Transformer

FAMILIES: dict[str, type[SequenceModel]] = {
    "transformer": Transformer,
    "recurrent": Recurrent,
    "convolutional": Convolutional,
    "decoder": DecoderOnly,
    "encoder": EncoderOnly,
    "vision": PatchClassifier,
}


def build(
    model: config.Model,
    vocabulary_size: int,
    compute_dtype: str = "float32",
    *,
    training: config.Training | None = None,
) -> SequenceModel:
    """The module for a config; `training` says how its steps are to be computed, where it is to be trained."""
    family = FAMILIES[model.family]
    if training is None:
        return family(model, vocabulary_size, jnp.dtype(compute_dtype))
    fused = None if training.attention_kernel == "xla" else training.attention_kernel
    return family(model, vocabulary_size, jnp.dtype(training.compute_dtype), fused, training.rematerialise)
