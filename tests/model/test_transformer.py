"""What the model must hold whatever its size: masks, positions, dropout, and decoding a token at a time."""

import functools
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from t2t_jax import config, model
from t2t_jax.model.encoder_decoder import shift_right
from t2t_jax.model.layers import Residual
from t2t_jax.model.positions import sinusoids
from t2t_jax.symbols import BOS_ID, PAD_ID
from tests.combinations import COMBINATIONS

VOCABULARY = 11  # 16 with the filling rows
MODEL = config.Model(num_layers=1, d_model=16, d_ff=16, num_heads=2, vocabulary_multiple=8, max_positions=12)
SOURCE = np.array([[5, 7, 3, 0, 0], [6, 8, 9, 4, 3]] * 3)
TARGET = np.array([[4, 10, 6, 3, 0], [9, 3, 0, 0, 0]] * 3)


@functools.partial(jax.jit, static_argnums=0)
def apply(transformer, params, source, target):
    return transformer.apply({"params": params}, source, target, deterministic=True)


@functools.partial(jax.jit, static_argnums=0)
def apply_dropping(transformer, params, seed):
    rngs = {"dropout": jax.random.key(seed, impl="rbg")}  # compiles faster than the default generator
    return transformer.apply({"params": params}, SOURCE, TARGET, deterministic=False, rngs=rngs)


@pytest.fixture
def transformer():
    return model.build(MODEL, VOCABULARY)


@pytest.fixture
def params(transformer, random_params):
    return random_params(transformer)


def test_the_amount_of_padding_changes_no_real_logit(transformer, params):
    logits = apply(transformer, params, SOURCE, TARGET)
    wider = apply(transformer, params, np.pad(SOURCE, ((0, 0), (0, 3))), np.pad(TARGET, ((0, 0), (0, 2))))
    real = TARGET != PAD_ID
    np.testing.assert_allclose(logits[real], wider[:, : TARGET.shape[1]][real], rtol=1e-5, atol=1e-5)


def test_what_padding_looks_like_changes_no_real_logit(transformer, params):
    other = params | {"embedding": params["embedding"].at[PAD_ID].add(1)}
    logits, changed = (apply(transformer, p, SOURCE, TARGET) for p in (params, other))
    real = TARGET != PAD_ID
    # The padding's own column goes through the tied projection and does change.
    np.testing.assert_array_equal(logits[real][:, 1:], changed[real][:, 1:])
    assert (logits[~real][:, 1:] != changed[~real][:, 1:]).any()


def test_a_logit_depends_on_the_tokens_before_it_alone(transformer, params):
    target = np.array([4, 10, 6, 7, 5])
    place = np.arange(len(target))
    changed = np.where(place >= place[:, None], 9, target)  # row t: other tokens from position t on
    source = np.repeat(SOURCE[1:2], 1 + len(changed), axis=0)
    first, *others = np.asarray(apply(transformer, params, source, np.stack([target, *changed])))
    for t, logits in enumerate(others):
        np.testing.assert_array_equal(logits[: t + 1], first[: t + 1])
        assert (logits[t + 1 :] != first[t + 1 :]).any(axis=-1).all()


PAPERS = {
    "post": replace(MODEL, num_layers=2),
    "pre, learned": replace(MODEL, num_layers=2, norm="pre", positions="learned"),
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_a_new_model_of_any_kind_knows_nothing_and_is_sure_of_nothing(name):
    """Its loss is ln Z, and about a half more where logits have variance 1, also when the source repeats one word."""
    words = 40
    transformer = model.build(COMBINATIONS[name], words)
    source, target = np.random.default_rng(0).integers(4, words, (2, 8, 16))
    source[:, 4:] = 7

    @jax.jit
    def loss(key):
        params = nn.unbox(transformer.init(key, source, target, deterministic=True))
        likely = jax.nn.log_softmax(transformer.apply(params, source, target, deterministic=True))
        return -jnp.take_along_axis(likely, target[..., None], axis=-1).mean()

    assert abs(loss(jax.random.key(0)) - math.log(words)) < 1


@pytest.mark.parametrize("name", [*PAPERS, *COMBINATIONS])
def test_decoding_a_token_at_a_time_equals_teacher_forcing(name, random_params):
    transformer = model.build((PAPERS | COMBINATIONS)[name], VOCABULARY)
    params = random_params(transformer)
    source = SOURCE[:2]
    rows, beam, length = 2, 3, 4
    rng = np.random.default_rng(0)
    chosen = rng.integers(4, VOCABULARY, (length, rows, beam))
    parents = rng.integers(0, beam, (length, rows, beam))  # whom each hypothesis goes on from after a position
    own = np.broadcast_to(np.arange(beam)[:, None], (rows, beam, length + 2))
    past, writers = np.full((rows, beam, 1), BOS_ID), own
    pasts, tables = [], []
    for t in range(length):
        pasts.append(past)
        tables.append(np.where(np.arange(length + 2) < t, writers, own))
        grown = np.concatenate([past, chosen[t][..., None]], axis=2)
        past, writers = (np.take_along_axis(a, parents[t][..., None], axis=1) for a in (grown, tables[t]))

    @jax.jit
    def step_by_step(params):
        run = functools.partial(transformer.apply, {"params": params})
        memory = run(source, deterministic=True, method="encode")
        cache = run(memory, source != PAD_ID, beam, length, method="start_cache").lengthened((length + 2) * beam)

        def step(cache, numbered):
            logits, cache = run(numbered[1], numbered[0], numbered[2], cache, method="decode_step")
            return cache, logits

        inputs = jnp.stack([past[..., -1] for past in pasts])
        return jax.lax.scan(step, cache, (jnp.arange(length), inputs, jnp.stack(tables)))[1]

    for t, logits in enumerate(step_by_step(params)):
        targets = np.full((rows * beam, length), 4)
        targets[:, :t] = pasts[t][..., 1:].reshape(rows * beam, t)
        at_once = apply(transformer, params, np.repeat(source, beam, axis=0), targets)[:, t]
        np.testing.assert_allclose(logits, at_once.reshape(rows, beam, -1), rtol=1e-5, atol=1e-5)


def test_decoder_inputs_are_the_targets_behind_a_begin_of_sentence():
    np.testing.assert_array_equal(shift_right(jnp.array([[4, 10, 3], [9, 3, 0]])), [[BOS_ID, 4, 10], [BOS_ID, 9, 3]])


def test_sinusoids_are_the_papers():
    table = sinusoids(50, 8)
    for position in range(50):
        for i in range(4):
            angle = position / 10000 ** (2 * i / 8)
            assert table[position, 2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)


def test_concatenated_sinusoids_are_tensor2tensors():
    table = sinusoids(50, 8, "concatenated")
    for position in range(50):
        for i in range(4):
            angle = position / 10000 ** (i / 3)
            assert table[position, i] == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 4 + i] == pytest.approx(math.cos(angle), abs=1e-6)


def dropping(**rates):
    none = replace(MODEL, dropout=0.0, attention_dropout=0.0, relu_dropout=0.0)
    return model.build(replace(none, **rates), VOCABULARY)


@pytest.mark.parametrize("kind", ["dropout", "attention_dropout", "relu_dropout"])
def test_each_dropout_changes_the_output_and_its_key_decides_how(kind, transformer, params):
    first, again, other = (apply_dropping(dropping(**{kind: 0.5}), params, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    assert not np.allclose(first, apply(transformer, params, SOURCE, TARGET))


def test_embeddings_are_dropped_too(transformer, params):
    def silence(path, leaf):
        return leaf * (path[-1].key not in ("output", "w2", "b2"))  # what a sub-layer ends with

    params = jax.tree_util.tree_map_with_path(silence, params)
    undropped = apply(transformer, params, SOURCE, TARGET)
    assert not np.allclose(apply_dropping(dropping(dropout=0.5), params, 1), undropped)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_what_a_sub_layer_gives_is_dropped_before_it_is_added(norm):
    residual = Residual(replace(MODEL, norm=norm, dropout=0.5), jnp.float32)
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    y, _ = residual.init_with_output(keys, jnp.zeros((1, 1, 16)), jnp.ones_like, deterministic=False)
    dropped, kept = np.unique(y)
    if norm == "pre":
        assert (dropped, kept) == (0, 2)
    else:  # the normalisation comes after
        assert np.mean(y) == pytest.approx(0, abs=1e-6)
        assert np.std(y) == pytest.approx(1, rel=1e-5)


def test_filling_vocabulary_entries_have_no_probability_whatever_their_rows_hold(transformer, params):
    params = params | {"embedding": params["embedding"].at[VOCABULARY:].set(9.0)}
    probabilities = jax.nn.softmax(apply(transformer, params, SOURCE, TARGET))
    assert not probabilities[..., VOCABULARY:].any()
    assert probabilities[..., :VOCABULARY].all()
