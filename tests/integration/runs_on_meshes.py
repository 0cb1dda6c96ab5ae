"""Trains one tiny model on one device and on meshes of eight, and prints what each run did as a JSON object.

A program of its own, because the number of virtual devices is decided before JAX starts:

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python runs_on_meshes.py FOLDER_WITH_TEXT SCRATCH_FOLDER
"""

import dataclasses
import hashlib
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from t2t_jax import config, model
from t2t_jax.data import pipeline, store
from t2t_jax.data.pipeline import Batch
from t2t_jax.parallel import mesh as meshes
from t2t_jax.training import loop, metrics
from t2t_jax.training.lowering import train_step_on
from t2t_jax.training.optimizer import make_optimizer
from t2t_jax.training.state import abstract_state, init_state

ONE = (1, 1, 1)
MESHES = (ONE, (8, 1, 1), (2, 2, 2), (1, 4, 2), (1, 1, 8), (4, 1, 2))
STEPS = 20
# Every size is another number: in the compiled text the shape of an array says what it is.
MODEL = config.Model(num_layers=1, d_model=48, d_ff=64, num_heads=8, dropout=0.1, attention_dropout=0.1)
STILL = dataclasses.replace(MODEL, dropout=0.0, attention_dropout=0.0)
OPTIMIZER = config.Optimizer(peak_learning_rate=3e-3, warmup_steps=10)

Shape = tuple[int, ...]


class Trainer:
    """The training step on a mesh of (data, fsdp, tensor) devices, and 20 steps of it from fresh state."""

    def __init__(self, prepared: store.Store, data: config.Data, settings: config.Model, sizes: Shape, parts: int = 1):
        self.corpus = prepared.corpus()
        self.plan = pipeline.plan_for(data, self.corpus, seed=1)
        (self.shape,) = self.plan.shapes
        self.mesh = meshes.make_mesh(config.Mesh(*sizes), jax.devices()[: math.prod(sizes)])
        self.parts = meshes.row_parts(self.mesh) * parts
        self.rows = meshes.Rows(self.mesh, self.parts)
        self.transformer = model.build(settings, prepared.tokenizer.size)
        self.optimizer = make_optimizer(OPTIMIZER, settings.d_model)
        self.abstract, _ = abstract_state(self.transformer, self.optimizer, self.mesh)
        training = config.Training(accumulation=parts)
        lower = train_step_on(self.mesh, self.transformer, self.optimizer, training, self.abstract)
        self.step = lower(self.shape).compile()

    def run(self) -> dict[str, Any]:
        """Losses, and hashes of the batches as they lay on the devices, their dead rows left out and counted."""
        state = init_state(self.transformer, self.optimizer, self.mesh, seed=1)
        losses, batches, dead = [], [], 0
        for k in range(STEPS):
            made = pipeline.make_batch(self.corpus, self.plan, k, self.rows.local)
            placed = Batch(*(self.rows.place(side, self.shape.rows) for side in made))
            # Copied before the step, and from where the devices hold them.
            sides = [np.array(side) for side in placed]
            state, result = self.step(state, placed)
            losses.append(float(result.loss.smoothed) / int(result.loss.tokens))
            dead = len(sides[0]) - self.shape.rows
            assert not any(side[self.shape.rows :].any() for side in sides), "a dead row holds tokens"
            batches.append(hashlib.sha256(b"".join(side[: self.shape.rows].tobytes() for side in sides)).hexdigest())
        return {"losses": losses, "batches": batches, "dead_rows": dead}

    def collectives(self) -> dict[str, list[str]]:
        """The kinds of collective in the compiled step, each with the arrays that it gives, as "f32[48,8,6]"."""
        found: dict[str, set[str]] = {}
        kinds = (
            r"all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute|collective-broadcast"
        )
        for result, kind in re.findall(rf"= (.*) ({kinds})(?:-start)?\(", self.step.as_text()):
            found.setdefault(kind, set()).update(re.findall(r"\w+\[[\d,]*\]", result))
        return {kind: sorted(arrays) for kind, arrays in found.items()}

    def arrays(self) -> dict[str, Any]:
        """What collectives may be about, as it lies on one device; of each parameter every form that it may have."""
        parameters, matrices = [], set()
        for leaf in jax.tree.leaves(self.abstract.params):
            axes = (*leaf.sharding.spec, *[None] * leaf.ndim)[: leaf.ndim]
            forms = set()
            for divided in (("tensor",), ("tensor", "fsdp")):  # as it is used, and as it is kept
                parts = [self.mesh.shape[axis] if axis in divided else 1 for axis in axes]
                shape = tuple(n // part for n, part in zip(leaf.shape, parts, strict=True))
                # A product sees a matrix of two dimensions, whichever of the three the input is summed over.
                forms |= {shape, *((math.prod(shape[:i]), math.prod(shape[i:])) for i in range(1, len(shape)))}
                if leaf.ndim > 1 and divided == ("tensor",):
                    matrices.add(shape)
            parameters.append(named(forms))
        rows = meshes.padded_rows(self.shape.rows, self.parts) // meshes.row_parts(self.mesh)
        source, target = self.shape.source, self.shape.target
        shapes = {
            "matrices": matrices,
            "activations": {(rows * source, MODEL.d_model), (rows * target, MODEL.d_model)},
            "embedded": {(rows, source + 2 * target, MODEL.d_model)},  # inputs and targets, looked up at once
            "per target token": {(rows * target,), (rows * target, 1)},
            "sum of the table": {(MODEL.d_model,)},
        }
        arrays = {name: named(group) for name, group in shapes.items()}
        return arrays | {"parameters": parameters, "sums": ["f32[]", "s32[]"]}


def named(shapes: set[tuple[int, ...]]) -> list[str]:
    """As HLO writes them."""
    return [f"f32[{','.join(map(str, shape))}]" for shape in sorted(shapes)]


def main(text: str, scratch: str) -> None:
    data = config.Data(
        source="files",
        directory=text,
        vocabulary_size=500,
        max_length=48,
        max_shapes=1,
        source_tokens_per_batch=512,
        target_tokens_per_batch=512,
        store=str(Path(scratch) / "data"),
    )
    prepared = store.prepare(data, Path(scratch))
    runs = {}
    for sizes in MESHES:
        trainer = Trainer(prepared, data, MODEL, sizes)
        runs["-".join(map(str, sizes))] = trainer.run() | {
            "collectives": trainer.collectives(),
            "arrays": trainer.arrays(),
        }
    runs["without dropout"] = Trainer(prepared, data, STILL, ONE).run()
    runs["without dropout, in four parts"] = Trainer(prepared, data, STILL, (2, 2, 2), parts=4).run()
    in_parts = Trainer(prepared, data, MODEL, (2, 2, 2), parts=4)
    runs["in four parts"], runs["in four parts, again"] = in_parts.run(), in_parts.run()

    training = config.Training(num_steps=6, log_every=1, checkpoint_every=6, average_last=1)
    loop.train(
        config.Experiment("loop", MODEL, data, OPTIMIZER, training, config.Mesh(2, 2, 2)), Path(scratch) / "loop"
    )
    runs["the loop"] = {"losses": [entry["loss"] for entry in metrics.read(Path(scratch) / "loop")]}
    print(json.dumps(runs))


if __name__ == "__main__":
    main(*sys.argv[1:])
