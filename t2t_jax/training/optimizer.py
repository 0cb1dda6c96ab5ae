"""Adam and its schedule, section 5.3."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from t2t_jax import config


def schedule(optimizer: config.Optimizer, d_model: int) -> Callable[[jax.Array | int], jax.Array]:
    """Equation 3: count of finished steps to the next step's learning rate; the paper counts steps from 1."""
    warmup = optimizer.warmup_steps
    if optimizer.peak_learning_rate is not None:
        scale = optimizer.peak_learning_rate * warmup**0.5
    else:
        factor = 1.0 if optimizer.learning_rate_factor is None else optimizer.learning_rate_factor
        scale = factor * d_model**-0.5

    def learning_rate(count: jax.Array | int) -> jax.Array:
        step = jnp.asarray(count, jnp.float32) + 1
        return scale * jnp.minimum(step**-0.5, step * warmup**-1.5)

    return learning_rate


def make_optimizer(optimizer: config.Optimizer, d_model: int) -> optax.GradientTransformation:
    """Adam with the schedule, behind clipping by global norm where that is asked for."""
    steps = [] if optimizer.gradient_clip is None else [optax.clip_by_global_norm(optimizer.gradient_clip)]
    return optax.chain(
        *steps,
        optax.scale_by_adam(b1=optimizer.beta1, b2=optimizer.beta2, eps=optimizer.epsilon),
        optax.scale_by_learning_rate(schedule(optimizer, d_model)),
    )
