"""The label-smoothed loss against its definition, in float64 and one token at a time."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.model.attention import MASKED
from t2t_jax.symbols import PAD_ID
from t2t_jax.training.loss import cross_entropy

MASSES = ("vocabulary", "others")
loss_of = functools.partial(jax.jit, static_argnames="mass")(cross_entropy)


def by_definition(logits, targets, vocabulary_size, smoothing, mass):
    smoothed, plain, tokens = 0.0, 0.0, 0
    for row, gold in zip(logits.reshape(-1, logits.shape[-1]), targets.ravel(), strict=True):
        if gold == PAD_ID:
            continue
        row = row[:vocabulary_size].astype(np.float64)
        log_probabilities = row - np.log(np.exp(row).sum())
        share = smoothing / (vocabulary_size if mass == "vocabulary" else vocabulary_size - 1)
        wanted = np.full(vocabulary_size, share)
        wanted[gold] = 1 - smoothing + (share if mass == "vocabulary" else 0)
        assert wanted.sum() == pytest.approx(1)
        smoothed -= wanted @ log_probabilities
        plain -= log_probabilities[gold]
        tokens += 1
    return smoothed, plain, tokens


def random_case(seed, shape, vocabulary_size, filling=0, scale=3.0):
    rng = np.random.default_rng(seed)
    logits = np.full((*shape, vocabulary_size + filling), MASKED, np.float32)
    logits[..., :vocabulary_size] = scale * rng.standard_normal((*shape, vocabulary_size))
    targets = np.where(rng.random(shape) < 0.3, PAD_ID, rng.integers(1, vocabulary_size, shape))
    return logits, targets


# Few shapes, since each is compiled; the vocabulary's size within them is free.
@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(1, 1), (3, 4), (2, 7)]),
    vocabulary_size=st.integers(2, 24),
    smoothing=st.sampled_from([0.0, 0.1]) | st.floats(0, 0.99),
    mass=st.sampled_from(MASSES),
    scale=st.sampled_from([0.1, 3.0, 20.0]),
)
def test_equals_the_definition(seed, shape, vocabulary_size, smoothing, mass, scale):
    logits, targets = random_case(seed, shape, vocabulary_size, 24 - vocabulary_size, scale)
    loss = loss_of(logits, targets, vocabulary_size, smoothing, mass=mass)
    expected = by_definition(logits, targets, vocabulary_size, smoothing, mass)
    np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mass", MASSES)
def test_without_smoothing_it_is_the_plain_negative_log_likelihood(mass):
    logits, targets = random_case(0, (3, 4), 24)
    loss = loss_of(logits, targets, 24, 0.0, mass=mass)
    assert loss.smoothed == loss.plain > 0


@pytest.mark.parametrize("mass", MASSES)
def test_padding_weighs_nothing(mass):
    logits, targets = random_case(0, (3, 4), 24)
    padding = targets == PAD_ID
    assert 0 < padding.sum() < padding.size
    changed = np.where(padding[..., None], 1e4 * logits[..., ::-1], logits)
    first, second = (loss_of(x, targets, 24, 0.1, mass=mass) for x in (logits, changed))
    assert first == second
    assert first.tokens == (~padding).sum()
    gradient = jax.grad(lambda x: loss_of(x, targets, 24, 0.1, mass=mass).smoothed)(changed)
    assert not gradient[padding].any()
    assert gradient[~padding].any()


def test_a_batch_of_padding_is_a_loss_of_zero():
    logits, _ = random_case(0, (3, 4), 24)
    assert loss_of(logits, jnp.zeros((3, 4), int), 24, 0.1, mass="vocabulary") == (0, 0, 0)


@pytest.mark.parametrize("mass", MASSES)
def test_filling_columns_are_ignored(mass):
    logits, targets = random_case(0, (3, 4), 20, filling=4)
    assert (logits[..., 20:] == MASKED).all()
    filled = loss_of(logits, targets, 20, 0.1, mass=mass)
    np.testing.assert_allclose(filled, loss_of(logits[..., :20], targets, 20, 0.1, mass=mass), rtol=1e-6)
    gradient = jax.grad(lambda x: loss_of(x, targets, 20, 0.1, mass=mass).smoothed)(logits)
    assert not gradient[..., 20:].any()
