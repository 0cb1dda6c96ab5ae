"""Attention whose memory is linear in length: the exact one, and the one by random features."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.model.choices.alibi import Alibi
from t2t_jax.model.choices.blockwise import blockwise
from t2t_jax.model.choices.performer import causal, directions, positive_features, quotient
from t2t_jax.model.choices.varied import Pairs

RNG = np.random.default_rng(0)
ROWS, QUERIES, KEYS, HEADS = 2, 11, 13, 2
BIAS = Alibi(HEADS).bias("encoder")


def full(queries, keys, values, real, pairs):
    """Softmax over all keys at once."""
    weights = jax.nn.softmax(pairs.scores(queries, keys, *map(jnp.arange, (queries.shape[1], keys.shape[1])), real))
    return jnp.einsum("bhqs,bshv->bqhv", weights, values)


@pytest.mark.parametrize("block", [4, 100])
@pytest.mark.parametrize("shorter", [3, 0])
@pytest.mark.parametrize("pairs", [Pairs(), Pairs(causal=True), Pairs(bias=BIAS), Pairs(True, 5, BIAS)])
def test_blockwise_is_full_attention_in_value_and_gradient(pairs, shorter, block):
    """With rows of no real key too, whose outputs nobody uses but whose gradients have to be numbers."""
    count = QUERIES if pairs.causal else KEYS
    given = [RNG.standard_normal((ROWS, n, HEADS, 4), np.float32) for n in (QUERIES, count, count)]
    real = None if pairs.causal else jnp.arange(count) < jnp.array([[count], [shorter]])
    above = RNG.standard_normal((ROWS, QUERIES, HEADS, 4), np.float32)

    def both(attend):
        value, back = jax.vjp(attend, *given)
        return value, back(above)

    ours = jax.jit(lambda: both(lambda *given: blockwise(*given, real, pairs, block)))()
    expected = jax.jit(lambda: both(lambda *given: full(*given, real, pairs)))()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), ours, expected)


def temporary(attend, length: int) -> int:
    """Bytes that value and gradient take besides what is given and found."""
    given = [jax.ShapeDtypeStruct((1, length, 1, 8), np.float32)] * 3
    step = jax.jit(jax.grad(lambda *given: jnp.sum(attend(*given, None, Pairs(causal=True)) ** 2), argnums=(0, 1, 2)))
    return step.lower(*given).compile().memory_analysis().temp_size_in_bytes


def test_blockwise_takes_memory_linear_in_length():
    def ours(*given):
        return blockwise(*given, block=32)

    assert temporary(full, 2048) > 3.5 * temporary(full, 1024), "the weights grow with the square"
    assert temporary(ours, 2048) < 2.1 * temporary(ours, 1024) < temporary(full, 1024) / 4


def softmax_kernel(queries, keys, values, hidden):
    weights = np.exp(np.einsum("bqhk,bshk->bhqs", queries, keys, dtype=np.float64) / np.sqrt(queries.shape[-1]))
    weights = np.where(hidden, 0, weights)
    return np.einsum("bhqs,bshv->bqhv", weights / weights.sum(-1, keepdims=True), values)


def test_the_feature_map_is_the_papers():
    x, omega = RNG.standard_normal((5, 8)).astype(np.float32), directions(8, 20, seed=3)
    scaled = x.astype(np.float64) / 8**0.25
    expected = np.stack([np.exp(scaled @ w - (scaled**2).sum(-1) / 2) for w in omega.astype(np.float64)], -1) / 20**0.5
    np.testing.assert_allclose(positive_features(x, omega), expected, rtol=1e-5)
    of_queries = positive_features(x, omega, of_queries=True)
    np.testing.assert_allclose(of_queries, expected / expected.max(-1, keepdims=True) / 20**0.5, rtol=1e-5)


def test_directions_are_orthogonal_as_long_as_gaussian_ones_and_the_seeds():
    omega = directions(16, 16 * 50, seed=0).astype(np.float64)
    for block in omega.reshape(50, 16, 16):
        products = block @ block.T
        np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-5)
    assert np.mean(np.sum(omega**2, -1)) == pytest.approx(16, rel=0.05)
    np.testing.assert_array_equal(directions(16, 5, 1), directions(16, 5, 1))
    assert (directions(16, 5, 1) != directions(16, 5, 2)).all()


@pytest.mark.parametrize("hidden", [False, True])
def test_more_features_come_closer_to_softmax(hidden):
    """Causal or not, the error falls as the root of the number of features."""
    queries, keys, values = (RNG.standard_normal((2, 20, 2, 8)).astype(np.float32) for _ in range(3))
    queries, keys = 0.5 * queries, 0.5 * keys
    exact = softmax_kernel(queries, keys, values, np.triu(np.ones((20, 20), bool), 1) & hidden)

    @jax.jit
    def found(omega):
        q, k = positive_features(queries, omega, True), positive_features(keys, omega)
        if hidden:
            return causal(q, k, values, block=6)
        return quotient("bqhm,bhmv->bqhv", q, jnp.einsum("bshm,bshv->bhmv", k, values), jnp.sum(k, axis=1))

    errors = [
        np.mean([(found(directions(8, count, seed)) - exact) ** 2 for seed in range(8)]) ** 0.5
        for count in (16, 256, 4096)
    ]
    np.testing.assert_allclose(errors[0] / errors[1], 4, rtol=0.35)
    np.testing.assert_allclose(errors[1] / errors[2], 4, rtol=0.35)
    assert errors[-1] < 0.05 * np.std(exact)


@pytest.mark.parametrize("block", [1, 4, 50])
def test_running_sums_are_all_pairs_up_to_each_position(block):
    q, k = (np.abs(RNG.standard_normal((2, 9, 2, 5))).astype(np.float32) for _ in range(2))
    v = RNG.standard_normal((2, 9, 2, 3)).astype(np.float32)
    weights = np.einsum("bqhm,bshm->bhqs", q, k) * np.tril(np.ones((9, 9)))
    expected = np.einsum("bhqs,bshv->bqhv", weights / weights.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(jax.jit(causal, static_argnums=3)(q, k, v, block), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("causally", [False, True])
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-24, 1e-15])
def test_keys_of_which_little_or_nothing_is_left_have_a_gradient(size, causally):
    """As large keys have it: their features are exp(-|k|^2 / 2) and less."""

    def found(features):
        queries, values = jnp.ones((1, 3, 1, 4)), jnp.ones((1, 3, 1, 2))
        if causally:
            return jnp.mean(causal(queries, features, values))
        sums = jnp.einsum("bshm,bshv->bhmv", features, values)
        return jnp.mean(quotient("bqhm,bhmv->bqhv", queries, sums, jnp.sum(features, axis=1)))

    value, gradient = jax.jit(jax.value_and_grad(found))(jnp.full((1, 3, 1, 4), size))
    np.testing.assert_allclose(value, 1 if size > 1e-18 else 0, atol=1e-3)
    assert jnp.isfinite(gradient).all()
