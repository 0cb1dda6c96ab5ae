"""The parts that layers are made of, by the fields of the config that choose them; the paper's are the defaults."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from t2t_jax import config
from t2t_jax.model.attention import MultiHeadAttention
from t2t_jax.model.choices.alibi import Alibi
from t2t_jax.model.choices.blockwise import BlockwiseAttention
from t2t_jax.model.choices.distances import Distances, Side
from t2t_jax.model.choices.experts import MixtureOfExperts
from t2t_jax.model.choices.gated import GatedFeedForward
from t2t_jax.model.choices.linformer import LinformerAttention
from t2t_jax.model.choices.performer import PerformerAttention
from t2t_jax.model.choices.relative_bias import RelativeBias
from t2t_jax.model.choices.rms_norm import RMSNorm
from t2t_jax.model.choices.rotary import Rotary
from t2t_jax.model.choices.varied import VariedAttention
from t2t_jax.model.choices.window import WindowAttention
from t2t_jax.model.feed_forward import FeedForward
from t2t_jax.model.normalisation import LayerNorm
from t2t_jax.model.positions import Positions

NORMS = {"layer": LayerNorm, "rms": RMSNorm}
ATTENTIONS: dict[str, Any] = {  # where it is not the paper's
    "full": VariedAttention,
    "window": WindowAttention,
    "performer": PerformerAttention,
    "linformer": LinformerAttention,
}
ADDED = ("sinusoidal", "learned")  # positions that are rows of their own; the others are distances


def norm(model: config.Model, dtype: jnp.dtype) -> Any:
    """What normalises a position's vector."""
    return NORMS[model.norm_kind](dtype, model.norm_epsilon)


def positions(model: config.Model) -> Any:
    """A function from a length to what is added to embeddings, which distances are as well."""
    if model.positions in ADDED:
        return Positions(model)
    return {"rotary": Rotary(), "alibi": Alibi(model.num_heads), "t5": RelativeBias(model)}[model.positions]


def feed_forward(model: config.Model, dtype: jnp.dtype) -> nn.Module:
    """The network that each position goes through alone."""
    kind: Any = GatedFeedForward if model.activation == "swiglu" else FeedForward
    return kind(model, dtype) if model.experts is None else MixtureOfExperts(model, dtype, kind)


def self_attention(model: config.Model, dtype: jnp.dtype, fused: str | None, positions: Any, side: Side) -> Any:
    """The attention of a stack to itself; `positions` are the stack's."""
    return _attention(model, dtype, fused, side, getattr(model, f"{side}_attention"), positions)


def cross_attention(model: config.Model, dtype: jnp.dtype, fused: str | None) -> Any:
    """The decoder's attention to the encoder's output."""
    return _attention(model, dtype, fused, "cross", "full", None)


def attention(kind: Any, model: config.Model, dtype: jnp.dtype, role: str, positions: Any) -> Any:
    """An attention of a `VariedAttention`'s kind; `positions` are the stack's, None where they don't concern it."""
    distances = Distances() if positions is None or model.positions in ADDED else positions
    return kind(**_sizes(model, dtype), choices=model, role=role, positions=distances)


def _attention(
    model: config.Model, dtype: jnp.dtype, fused: str | None, role: str, kind: str, positions: Any | None
) -> Any:
    blockwise = kind == "full" and fused == "blockwise"
    apart = positions is not None and model.positions not in ADDED
    if kind == "full" and not apart and model.num_kv_heads is None and not blockwise:
        return MultiHeadAttention(**_sizes(model, dtype), fused=fused)
    return attention(BlockwiseAttention if blockwise else ATTENTIONS[kind], model, dtype, role, positions)


def _sizes(model: config.Model, dtype: jnp.dtype) -> dict[str, Any]:
    return {
        "d_model": model.d_model,
        "num_heads": model.num_heads,
        "d_k": model.key_width,
        "d_v": model.value_width,
        "dropout": model.attention_dropout,
        "dtype": dtype,
        "biases": model.biases == "all",
    }
