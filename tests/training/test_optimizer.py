"""The schedule against equation 3, and Adam against its own paper's algorithm."""

import jax
import numpy as np
import pytest

from t2t_jax import config
from t2t_jax.training.optimizer import make_optimizer, schedule


def equation_3(step, d_model=512, warmup=4000):
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


@pytest.mark.parametrize("step", [1, 10, 4000, 100_000])
def test_the_schedule_is_equation_3(step):
    # Optax counts the steps that are done, the paper the one that is being made.
    assert schedule(config.Optimizer(), 512)(step - 1) == pytest.approx(equation_3(step), rel=1e-6)


@pytest.mark.parametrize("step", [1, 10, 300, 100_000])
def test_a_factor_scales_the_schedule(step):
    rate = schedule(config.Optimizer(learning_rate_factor=2.0, warmup_steps=300), 64)(step - 1)
    assert rate == pytest.approx(2 * equation_3(step, 64, 300), rel=1e-6)


@pytest.mark.parametrize("step", [1, 10, 300, 100_000])
def test_a_peak_is_the_same_curve_with_that_top_whatever_the_width(step):
    rate = schedule(config.Optimizer(peak_learning_rate=1e-3, warmup_steps=300), 64)(step - 1)
    assert rate == pytest.approx(1e-3 * equation_3(step, 64, 300) / equation_3(300, 64, 300), rel=1e-6)


def adam(params, gradients, *, rates, beta1, beta2, epsilon, clip=np.inf):
    m, v = np.zeros_like(params), np.zeros_like(params)
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        gradient = gradient * min(1, clip / np.linalg.norm(gradient))
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        params = params - rate * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + epsilon)
    return params


@pytest.mark.parametrize("clip", [None, 2.0])
def test_updates_are_adams(clip):
    rng = np.random.default_rng(0)
    start, gradients = rng.standard_normal(5), rng.standard_normal((6, 5))
    norms = np.linalg.norm(gradients, axis=1)
    assert norms.min() < 2.0 < norms.max()
    settings = config.Optimizer(warmup_steps=3, epsilon=1e-2, gradient_clip=clip)  # an epsilon that is seen
    optimizer = make_optimizer(settings, d_model=16)

    @jax.jit
    def step(params, state, gradient):
        updates, state = optimizer.update(gradient, state, params)
        return params + updates, state

    params = np.float32(start)
    state = optimizer.init(params)
    for gradient in np.float32(gradients):
        params, state = step(params, state, gradient)

    rates = [equation_3(t, 16, 3) for t in range(1, 7)]
    expected = adam(start, gradients, rates=rates, beta1=0.9, beta2=0.98, epsilon=1e-2, clip=clip or np.inf)
    np.testing.assert_allclose(params, expected, rtol=1e-5)


def test_defaults_are_the_papers():
    paper = config.Optimizer(beta1=0.9, beta2=0.98, epsilon=1e-9, warmup_steps=4000, gradient_clip=None)
    assert config.Optimizer() == paper
