"""The label-smoothed loss against its definition, in float64 and one token at a time."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.model import Unprojected
from t2t_jax.model.attention import MASKED
from t2t_jax.symbols import PAD_ID
from t2t_jax.training.loss import cross_entropy

MASSES = ("vocabulary", "others")


@functools.partial(jax.jit, static_argnames=("vocabulary_size", "mass"))
def loss_of(logits, targets, vocabulary_size, smoothing, mass):
    """The loss where the projection is the identity, so that the decoder's output is the logits."""
    table = jnp.eye(logits.shape[-1])[:, :vocabulary_size]  # the filling's rows are 0
    x = logits[..., :vocabulary_size]
    return cross_entropy(Unprojected(x, table[targets], table, None), targets, vocabulary_size, smoothing, mass)


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


# Few shapes and sizes, since each is compiled.
@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(1, 1), (3, 4), (2, 7)]),
    vocabulary_size=st.sampled_from([2, 19, 24]),
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


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("with_bias", [False, True])
def test_gradients_are_those_of_the_definition(mass, with_bias):
    rng = np.random.default_rng(0)
    size, filling = 20, 4
    table = jnp.asarray(rng.standard_normal((size + filling, 6)), jnp.float32).at[size:].set(0)
    bias = jnp.asarray(rng.standard_normal(size + filling), jnp.float32) if with_bias else None
    x = jnp.asarray(rng.standard_normal((3, 4, 6)), jnp.float32)
    targets = jnp.asarray(random_case(0, (3, 4), size)[1])

    def ours(x, table, bias):
        return 0.7 * cross_entropy(Unprojected(x, table[targets], table, bias), targets, size, 0.1, mass).smoothed

    def definition(x, table, bias):
        logits = (x @ table.T + (0 if bias is None else bias))[..., :size]
        share = 0.1 / (size if mass == "vocabulary" else size - 1)
        hot = jax.nn.one_hot(targets, size)
        wanted = 0.9 * hot + share * (1 if mass == "vocabulary" else 1 - hot)
        return -0.7 * jnp.sum((targets != PAD_ID)[..., None] * wanted * jax.nn.log_softmax(logits))

    wrt = (0, 1, 2) if with_bias else (0, 1)
    both = (jax.value_and_grad(loss, argnums=wrt)(x, table, bias) for loss in (ours, definition))
    values, gradients = zip(*both, strict=True)
    np.testing.assert_allclose(*values, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *gradients)
    assert not gradients[0][1][size:].any()


def test_logits_far_below_those_of_the_filling_lose_nothing():
    logits, targets = random_case(0, (3, 4), 20, filling=4)
    low = np.where(logits == MASKED, logits, logits - 1000)
    there, here = (loss_of(case, targets, 20, 0.1, mass="vocabulary") for case in (low, logits))
    np.testing.assert_allclose(there.plain, here.plain, rtol=1e-4)


def test_in_bfloat16_weights_get_float32_gradients():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((2, 50, 8)), jnp.bfloat16)
    table = jnp.asarray(rng.standard_normal((24, 8)), jnp.float32)
    targets = jnp.asarray(rng.integers(1, 24, (2, 50)))

    def gradient(x, table):
        def loss(x, table):
            return cross_entropy(Unprojected(x, table[targets], table, None), targets, 24, 0.1).smoothed

        return jax.grad(loss, argnums=(0, 1))(x, table)

    rounded, exact = (
        gradient(x, table),
        gradient(x.astype(jnp.float32), table.astype(jnp.bfloat16).astype(jnp.float32)),
    )
    assert (rounded[0].dtype, rounded[1].dtype) == (jnp.bfloat16, jnp.float32)
    # A sum over 100 tokens in bfloat16 would be off by a percent or more.
    assert jnp.linalg.norm(rounded[1] - exact[1]) < 3e-3 * jnp.linalg.norm(exact[1])
