"""The sizes that benchmarks measure, in terms of both contestants."""

from __future__ import annotations

from dataclasses import dataclass

from t2t_jax import config
from t2t_jax.data.batching import Shape


@dataclass(frozen=True)
class Size:
    """A model and the batch that it is measured on, full of tokens."""

    model: config.Model
    vocabulary: int
    shape: Shape


SIZES = {
    # The paper's base model on as many tokens as two cores compute in seconds.
    "base": Size(config.Model(), 37_000, Shape(32, 32, 32)),
    # The published tiny model for Multi30k, on the batch that peers take there.
    "multi30k": Size(
        config.Model(num_layers=4, d_model=128, d_ff=256, num_heads=4, dropout=0.3), 8_000, Shape(32, 32, 64)
    ),
}
