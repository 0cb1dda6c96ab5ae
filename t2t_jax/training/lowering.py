"""The training step as the compiler gets it: abstract state, one batch shape, one mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import jax
import numpy as np
import optax
from jax.sharding import Mesh

from t2t_jax import config
from t2t_jax.data.batching import Shape
from t2t_jax.data.pipeline import Batch
from t2t_jax.model import SequenceModel
from t2t_jax.parallel import mesh as meshes
from t2t_jax.training.state import TrainState
from t2t_jax.training.step import make_train_step

LowerStep: TypeAlias = Callable[[Shape], jax.stages.Lowered]


def abstract_batch(shape: Shape, mesh: Mesh, parts: int) -> Batch:
    """A batch of `shape` as `jax.jit` sees it once it is on the mesh, its rows filled up to a multiple of `parts`."""
    rows, sharding = meshes.padded_rows(shape.rows, parts), meshes.batch_sharding(mesh)
    sides = (jax.ShapeDtypeStruct((rows, length), np.int32, sharding=sharding) for length in shape[:2])
    return Batch(*sides)


def train_step_on(
    mesh: Mesh,
    transformer: SequenceModel,
    optimizer: optax.GradientTransformation,
    training: config.Training,
    abstract: TrainState,
) -> LowerStep:
    """From a batch shape to the lowered step on `mesh`, which may be of devices that this machine has not got.

    The step gives up the state it is passed; the state it returns is laid out as `abstract` says.
    """
    jitted = jax.jit(
        make_train_step(transformer, optimizer, training),
        donate_argnums=0,
        out_shardings=(jax.tree.map(lambda leaf: leaf.sharding, abstract), meshes.on_every_device(mesh)),
    )
    parts = meshes.row_parts(mesh) * training.accumulation

    def lower(shape: Shape) -> jax.stages.Lowered:
        with meshes.tracing(mesh):
            return jitted.lower(abstract, abstract_batch(shape, mesh, parts))

    return lower
