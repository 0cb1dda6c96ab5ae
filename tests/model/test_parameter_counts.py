"""Exact parameter counts of the paper's models. Only shapes are computed; nothing is allocated."""

from dataclasses import replace

import pytest

from t2t_jax import config, model
from t2t_jax.training.state import abstract_params, count_parameters

VOCABULARY = 37_000
BASE = config.Model()

# Counted by hand for 37,000 entries: projections without biases, feed-forward networks with them, two vectors a
# normalisation, one tied embedding. The paper prints millions, for a vocabulary that it gives only approximately.
COUNTS = {
    "base": (BASE, 63_045_632),
    "A, h=1": (replace(BASE, num_heads=1, d_k=512, d_v=512), 63_045_632),
    "A, h=4": (replace(BASE, num_heads=4, d_k=128, d_v=128), 63_045_632),
    "A, h=16": (replace(BASE, num_heads=16, d_k=32, d_v=32), 63_045_632),
    "A, h=32": (replace(BASE, num_heads=32, d_k=16, d_v=16), 63_045_632),
    "B, d_k=16": (replace(BASE, d_k=16), 55_967_744),
    "B, d_k=32": (replace(BASE, d_k=32), 58_327_040),
    "C, N=2": (replace(BASE, num_layers=2), 33_644_544),
    "C, N=4": (replace(BASE, num_layers=4), 48_345_088),
    "C, N=8": (replace(BASE, num_layers=8), 77_746_176),
    "C, d_model=256": (replace(BASE, d_model=256, d_k=32, d_v=32), 26_816_512),
    "C, d_model=1024": (replace(BASE, d_model=1024, d_k=128, d_v=128), 163_815_424),
    "C, d_ff=1024": (replace(BASE, d_ff=1024), 50_450_432),
    "C, d_ff=4096": (replace(BASE, d_ff=4096), 88_236_032),
    "D, P_drop=0.0": (replace(BASE, dropout=0.0), 63_045_632),
    "D, P_drop=0.2": (replace(BASE, dropout=0.2), 63_045_632),
    "E": (replace(BASE, positions="learned", max_positions=256), 63_045_632 + 256 * 512),
    "big": (replace(BASE, d_model=1024, d_ff=4096, num_heads=16, dropout=0.3), 214_171_648),
}


def count(settings: config.Model) -> int:
    transformer = model.build(settings, VOCABULARY)
    return count_parameters(abstract_params(transformer), transformer)


@pytest.mark.parametrize("row", COUNTS)
def test_every_row_of_table_3_has_its_exact_count(row):
    settings, expected = COUNTS[row]
    assert count(settings) == expected


@pytest.mark.parametrize("multiple", [1, 128, 1000])
def test_the_rows_that_fill_the_vocabulary_are_not_counted(multiple):
    assert count(replace(BASE, num_layers=2, vocabulary_multiple=multiple)) == 33_644_544


ENCODER, DECODER = (
    4 * 512 * 512,
    8 * 512 * 512,
)  # of a layer's attentions; it has three projections of heads and one back
DENSE, NORM = 2 * 512 * 2048 + 2048 + 512, 2 * 512


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"norm_kind": "rms"}, 6 * 5 * -512),
        ({"activation": "gelu"}, 0),
        ({"activation": "swiglu"}, 12 * (512 * 2048 - 2048 - 512)),
        ({"positions": "rotary"}, 0),
        ({"positions": "alibi"}, 0),
        ({"positions": "t5"}, 2 * 32 * 8),
        ({"num_kv_heads": 2}, -18 * 2 * 512 * 512 * 3 // 4),
        ({"num_kv_heads": 1}, -18 * 2 * 512 * 512 * 7 // 8),
        ({"encoder_attention": "window", "decoder_attention": "performer"}, 0),
        ({"encoder_attention": "linformer"}, 6 * 2 * 64 * 1024),
        ({"experts": 4}, 12 * (3 * DENSE + 512 * 4)),
        (
            {"family": "recurrent"},
            6 * (4 * 768 * 512 + 4 * 512) + 6 * (4 * 1536 * 512 + 4 * 512) + 3 * 512**2 + 1024 + 512
            + 3 * 512**2 + 512 - 6 * (ENCODER + DECODER + 2 * DENSE + 5 * NORM),
        ),
        ({"family": "decoder"}, -6 * (DECODER + DENSE + 3 * NORM)),
        ({"family": "encoder"}, -6 * (DECODER + DENSE + 3 * NORM)),
        ({"family": "vision"}, 4 * 512 + 2 * 512 - 6 * (DECODER + DENSE + 3 * NORM)),
        ({"family": "decoder", "norm": "pre"}, NORM - 6 * (DECODER + DENSE + 3 * NORM)),
        (
            {"family": "convolutional"},
            12 * (3 * 512 * 1024 + 1024) + 7 * (512**2 + 512) - 6 * (ENCODER + DECODER + 2 * DENSE + 5 * NORM),
        ),
    ],
)  # fmt: skip
def test_what_each_choice_adds_to_the_base_model(changes, more):
    assert count(replace(BASE, **changes)) == 63_045_632 + more
