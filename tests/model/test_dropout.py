"""Dropout's masks against JAX's own, and its gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.model.dropout import Dropout, drop, kept


@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(), (1,), (7,), (3, 5), (2, 3, 4, 5)]),
    rate=st.sampled_from([0.1, 0.3, 0.5]) | st.floats(0.001, 0.999),
)
def test_a_mask_is_that_of_jax(seed, shape, rate):
    key = jax.random.key(seed)
    expected = jax.random.bernoulli(key, 1 - rate, shape)
    np.testing.assert_array_equal(kept(jax.random.key_data(key), shape, rate), expected)


def test_what_stays_is_scaled_up_and_the_gradient_is_dropped_alike():
    key, x = jax.random.key(3), jnp.arange(1.0, 1001.0)
    mask = np.asarray(jax.random.bernoulli(key, 0.7, x.shape))
    y, pull = jax.vjp(lambda x: drop(x, jax.random.key_data(key), 0.3), x)
    np.testing.assert_allclose(y, np.where(mask, x / np.float32(0.7), 0), rtol=1e-6)
    np.testing.assert_allclose(pull(jnp.ones_like(x))[0], np.where(mask, 1 / np.float32(0.7), 0), rtol=1e-6)


@pytest.mark.parametrize(("rate", "deterministic"), [(0.0, False), (0.5, True)])
def test_nothing_is_dropped_or_drawn_without_need(rate, deterministic):
    x = jnp.ones(8)
    assert (Dropout(rate).apply({}, x, deterministic=deterministic) == x).all()


def test_a_mask_beyond_the_counter_is_refused():
    with pytest.raises(ValueError, match="more than 2\\^32"):
        jax.eval_shape(lambda: kept(jnp.zeros(2, jnp.uint32), (2**16, 2**16), 0.1))
