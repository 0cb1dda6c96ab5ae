"""Counted FLOPs against what XLA's own count says of the same step."""

from dataclasses import replace

import jax
import numpy as np
import optax
import pytest

from t2t_jax import config, model
from t2t_jax.data.batching import Shape
from t2t_jax.parallel.mesh import make_mesh
from t2t_jax.planning.compiled_text import CompiledText
from t2t_jax.training import state
from t2t_jax.training.flops import forward_flops, step_flops
from t2t_jax.training.lowering import train_step_on

MODEL = config.Model(num_layers=2, d_model=64, d_ff=256, num_heads=4, d_k=8, d_v=24, dropout=0.0)


def test_the_base_model_by_hand() -> None:
    """One pair of one token each, so that attention is a single weight."""
    base = config.Model()
    encoder = 4 * 512 * 512 + 2 * 512 + 2 * 512 * 2048
    decoder = 8 * 512 * 512 + 4 * 512 + 2 * 512 * 2048
    assert forward_flops(base, 37_000, Shape(1, 1, 1)) == 2 * (6 * (encoder + decoder) + 512 * 37_120)
    assert step_flops(base, 37_000, Shape(1, 1, 7)) == 21 * forward_flops(base, 37_000, Shape(1, 1, 1))


@pytest.mark.parametrize("accumulation", [1, 3])
def test_the_step_as_lowered_and_as_compiled(accumulation: int) -> None:
    shape, mesh = Shape(24, 40, 12), make_mesh(config.Mesh(1, 1, 1), jax.devices()[:1])
    transformer, sgd = model.build(MODEL, 1000), optax.sgd(0.1)
    abstract, _ = state.abstract_state(transformer, sgd, mesh)
    lowered = train_step_on(mesh, transformer, sgd, config.Training(accumulation=accumulation), abstract)(shape)

    ours = step_flops(MODEL, 1000, shape)
    theirs = lowered.cost_analysis()["flops"] * accumulation  # type: ignore[index]  # a loop's body is counted once
    assert ours < theirs < 1.2 * ours, "softmax, normalisation and Adam are little beside the products"

    text = CompiledText(lowered.compile().as_text() or "", 1)
    assert sum(product.flops for product in text.products) == ours


BIG = replace(MODEL, num_layers=1, num_heads=8, d_k=8, d_v=8, vocabulary_multiple=8)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_kv_heads": 2, "activation": "swiglu"},
        {"encoder_attention": "window", "decoder_attention": "window", "attention_window": 8, "positions": "rotary"},
        {"encoder_attention": "linformer", "decoder_attention": "performer", "performer_features": 32},
        {"encoder_attention": "performer", "performer_features": 32},
        {"experts": 4},
        {"family": "convolutional"},
        {"family": "decoder", "num_kv_heads": 2},
        {"family": "vision"},
        {"family": "encoder", "encoder_attention": "linformer", "linformer_length": 16},
    ],
)
def test_choices_against_the_program_of_the_way_forward(changes: dict) -> None:
    """The compiler counts what is no product as well, so ours are a little less than its."""
    settings = replace(BIG, **changes)
    shape = Shape(96, 96 if settings.family == "encoder" else 80, 2)
    transformer = model.build(settings, 48)
    sides = [jax.ShapeDtypeStruct((shape.rows, length), np.int32) for length in shape[:2]]
    options: dict = {"deterministic": settings.experts is None, "mutable": ["balance"]}

    def forward(params, *sides):
        return transformer.apply({"params": params}, *sides, **options)[0]

    theirs = jax.jit(forward).lower(state.abstract_params(transformer), *sides).cost_analysis()["flops"]  # type: ignore[index]
    assert 0.86 < forward_flops(settings, 48, shape) / theirs < 1.0


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_recurrent_model_by_hand(cell: str) -> None:
    """A loop's body is counted once by the compiler, whose count says nothing here."""
    settings, gates, d = config.Model(family="recurrent", recurrent_cell=cell), {"lstm": 4, "gru": 3}[cell], 512
    encoder, decoder = 2 * gates * (d + d // 2) * (d // 2), gates * (2 * d + d) * d
    attention = 7 * d * d + 5 * (d * d + 7 * d + 7 * d)
    total = 6 * (7 * encoder + 5 * decoder) + attention + d * d + 5 * 3 * d * d + 5 * d * 128
    assert forward_flops(settings, 100, Shape(7, 5, 3)) == 2 * 3 * total
