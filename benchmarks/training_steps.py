"""Training steps by themselves: the program that `train` compiles, on one batch over and over."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from t2t_jax import config, model
from t2t_jax.data.batching import Shape
from t2t_jax.data.pipeline import Batch
from t2t_jax.parallel import mesh as meshes
from t2t_jax.symbols import SPECIAL_SYMBOLS
from t2t_jax.training import state
from t2t_jax.training.lowering import train_step_on
from t2t_jax.training.optimizer import make_optimizer


def training_steps(
    experiment: config.Experiment, vocabulary: int, shape: Shape, devices: int = 1
) -> tuple[Callable[[int], None], jax.stages.Compiled]:
    """A function that takes so many steps on a batch full of random tokens, and the compiled step.

    The batch has `shape`; the first `devices` of this process make the experiment's mesh.
    """
    mesh, training = meshes.make_mesh(experiment.mesh, jax.devices()[:devices]), experiment.training
    net = model.build(experiment.model, vocabulary, training=training)
    optimizer = make_optimizer(experiment.optimizer, experiment.model.d_model)
    abstract, _ = state.abstract_state(net, optimizer, mesh)
    step = train_step_on(mesh, net, optimizer, training, abstract)(shape).compile()
    rng, rows = np.random.default_rng(0), meshes.Rows(mesh)
    lengths = (shape.source, shape.target)
    sides = (rng.integers(len(SPECIAL_SYMBOLS), vocabulary, (shape.rows, n)).astype(np.int32) for n in lengths)
    batch = Batch(*(rows.place(side, shape.rows) for side in sides))
    carried = state.init_state(net, optimizer, mesh, training.seed)

    def run(steps: int) -> None:
        nonlocal carried
        for _ in range(steps):
            carried, metrics = step(carried, batch)
        jax.block_until_ready((carried, metrics))

    return run, step
