"""Floating-point operations of a training step, counted from the model's sizes."""

from __future__ import annotations

from t2t_jax import config
from t2t_jax.data.batching import Shape


def forward_flops(model: config.Model, vocabulary_size: int, shape: Shape) -> int:
    """FLOPs of all matrix products on the way forward, two for each multiplication and addition, for every position.

    Padding inside a row and the vocabulary's filling count, since the products run over them; dead rows don't.
    """
    source, target, rows = shape
    keys, values = model.num_heads * model.key_width, model.num_heads * model.value_width

    def projections(queries: int, memory: int) -> int:
        """W_Q and W_O for every query, W_K and W_V for every position that is attended to."""
        return model.d_model * (queries * (keys + values) + memory * (keys + values))

    def attention(queries: int, memory: int) -> int:
        """Queries times keys, weights times values."""
        return queries * memory * (keys + values)

    def feed_forward(positions: int) -> int:
        return positions * 2 * model.d_model * model.d_ff

    encoder = projections(source, source) + attention(source, source) + feed_forward(source)
    decoder = projections(target, target) + attention(target, target) + feed_forward(target)
    decoder += projections(target, source) + attention(target, source)
    logits = target * model.d_model * model.padded_vocabulary(vocabulary_size)
    return 2 * rows * (model.num_layers * (encoder + decoder) + logits)


def step_flops(model: config.Model, vocabulary_size: int, shape: Shape) -> int:
    """FLOPs of forward and backward: every product has two gradients, each as much work as itself."""
    return 3 * forward_flops(model, vocabulary_size, shape)
