"""bfloat16 is for products only: what learning adds up stays in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax import config
from t2t_jax.data.pipeline import Batch
from t2t_jax.model import build
from t2t_jax.training.optimizer import make_optimizer
from t2t_jax.training.state import TrainState
from t2t_jax.training.step import make_train_step
from tests.combinations import COMBINATIONS

MODEL = config.Model(num_layers=1, d_model=32, d_ff=64, num_heads=4, dropout=0.0, vocabulary_multiple=8)
RNG = np.random.default_rng(0)
BATCH = Batch(*(RNG.integers(4, 40, (6, 9)).astype(np.int32) for _ in range(2)))


def one_step(params, dtype: str):
    transformer, training = build(MODEL, 40, dtype), config.Training(compute_dtype=dtype)
    adam = make_optimizer(config.Optimizer(), MODEL.d_model)
    state = TrainState(jnp.zeros((), jnp.int32), params, adam.init(params))
    return jax.jit(make_train_step(transformer, adam, training))(state, BATCH)


def test_bfloat16_step_is_close_and_keeps_float32_state(random_params) -> None:
    params = random_params(build(MODEL, 40))
    (state32, metrics32), (state16, metrics16) = one_step(params, "float32"), one_step(params, "bfloat16")
    assert {leaf.dtype for leaf in jax.tree.leaves(state16.params)} == {jnp.dtype("float32")}
    assert metrics16.loss.smoothed.dtype == jnp.float32
    loss32, loss16 = (float(m.loss.smoothed) for m in (metrics32, metrics16))
    assert loss32 != loss16, "bfloat16 was used"
    assert abs(loss16 / loss32 - 1) < 0.01
    assert jax.tree.structure(state32) == jax.tree.structure(state16)


def products(jaxpr) -> list:
    """All matrix products of a jaxpr, those inside its calls included."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            found.append(equation)
        for inner in jax.core.jaxprs_in_params(equation.params):
            found += products(inner)
    return found


def test_products_read_bfloat16_and_scores_and_logits_come_in_float32(random_params) -> None:
    params = random_params(build(MODEL, 40))
    transformer = build(MODEL, 40, "bfloat16")
    traced = jax.make_jaxpr(lambda p: transformer.apply({"params": p}, *BATCH, deterministic=True))(params)
    found = products(traced.jaxpr)
    assert {variable.aval.dtype for product in found for variable in product.invars} == {jnp.dtype("bfloat16")}
    wide = [product for product in found if product.outvars[0].aval.dtype == jnp.float32]
    assert len(wide) == 3 + 1, "the scores of three attention sub-layers, and the logits"


@pytest.mark.parametrize("name", COMBINATIONS)
def test_gradients_of_every_parameter_are_float32_sums(name: str, random_params) -> None:
    """One that was ever rounded to bfloat16, before it is added up between devices, has no digits left below it."""
    transformer = build(COMBINATIONS[name], 40, "bfloat16")
    both_sides = Batch(BATCH.source, BATCH.source) if COMBINATIONS[name].family == "encoder" else BATCH
    weights = RNG.standard_normal((*both_sides.target.shape, 40)).astype(np.float32)

    @jax.jit
    def gradient(params):
        def weighed(params):
            logits = transformer.apply({"params": params}, *both_sides, deterministic=True)
            return jnp.sum(weights * jax.nn.log_softmax(logits[..., :40]))

        return jax.grad(weighed)(params)

    rounded = {
        jax.tree_util.keystr(path)
        for path, leaf in jax.tree_util.tree_leaves_with_path(gradient(random_params(transformer)))
        if (used := leaf[leaf != 0]).size and np.mean(used == used.astype(jnp.bfloat16)) > 0.5
    }
    assert not rounded
