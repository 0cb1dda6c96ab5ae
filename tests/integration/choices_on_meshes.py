"""Trains and searches with small models of every choice, and prints what each did as a JSON object.

A program of its own, because the number of virtual devices is decided before JAX starts:

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python choices_on_meshes.py SCRATCH_FOLDER
"""

import hashlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from t2t_jax import config, model
from t2t_jax.data.batching import Shape
from t2t_jax.data.pipeline import Batch
from t2t_jax.decoding.beam import BeamSearch
from t2t_jax.decoding.stages import Member, Stages
from t2t_jax.decoding.stages import Shape as SearchShape
from t2t_jax.parallel import mesh as meshes
from t2t_jax.symbols import EOS_ID
from t2t_jax.training.checkpoints import Checkpoints, EarlyStopping, Retention
from t2t_jax.training.lowering import train_step_on
from t2t_jax.training.optimizer import make_optimizer
from t2t_jax.training.state import TrainState, abstract_state, init_state
from tests.combinations import COMBINATIONS, ONE_TASK

VOCABULARY, STEPS, SEED = 13, 8, 1
ONE, CUBE, EXPERTS = (1, 1, 1), (2, 2, 2), (1, 2, 2, 2)
OPTIMIZER = config.Optimizer(peak_learning_rate=1e-2, warmup_steps=4)
SHAPE = Shape(8, 8, 8)


def batch() -> Batch:
    """Sentences whose translation is themselves; the same at every step."""
    rng = np.random.default_rng(0)
    words = rng.integers(4, VOCABULARY, (SHAPE.rows, SHAPE.source), dtype=np.int32)
    lengths = rng.integers(2, SHAPE.source, SHAPE.rows)[:, None]
    place = np.arange(SHAPE.source)
    side = np.where(place < lengths, words, np.where(place == lengths, EOS_ID, 0)).astype(np.int32)
    return Batch(side, side)


class Trainer:
    """A model's training step on a mesh."""

    def __init__(self, settings: config.Model, sizes: tuple[int, ...], kernel: Any):
        training = config.Training(seed=SEED, attention_kernel=kernel)
        self.mesh = meshes.make_mesh(config.Mesh(*sizes), jax.devices()[: math.prod(sizes)])
        self.transformer = model.build(settings, VOCABULARY, training=training)
        self.optimizer = make_optimizer(OPTIMIZER, settings.d_model)
        self.abstract, _ = abstract_state(self.transformer, self.optimizer, self.mesh)
        self.compiled = train_step_on(self.mesh, self.transformer, self.optimizer, training, self.abstract)(
            SHAPE
        ).compile()

    def fresh(self) -> TrainState:
        return init_state(self.transformer, self.optimizer, self.mesh, SEED)

    def run(self, state: TrainState, steps: int) -> tuple[TrainState, list[float], list[float]]:
        """The state after so many steps, their losses, and the balance of experts if there are any."""
        rows, losses, balances = meshes.Rows(self.mesh), [], []
        for _ in range(steps):
            placed = Batch(*(rows.place(side, SHAPE.rows) for side in batch()))
            state, metrics = self.compiled(state, placed)
            losses.append(float(metrics.loss.smoothed) / int(metrics.loss.tokens))
            if metrics.balance is not None:
                balances.append(float(metrics.balance))
        return state, losses, balances


def hash_of(state: TrainState) -> str:
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state))).hexdigest()


def resumed(trainer: Trainer, folder: Path) -> TrainState:
    """The state after `STEPS` steps with a checkpoint written and read half way."""
    half, *_ = trainer.run(trainer.fresh(), STEPS // 2)
    with Checkpoints(folder, Retention(1, every=1)) as saved:
        saved.save(STEPS // 2, half, EarlyStopping())
        saved.wait()
        found = saved.newest(trainer.abstract)
        assert found is not None
    return trainer.run(found[0], STEPS - STEPS // 2)[0]


def searched(trainer: Trainer, params: Any) -> dict[str, Any]:
    """The hypotheses of each source among others, and of one alone."""
    plain = model.build(trainer.transformer.config, VOCABULARY)
    stages = Stages([Member(plain, params)], trainer.mesh)
    method, shape = BeamSearch(3, 0.6, n_best=2), SearchShape(SHAPE.source, 12, 4)
    rows = [(i, {"source": side, "limits": np.asarray(11, np.int32)}) for i, side in enumerate(batch().source[:5])]

    def bits(chosen: list[Any]) -> dict[int, Any]:
        found = stages.search(method, shape, chosen)
        return {place: [np.asarray(column).tolist() for column in hypotheses] for place, hypotheses in found}

    together, alone = bits(rows), bits(rows[2:3])
    return {"together": together[2], "alone": alone[2], "answered": sorted(together)}


def main(scratch: str) -> None:
    runs: dict[str, Any] = {}
    for i, (name, settings) in enumerate((COMBINATIONS | ONE_TASK).items()):
        kernel = "blockwise" if settings.positions == "t5" else "xla"
        print(name, file=sys.stderr)
        one = Trainer(settings, ONE, kernel)
        state, losses, balances = one.run(one.fresh(), STEPS)
        runs[name] = {"1-1-1": losses, "balances": balances}
        if settings.family != "encoder":
            runs[name]["search"] = searched(one, jax.device_get(state.params))
        runs[name]["resumed exactly"] = hash_of(resumed(one, Path(scratch) / str(i))) == hash_of(state)
        for sizes in (CUBE, EXPERTS) if settings.experts else (CUBE,):
            across = Trainer(settings, sizes, kernel)
            shardings = jax.tree.map(lambda leaf: leaf.sharding, across.abstract)
            _, losses, balances = across.run(meshes.lay_out(one.fresh(), shardings), STEPS)
            runs[name]["-".join(map(str, sizes))] = losses
            if sizes == EXPERTS:
                text = across.compiled.as_text() or ""
                runs[name] |= {"balances over experts": balances, "exchanged": "all-to-all" in text}
    print(json.dumps(runs))


if __name__ == "__main__":
    main(*sys.argv[1:])
