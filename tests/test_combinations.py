"""Choices that mean nothing together are refused when the config is built, in one sentence with its reason."""

from dataclasses import replace

import pytest

from t2t_jax import config, config_fields, trajectory
from t2t_jax.config import Experiment, Mesh, Model, Training
from t2t_jax.errors import ConfigError
from tests.combinations import COMBINATIONS


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_kv_heads": 3}, "num_heads=8 cannot share num_kv_heads=3 evenly"),
        ({"positions": "rotary", "d_k": 5}, "turns pairs of numbers, so d_k=5 must be even"),
        ({"positions": "t5", "t5_buckets": 6}, "t5_buckets=6 must be a multiple of 4"),
        ({"positions": "t5", "t5_max_distance": 16}, "t5_max_distance=16 above half of it"),
        ({"decoder_attention": "linformer"}, "later ones too, so it cannot be causal"),
        ({"positions": "alibi", "encoder_attention": "performer"}, "each pair of positions, and encoder_attention="),
        ({"positions": "rotary", "decoder_attention": "performer"}, "each pair of positions, and decoder_attention="),
        ({"positions": "t5", "encoder_attention": "linformer"}, "'linformer' has none"),
        ({"decoder_attention": "performer", "attention_dropout": 0.1}, "has no attention weights to drop"),
        ({"experts": 2, "experts_per_token": 3}, "experts_per_token=3 cannot be picked out of experts=2"),
        ({"experts": 2, "expert_balance": -1.0}, "expert_balance=-1.0 must not be negative"),
        ({"experts": 0}, "experts=0 must be greater than 0"),
        ({"family": "recurrent", "norm": "pre"}, "family='recurrent' has no norm; leave it at 'post'"),
        ({"family": "recurrent", "positions": "learned"}, "family='recurrent' has no positions='learned'"),
        ({"family": "recurrent", "d_model": 9}, "sinusoidal positions need an even d_model"),
        ({"family": "convolutional", "positions": "rotary"}, "family='convolutional' has no positions='rotary'"),
        ({"family": "convolutional", "experts": 4}, "family='convolutional' has no experts; leave it at None"),
        ({"family": "convolutional", "kernel_width": 4}, "kernel_width=4 must be odd"),
        ({"family": "decoder", "decoder_attention": "window"}, "is not written for decoder_attention='window'"),
        ({"family": "decoder", "positions": "t5"}, "a table for an encoder and one for a decoder"),
        ({"family": "encoder", "decoder_attention": "window"}, "is not written for decoder_attention='window'"),
        ({"family": "encoder", "positions": "t5"}, "family='encoder' is one of them alone"),
        ({"family": "vision", "image_levels": 1}, "image_levels=1 must be at least 2"),
        ({"family": "vision", "patch_size": 3}, "patch_size=3 does not divide image_size=8"),
        (
            {"family": "vision", "positions": "learned", "max_positions": 16},
            "max_positions=16 is too few for a class token and 16 patches",
        ),
        ({"positions": "xpos"}, "positions='xpos' must be 'sinusoidal' or 'learned' or 'rotary' or 'alibi' or 't5'"),
    ],
)
def test_architectures(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        replace(Model(), **changes)


@pytest.mark.parametrize(
    ("model", "training", "sentence"),
    [
        (Model(attention_dropout=0.1), {"attention_kernel": "blockwise"}, "attention_dropout=0.1 must be 0"),
        (Model(num_kv_heads=2), {"attention_kernel": "cudnn"}, "the paper's attention, not num_kv_heads=2"),
        (Model(positions="alibi"), {"attention_kernel": "cudnn"}, "the paper's attention, not positions='alibi'"),
        (Model(encoder_attention="window"), {"attention_kernel": "cudnn"}, "not encoder_attention='window'"),
        (Model(experts=4), {"accumulation": 2}, "accumulation=2 would count how evenly experts are picked by parts"),
        (Model(family="recurrent"), {"rematerialise": True}, "family='recurrent' has neither"),
        (Model(family="convolutional"), {"attention_kernel": "blockwise"}, "family='convolutional' has neither"),
    ],
)
def test_ways_to_compute_them(model, training, sentence):
    training = Training(**{"compute_dtype": "bfloat16"} | training)
    with pytest.raises(ConfigError, match=sentence):
        Experiment(model=model, training=training)


def test_a_mesh_for_experts_that_are_not_there():
    with pytest.raises(ConfigError, match=r"mesh: expert=2 divides the experts of a mixture"):
        Experiment(mesh=Mesh(expert=2))
    Experiment(model=Model(experts=4), mesh=Mesh(expert=2))


def test_a_learned_table_of_one_stack_is_for_both_sides():
    with pytest.raises(ConfigError, match=r"max_positions=1023 must be at least twice data.max_length=512"):
        Experiment(
            model=Model(family="decoder", positions="learned", max_positions=1023), data=config.Data(max_length=512)
        )


@pytest.mark.parametrize(
    ("family", "task"),
    [
        ("encoder", "translation"),
        ("decoder", "masked_language_model"),
        ("vision", "parsing"),
        ("transformer", "digits"),
    ],
)
def test_some_families_learn_one_task(family, task):
    tokenizer = "whitespace" if task == "digits" else "sentencepiece"
    with pytest.raises(ConfigError, match=f"this is task='{task}' for family='{family}'"):
        Experiment(model=Model(family=family), data=config.Data(task=task, tokenizer=tokenizer))


DIGITS = config.Data(task="digits", tokenizer="whitespace")


def test_digits_have_one_size():
    with pytest.raises(ConfigError, match="image_size=16 and image_levels=17 must be 8 and 17, as task='digits'"):
        Experiment(model=Model(family="vision", image_size=16), data=DIGITS)
    with pytest.raises(ConfigError, match="image_size=8 and image_levels=2 must be 8 and 17"):
        Experiment(model=Model(family="vision", image_levels=2), data=DIGITS)


def test_a_table_of_patches_is_as_long_as_they_are_many():
    model = Model(family="vision", positions="learned", patch_size=4, max_positions=5)
    assert Experiment(model=model, data=DIGITS).data.max_length > 5


def test_the_displaced_have_no_heads_to_divide_by():
    assert Model(family="recurrent", d_model=300).num_heads == 8
    with pytest.raises(ConfigError, match="d_model=300 is not divisible by num_heads=8"):
        Model(d_model=300)


@pytest.mark.parametrize("task", ["language_model", "text_to_text", "digits"])
def test_lengths_are_not_compared_where_they_have_nothing_in_common(task):
    family, tokenizer = ("vision", "whitespace") if task == "digits" else ("transformer", "sentencepiece")
    with pytest.raises(ConfigError, match="would drop what is to be learned"):
        Experiment(model=Model(family=family), data=config.Data(task=task, tokenizer=tokenizer, max_length_ratio=2.0))


def test_a_text_beside_itself_is_identical():
    with pytest.raises(ConfigError, match="drop_identical drops all"):
        Experiment(model=Model(family="encoder"), data=config.Data(task="masked_language_model", drop_identical=True))


def test_linformers_columns_are_as_limited_as_a_learned_table():
    with pytest.raises(ConfigError, match=r"max_positions=8 is shorter"):
        Experiment(model=Model(encoder_attention="linformer", max_positions=8))


@pytest.mark.parametrize("name", COMBINATIONS)
def test_every_choice_is_in_the_json_and_in_the_hash(name):
    experiment = Experiment(model=replace(COMBINATIONS[name], max_positions=1024))
    assert config_fields.from_json(config_fields.to_json(experiment)) == experiment
    plain = Experiment(model=Model(num_layers=1, d_model=16, d_ff=24, num_heads=4, vocabulary_multiple=8))
    assert trajectory.config_hash(experiment) != trajectory.config_hash(plain)
