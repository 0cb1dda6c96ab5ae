"""What training carries from step to step, born sharded."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding

from t2t_jax.model import SequenceModel
from t2t_jax.parallel import mesh as meshes

Params = Any  # a pytree of float32 arrays


class TrainState(NamedTuple):
    """Finished steps, parameters and optimizer state; with the seed this decides everything that follows."""

    step: jax.Array  # int32 scalar
    params: Params
    optimizer: optax.OptState


def abstract_state(
    transformer: SequenceModel, optimizer: optax.GradientTransformation, mesh: Mesh
) -> tuple[TrainState, TrainState]:
    """Shapes and shardings of the state on `mesh`, without allocating anything.

    Raises:
      ConfigError: the mesh does not divide a parameter.
    """
    boxed = jax.eval_shape(lambda: _init(transformer, optimizer, 0))
    shardings = meshes.shardings(boxed, mesh)

    def place(leaf: jax.ShapeDtypeStruct, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree.map(place, nn.unbox(boxed), shardings), shardings


def init_state(
    transformer: SequenceModel, optimizer: optax.GradientTransformation, mesh: Mesh, seed: int
) -> TrainState:
    """Fresh state; each device makes only its own part of it. The values do not depend on the mesh."""
    _, shardings = abstract_state(transformer, optimizer, mesh)
    init = jax.jit(lambda: nn.unbox(_init(transformer, optimizer, seed)), out_shardings=shardings)
    return init()


def count_parameters(params: Params, transformer: SequenceModel) -> int:
    """Trainable numbers, without the rows that fill the vocabulary up to its multiple."""
    model, vocabulary = transformer.config, transformer.vocabulary_size
    filling = (model.padded_vocabulary(vocabulary) - vocabulary) * (model.d_model + (model.biases == "all"))
    return sum(leaf.size for leaf in jax.tree.leaves(params)) - filling


def abstract_params(transformer: SequenceModel) -> Params:
    """Shapes of the parameters alone."""
    return nn.unbox(jax.eval_shape(lambda: _init_params(transformer, 0)))


def _init_params(transformer: SequenceModel, seed: int) -> Params:
    token = jnp.ones((1, 1), jnp.int32)
    return transformer.init(jax.random.key(seed), token, token, deterministic=True)["params"]


def _init(transformer: SequenceModel, optimizer: optax.GradientTransformation, seed: int) -> TrainState:
    params = _init_params(transformer, seed)
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))
