"""One optimizer step, and one evaluation of the loss: pure functions for `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from t2t_jax import config
from t2t_jax.data.pipeline import Batch
from t2t_jax.model import SequenceModel
from t2t_jax.symbols import PAD_ID
from t2t_jax.training.loss import TokenLoss, cross_entropy
from t2t_jax.training.state import Params, TrainState


class StepMetrics(NamedTuple):
    """Of one step; scalars that stay on the device until the log needs them."""

    loss: TokenLoss
    gradient_norm: jax.Array
    balance: jax.Array | None = None
    """How unevenly experts are picked, the mean over the parts of the batch; None where there are none."""


TrainStep = Callable[[TrainState, Batch], tuple[TrainState, StepMetrics]]


def make_train_step(
    transformer: SequenceModel, optimizer: optax.GradientTransformation, training: config.Training
) -> TrainStep:
    """The step for a batch [B, S], [B, T] whose rows divide by `training.accumulation`.

    The loss is the mean over all real target tokens of the global batch, however many parts it is computed in. Dropout
    keys are folded from (seed, step, part), so they depend neither on the mesh nor on where a run was resumed.
    """

    batch_loss = make_batch_loss(transformer, training.label_smoothing, training.label_smoothing_mass)

    def part_loss(params: Params, part: Batch, key: jax.Array, tokens: jax.Array) -> tuple[jax.Array, BatchLoss]:
        loss = batch_loss(params, part, deterministic=False, rngs={"dropout": key})
        minimised = loss.of_tokens.smoothed / tokens
        if loss.balance is not None:
            minimised += transformer.config.expert_balance * loss.balance
        return minimised, loss

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, StepMetrics]:
        key = jax.random.fold_in(jax.random.key(training.seed), state.step)
        tokens = jnp.maximum(jnp.sum(batch.target != PAD_ID), 1).astype(jnp.float32)
        # Part i takes every accumulation-th row from i on, so that each part is spread over all devices.
        parts = jax.tree.map(lambda a: a.reshape(-1, training.accumulation, *a.shape[1:]).swapaxes(0, 1), batch)

        def accumulate(
            total: tuple[Params, BatchLoss], numbered: tuple[jax.Array, Batch]
        ) -> tuple[tuple[Params, BatchLoss], None]:
            number, part = numbered
            gradient, loss = jax.grad(part_loss, has_aux=True)(
                state.params, part, jax.random.fold_in(key, number), tokens
            )
            return jax.tree.map(jnp.add, total, (gradient, loss)), None

        no_loss = TokenLoss(jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32))
        no_balance = None if transformer.config.experts is None else jnp.zeros(())
        nothing = jax.tree.map(jnp.zeros_like, state.params), BatchLoss(no_loss, no_balance)
        numbers = jnp.arange(training.accumulation)
        (gradient, loss), _ = jax.lax.scan(accumulate, nothing, (numbers, parts))
        with jax.named_scope("optimizer"):
            updates, optimizer_state = optimizer.update(gradient, state.optimizer, state.params)
            params = optax.apply_updates(state.params, updates)
        metrics = StepMetrics(loss.of_tokens, optax.global_norm(gradient), loss.balance)
        return TrainState(state.step + 1, params, optimizer_state), metrics

    return train_step


class BatchLoss(NamedTuple):
    """What a batch has to say against the parameters."""

    of_tokens: TokenLoss
    balance: jax.Array | None
    """How unevenly experts are picked, the mean over all layers' mixtures; in training alone."""


def make_batch_loss(transformer: SequenceModel, smoothing: float, mass: str) -> Callable[..., BatchLoss]:
    """(params, batch, deterministic=…, rngs=…) -> the loss of the batch, with dropout unless it is deterministic."""

    def batch_loss(params: Params, batch: Batch, **options: Any) -> BatchLoss:
        found: Any = transformer.apply({"params": params}, *batch, **options, method="unprojected", mutable=["balance"])
        unprojected, sown = found
        balances = jax.tree.leaves(sown)
        with jax.named_scope("loss"):
            loss = cross_entropy(unprojected, batch.target, transformer.vocabulary_size, smoothing, mass)
            return BatchLoss(loss, jnp.mean(jnp.stack(balances)) if balances else None)

    return batch_loss
