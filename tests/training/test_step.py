"""The training step: one loss whatever the parts, dead rows, the vocabulary's filling, and where dropout comes from."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from t2t_jax import config, model
from t2t_jax.data.pipeline import Batch
from t2t_jax.parallel.mesh import make_mesh
from t2t_jax.symbols import PAD_ID
from t2t_jax.training.optimizer import make_optimizer
from t2t_jax.training.state import TrainState, init_state
from t2t_jax.training.step import make_batch_loss, make_train_step

VOCABULARY = 11  # 16 with the filling rows
MODEL = config.Model(num_layers=1, d_model=8, d_ff=16, num_heads=2, vocabulary_multiple=8, dropout=0.0)
DROPPING = replace(MODEL, relu_dropout=0.3)  # the kind that compiles fastest
# Target lengths differ between the rows, and so between parts: a mean of the parts' means would be another loss.
BATCH = Batch(
    np.array([[5, 6, 3, 0], [4, 3, 0, 0], [7, 8, 9, 3], [6, 3, 0, 0]]),
    np.array([[4, 5, 6, 10, 3], [9, 7, 4, 8, 3], [3, 0, 0, 0, 0], [5, 3, 0, 0, 0]]),
)


def reference_loss(transformer, params, batch):
    """Section 5.4's loss, the mean over all real target tokens, from its definition."""
    logits = transformer.apply({"params": params}, batch.source, batch.target, deterministic=True)
    log_probabilities = jax.nn.log_softmax(logits[..., :VOCABULARY])
    wanted = 0.9 * jax.nn.one_hot(batch.target, VOCABULARY) + 0.1 / VOCABULARY
    return -(wanted * log_probabilities).sum(-1)[batch.target != PAD_ID].mean()


def descend(transformer, params, batch, accumulation=1):
    """A step of plain gradient descent at rate 1: unlike Adam it shows the gradients' size, not their signs."""
    optimizer = optax.sgd(1.0)
    step = jax.jit(make_train_step(transformer, optimizer, config.Training(accumulation=accumulation)))
    return step(TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params)), batch)


def assert_same(actual, expected, tolerance):
    """Leaf by leaf, the largest difference relative to the largest value."""
    for (path, a), (_, b) in zip(*map(jax.tree_util.tree_leaves_with_path, (actual, expected)), strict=True):
        assert np.abs(a - b).max() <= tolerance * np.abs(b).max(), jax.tree_util.keystr(path)


@pytest.fixture(scope="module")
def transformer():
    return model.build(MODEL, VOCABULARY)


@pytest.fixture(scope="module")
def params(transformer, random_params):
    return random_params(transformer)


@pytest.fixture(scope="module")
def reference(transformer, params):
    """The loss, and the parameters after a step at rate 1."""
    loss, gradient = jax.jit(jax.value_and_grad(lambda p: reference_loss(transformer, p, BATCH)))(params)
    return loss, jax.tree.map(jnp.subtract, params, gradient)


@pytest.mark.parametrize("accumulation", [1, 2, 4])
def test_a_step_descends_the_token_mean_of_the_global_batch(accumulation, transformer, params, reference):
    loss, expected = reference
    state, metrics = descend(transformer, params, BATCH, accumulation)
    assert_same(state.params, expected, 1e-5)
    assert metrics.loss.smoothed / metrics.loss.tokens == pytest.approx(float(loss), rel=1e-5)
    assert metrics.loss.tokens == (BATCH.target != PAD_ID).sum()
    distance = optax.global_norm(jax.tree.map(jnp.subtract, params, expected))
    assert metrics.gradient_norm == pytest.approx(float(distance), rel=1e-5)
    assert state.step == 1


def test_dead_rows_change_nothing(transformer, params, reference):
    # Three parts of three rows: one alive, one mixed, one of dead rows only.
    dead = jax.tree.map(lambda side: np.pad(side, ((0, 5), (0, 0))), BATCH)
    state, metrics = descend(transformer, params, dead, accumulation=3)
    assert_same(state.params, reference[1], 1e-6)
    assert metrics.loss.tokens == (BATCH.target != PAD_ID).sum()


def test_without_learning_it_is_the_same_loss(transformer, params, reference):
    batch_loss = make_batch_loss(transformer, 0.1, "vocabulary")
    loss = jax.jit(lambda p: batch_loss(p, BATCH, deterministic=True).of_tokens)(params)
    assert loss.smoothed / loss.tokens == pytest.approx(float(reference[0]), rel=1e-5)


def make_dropping_step(seed):
    transformer, optimizer = model.build(DROPPING, VOCABULARY), make_optimizer(config.Optimizer(warmup_steps=2), 8)
    return transformer, optimizer, jax.jit(make_train_step(transformer, optimizer, config.Training(seed=seed)))


@pytest.fixture(scope="module")
def dropping():
    """A fresh state and a step with dropout."""
    transformer, optimizer, step = make_dropping_step(seed=1)
    mesh = make_mesh(config.Mesh(), jax.devices()[:1])
    return jax.device_get(init_state(transformer, optimizer, mesh, seed=1)), step


def test_filling_vocabulary_rows_start_at_zero_and_stay_there(dropping):
    fresh, step = dropping
    state = fresh
    for _ in range(3):
        state, _ = step(state, BATCH)
    before, after = fresh.params["embedding"], state.params["embedding"]
    assert before.shape == after.shape == (16, 8)
    assert (before[:VOCABULARY] != after[:VOCABULARY]).all()
    assert not before[VOCABULARY:].any()
    assert not after[VOCABULARY:].any()


def test_the_same_state_goes_on_to_the_same_bits(dropping):
    fresh, step = dropping
    state, _ = step(fresh, BATCH)
    jax.tree.map(np.testing.assert_array_equal, step(state, BATCH), step(jax.device_get(state), BATCH))


def test_dropout_depends_on_step_and_seed(dropping):
    fresh, step = dropping
    _, _, other_seed = make_dropping_step(seed=2)
    here, at_another_step, with_another_seed = (
        s(state, BATCH)[1].loss.smoothed
        for s, state in ((step, fresh), (step, fresh._replace(step=np.int32(1))), (other_seed, fresh))
    )
    assert here != at_another_step
    assert here != with_another_seed
