"""Trains one tiny model on one device and on meshes of eight, and prints what each run did as JSON.

A program of its own, because the number of virtual devices is decided before JAX starts.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python runs_on_meshes.py FOLDER_WITH_TRAIN_EN_AND_DE SCRATCH_FOLDER
"""

import dataclasses
import hashlib
import json
import re
import sys
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

from t2t_jax import config, model
from t2t_jax.data import pipeline, store
from t2t_jax.data.pipeline import Batch
from t2t_jax.parallel import mesh as meshes
from t2t_jax.training.lowering import train_step_on
from t2t_jax.training.optimizer import make_optimizer
from t2t_jax.training.state import abstract_state, init_state

MESHES = ((1, 1, 1), (8, 1, 1), (2, 2, 2), (1, 4, 2), (1, 1, 8), (4, 1, 2))
STEPS = 20
# Every size is another number, so that the shape of an array in the compiled text says what it is.
MODEL = config.Model(num_layers=1, d_model=48, d_ff=64, num_heads=8, dropout=0.1, attention_dropout=0.1)
STILL = dataclasses.replace(MODEL, dropout=0.0, attention_dropout=0.0)
OPTIMIZER = config.Optimizer(peak_learning_rate=3e-3, warmup_steps=10)
COLLECTIVE = re.compile(r"= (.*) (all-\w+|reduce-scatter|collective-\w+|ragged-\S+?)(?:-start)?\(")


class Trainer:
    """One way to run the training step: compiled on first use, run from fresh state each time."""

    def __init__(self, corpus: store.Corpus, plan: pipeline.Plan, vocabulary_size: int):
        self.corpus, self.plan, self.vocabulary_size = corpus, plan, vocabulary_size
        (self.shape,) = plan.shapes

    def compile(self, settings: config.Model, sizes: tuple[int, int, int], accumulation: int = 1) -> None:
        training = config.Training(accumulation=accumulation)
        self.mesh: Mesh = meshes.make_mesh(config.Mesh(*sizes), jax.devices()[: np.prod(sizes)])
        self.parts = meshes.row_parts(self.mesh) * accumulation
        self.transformer = model.build(settings, self.vocabulary_size)
        self.optimizer = make_optimizer(OPTIMIZER, settings.d_model)
        self.abstract, _ = abstract_state(self.transformer, self.optimizer, self.mesh)
        lower = train_step_on(self.mesh, self.transformer, self.optimizer, training, self.abstract)
        self.step = lower(self.shape).compile()

    def run(self) -> dict[str, list]:
        """Losses, and hashes of the batches as they lay on the devices, without their dead rows."""
        state = init_state(self.transformer, self.optimizer, self.mesh, seed=1)
        losses, batches, rows = [], [], 0
        for k in range(STEPS):
            made = pipeline.make_batch(self.corpus, self.plan, k)
            placed = Batch(*(meshes.place(side, self.mesh, self.parts) for side in made))
            state, metrics = self.step(state, placed)
            losses.append(float(metrics.loss.smoothed) / int(metrics.loss.tokens))
            sides = [np.asarray(side) for side in placed]
            assert not any(side[self.shape.rows :].any() for side in sides), "a dead row holds tokens"
            content = b"".join(side[: self.shape.rows].tobytes() for side in sides)
            batches.append(hashlib.sha256(content).hexdigest())
            rows = len(sides[0])
        return {"losses": losses, "batches": batches, "rows": [self.shape.rows, rows]}

    def collectives(self) -> list[list[str]]:
        """[kind, type and shape of a result], for every array that a collective of the compiled step gives."""
        found = COLLECTIVE.findall(self.step.as_text())
        return sorted({(kind, array) for result, kind in found for array in re.findall(r"\w+\[[\d,]*\]", result)})

    def arrays(self) -> dict[str, list[str]]:
        """What collectives may be about: arrays as they lie on one device while they are in use, by their meaning."""
        data, fsdp, tensor = self.mesh.devices.shape
        rows = meshes.padded_rows(self.shape.rows, self.parts) // (data * fsdp)
        gathered = set()
        for leaf in jax.tree.leaves(self.abstract.params):
            spec = (*leaf.sharding.spec, *[None] * leaf.ndim)[: leaf.ndim]
            parts = [tensor if axes == "tensor" else 1 for axes in spec]
            gathered.add(tuple(n // part for n, part in zip(leaf.shape, parts, strict=True)))
        lengths = set(self.shape[:2])
        shapes = {
            "parameters": gathered,
            "activations": {(rows, length, MODEL.d_model) for length in lengths},
            "positions": {(rows, length) for length in lengths},
        }
        return {
            name: sorted(f"f32[{','.join(map(str, shape))}]" for shape in group) for name, group in shapes.items()
        } | {"sums": ["f32[]", "s32[]"]}


def main(corpus_folder: str, scratch: str) -> None:
    data = config.Data(
        source="files", directory=corpus_folder, vocabulary_size=500, max_length=48, max_shapes=1,
        source_tokens_per_batch=512, target_tokens_per_batch=512,
    )  # fmt: skip
    prepared = store.prepare(data, Path(scratch))
    corpus = prepared.corpus()
    trainer = Trainer(corpus, pipeline.plan_for(data, corpus, seed=1), prepared.tokenizer.size)

    runs = {}
    for sizes in MESHES:
        trainer.compile(MODEL, sizes)
        name = "-".join(map(str, sizes))
        runs[name] = trainer.run() | {"collectives": trainer.collectives(), "arrays": trainer.arrays()}
    trainer.compile(STILL, (1, 1, 1))
    runs["without dropout"] = trainer.run()
    trainer.compile(STILL, (2, 2, 2), accumulation=4)
    runs["in four parts without dropout"] = trainer.run()
    trainer.compile(MODEL, (2, 2, 2), accumulation=4)
    runs["in four parts"], runs["in four parts again"] = trainer.run(), trainer.run()
    print(json.dumps(runs))


if __name__ == "__main__":
    main(*sys.argv[1:])
