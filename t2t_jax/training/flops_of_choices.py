"""Multiplications of what may stand in for the paper's sub-layers and stacks (`model/choices`), for one sentence."""

from __future__ import annotations

from t2t_jax import config
from t2t_jax.model.choices.experts import room
from t2t_jax.model.choices.performer import BLOCK
from t2t_jax.model.recurrent import GATES


def window(model: config.Model, length: int, causal: bool) -> int:
    """Blocks of a window's width meet themselves and the blocks beside them."""
    width = min(model.attention_window, length)
    queries = -(-length // width) * width
    return queries * (2 if causal else 3) * width * model.num_heads * (model.key_width + model.value_width)


def performer(model: config.Model, length: int, causal: bool) -> int:
    """Features of queries and keys, their products with values and for the normaliser, by running sums if causal."""
    heads, features, found = model.num_heads, model.performer_features, model.value_width + 1
    of_features = 2 * length * heads * features * model.key_width
    if not causal:
        return of_features + length * heads * features * (2 * found - 1)
    block = min(BLOCK, length)
    filled = -(-length // block) * block
    return of_features + filled * heads * (2 * features * found + block * (features + found))


def linformer(model: config.Model, length: int, causal: bool) -> int:
    """Keys and values mixed into a fixed number of positions, and attention over those."""
    return 2 * length * model.linformer_length * model.num_heads * (model.key_width + model.value_width)


ATTENTIONS = {"window": window, "performer": performer, "linformer": linformer}


def mixture(model: config.Model, positions: int, one: int) -> int:
    """A router, the experts' rooms at `one` a position, and the products that take positions there and back."""
    experts = model.experts or 1
    rooms = experts * room(model, positions)
    return positions * model.d_model * experts + rooms * one + 2 * positions * rooms * model.d_model


def stack(model: config.Model, length: int, kind: str = "full") -> int:
    """Layers of self-attention of a kind, and of feed-forward networks."""
    widths = model.num_heads * (model.key_width + model.value_width)
    shared = model.num_heads // (model.num_kv_heads or model.num_heads)
    pairs = length * length * widths if kind == "full" else ATTENTIONS[kind](model, length, False)
    attention = model.d_model * length * (widths + widths // shared) + pairs
    one = (3 if model.activation == "swiglu" else 2) * model.d_model * model.d_ff
    feed_forward = length * one if model.experts is None else mixture(model, length, one)
    return model.num_layers * (attention + feed_forward)


def decoder_only(model: config.Model, source: int, target: int) -> int:
    """One stack over both sides."""
    return stack(model, source + target)


def encoder_only(model: config.Model, source: int, target: int) -> int:
    """One stack over the source."""
    return stack(model, source, model.encoder_attention)


def vision(model: config.Model, source: int, target: int) -> int:
    """One stack over patches and a class token."""
    patches = (model.image_size // model.patch_size) ** 2
    embedded = patches * model.patch_size**2 * model.d_model
    return embedded + stack(model, patches + 1, model.encoder_attention)


def recurrent(model: config.Model, source: int, target: int) -> int:
    """Cells of both stacks, additive attention, the first state and the read-out."""
    d, gates = model.d_model, GATES[model.recurrent_cell]
    encoder = source * gates * (d + d // 2) * d
    decoder = target * gates * 3 * d * d
    attention = source * d * d + target * (d * d + 2 * source * d)
    return model.num_layers * (encoder + decoder) + attention + d * d + target * 3 * d * d


def convolutional(model: config.Model, source: int, target: int) -> int:
    """Convolutions of both stacks, an attention in every layer of the decoder, the read-out."""
    d, convolution = model.d_model, 2 * model.kernel_width * model.d_model**2
    decoder = target * (convolution + d * d + 2 * source * d)
    return model.num_layers * (source * convolution + decoder) + target * d * d
