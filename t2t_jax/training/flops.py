"""Floating-point operations of a training step, counted from the model's sizes."""

from __future__ import annotations

from t2t_jax import config
from t2t_jax.data.batching import Shape
from t2t_jax.model.choices import blockwise, performer
from t2t_jax.training import flops_of_choices as choices


def forward_flops(model: config.Model, vocabulary_size: int, shape: Shape) -> int:
    """FLOPs of all matrix products on the way forward, two for each multiplication and addition, for every position.

    Padding inside a row and the vocabulary's filling count, since the products run over them; dead rows don't.
    """
    source, target, rows = shape
    logits = target * model.d_model * model.padded_vocabulary(vocabulary_size)
    stacks = {
        "transformer": transformer,
        "recurrent": choices.recurrent,
        "convolutional": choices.convolutional,
        "decoder": choices.decoder_only,
        "encoder": choices.encoder_only,
        "vision": choices.vision,
    }
    return 2 * rows * (stacks[model.family](model, source, target) + logits)


def transformer(model: config.Model, source: int, target: int) -> int:
    """Multiplications of encoder and decoder for a pair of padded lengths."""
    keys, values = model.num_heads * model.key_width, model.num_heads * model.value_width
    shared = model.num_heads // (model.num_kv_heads or model.num_heads)

    def projections(queries: int, memory: int) -> int:
        """W_Q and W_O for every query, W_K and W_V for every position that is attended to."""
        return model.d_model * (queries * (keys + values) + memory * (keys + values) // shared)

    def attention(queries: int, memory: int) -> int:
        """Queries times keys, weights times values."""
        return queries * memory * (keys + values)

    def to_itself(side: str, length: int) -> int:
        """Self-attention of a stack."""
        kind = model.encoder_attention if side == "encoder" else model.decoder_attention
        if kind == "full":
            return attention(length, length)
        return choices.ATTENTIONS[kind](model, length, side == "decoder")

    def feed_forward(positions: int) -> int:
        one = (3 if model.activation == "swiglu" else 2) * model.d_model * model.d_ff
        return positions * one if model.experts is None else choices.mixture(model, positions, one)

    encoder = projections(source, source) + to_itself("encoder", source) + feed_forward(source)
    decoder = projections(target, target) + to_itself("decoder", target) + feed_forward(target)
    decoder += projections(target, source) + attention(target, source)
    return model.num_layers * (encoder + decoder)


def step_flops(model: config.Model, vocabulary_size: int, shape: Shape) -> int:
    """FLOPs of forward and backward: every product has two gradients, each as much work as itself."""
    return 3 * forward_flops(model, vocabulary_size, shape)


def loops(model: config.Model, training: config.Training, shape: Shape) -> bool:
    """Whether the step's program has products in a loop of several rounds."""
    return (
        training.accumulation > 1
        or model.family == "recurrent"
        or (training.attention_kernel == "blockwise" and max(shape.source, shape.target) > blockwise.BLOCK)
        or (model.decoder_attention == "performer" and shape.target > performer.BLOCK)
    )
