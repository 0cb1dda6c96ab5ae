"""Products with weights: values, gradients, and the type that gradients are summed in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from t2t_jax.model.linear import linear


class Joined(nn.Module):
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x):
        init, axes = nn.initializers.normal(), ("heads", "kv", "embed")
        return linear(self, "w", init, axes, (3, 4, 5), self.dtype, inputs=2, bias="b")(x)


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(0)
    params = {
        name: jnp.asarray(rng.standard_normal(shape), jnp.float32) for name, shape in (("w", (3, 4, 5)), ("b", 5))
    }
    x, above = (jnp.asarray(rng.standard_normal((7, 90, *rest)), jnp.float32) for rest in ((3, 4), (5,)))
    return params, x, above


def test_value_and_gradients_are_those_of_the_product(case):
    params, x, above = case
    ours, theirs = (
        jax.vjp(function, params, x)
        for function in (
            lambda params, x: Joined(jnp.float32).apply({"params": params}, x),
            lambda params, x: jnp.einsum("nthv,hvd->ntd", x, params["w"]) + params["b"],
        )
    )
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), ours[1](above), theirs[1](above))


def test_in_bfloat16_weights_get_float32_gradients(case):
    params, x, above = case
    x, above = x.astype(jnp.bfloat16), above.astype(jnp.bfloat16)
    y, pull = jax.vjp(lambda params, x: Joined(jnp.bfloat16).apply({"params": params}, x), params, x)
    to_params, to_x = pull(above)
    assert (y.dtype, to_x.dtype, to_params["w"].dtype, to_params["b"].dtype) == (
        jnp.bfloat16, jnp.bfloat16, jnp.float32, jnp.float32,
    )  # fmt: skip
    # The inputs are exact in bfloat16, so what is left of an error is that of float32 sums.
    exact = jnp.einsum("nthv,ntd->hvd", x.astype(jnp.float32), above.astype(jnp.float32))
    np.testing.assert_allclose(to_params["w"], exact, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(to_params["b"], above.astype(jnp.float32).sum((0, 1)), rtol=1e-4, atol=1e-3)
