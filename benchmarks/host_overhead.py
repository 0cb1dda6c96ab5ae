"""What the host does between two steps, in milliseconds a step: everything that is not the devices' time.

    python -m benchmarks.host_overhead [--steps N] [--rounds N] [--layers N] [--json]

Trains a model so small that its step costs next to nothing, by the real loop with its logging, validations and
checkpoints, for N and for 5 N steps. The difference, over 4 N steps, is what a step takes; the compiled step alone is
what it would take if the host did nothing. Reading and preparing are the same for both and drop out; everything was
compiled before.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import jax

from t2t_jax import config, model
from t2t_jax.data import pipeline
from t2t_jax.data.pipeline import Batch
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.channel import Channel
from t2t_jax.parallel.memory import keep_freed_memory
from t2t_jax.training import loop, state
from t2t_jax.training.lowering import train_step_on
from t2t_jax.training.optimizer import make_optimizer


def tiny(folder: Path, layers: int) -> config.Experiment:
    """A model of width 8 on made-up words, logged and checkpointed as often as runs are by default."""
    chance = random.Random(1)
    for stem, count in (("train", 20_000), ("valid", 20), ("test", 20)):
        rows = [" ".join(chance.choices("abcdefghijkl", k=chance.randint(2, 7))) + "\n" for _ in range(count)]
        for language in ("x", "y"):
            (folder / f"{stem}.{language}").write_text("".join(rows))
    return config.Experiment(
        name="tiny",
        model=config.Model(num_layers=layers, d_model=8, d_ff=8, num_heads=1, vocabulary_multiple=8),
        data=config.Data(
            source="files",
            directory=str(folder),
            source_language="x",
            target_language="y",
            tokenizer="whitespace",
            max_length=16,
            source_tokens_per_batch=64,
            target_tokens_per_batch=64,
            max_shapes=4,
            store=str(folder / "store"),
        ),
        training=config.Training(checkpoint_every=1500, log_every=100, average_last=1, keep_checkpoints=1),
    )


def in_the_loop(experiment: config.Experiment, folder: Path, steps: int) -> float:
    """Seconds of training `steps` steps, everything included."""
    with tempfile.TemporaryDirectory(dir=folder) as run:
        changed = replace(experiment, training=replace(experiment.training, num_steps=steps))
        begun = time.perf_counter()
        loop.train(changed, Path(run) / "run")
        return time.perf_counter() - begun


def alone(experiment: config.Experiment, folder: Path, steps: int) -> float:
    """Seconds of the compiled step by itself, on the first batch over and over."""
    with tempfile.TemporaryDirectory(dir=folder) as run:
        prepared = loop.prepare(experiment, Path(run) / "run", Channel.alone())
        corpus = prepared.corpus()
        plan = pipeline.plan_for(experiment.data, corpus, 1)
        mesh = meshes.make_mesh(experiment.mesh)
        transformer = model.build(experiment.model, prepared.tokenizer.size)
        adam = make_optimizer(experiment.optimizer, experiment.model.d_model)
        abstract, _ = state.abstract_state(transformer, adam, mesh)
        shape = plan.slot(0).shape
        step = train_step_on(mesh, transformer, adam, experiment.training, abstract)(shape).compile()
        rows = meshes.Rows(mesh)
        batch = Batch(*(rows.place(s, shape.rows) for s in pipeline.make_batch(corpus, plan, 0, rows.local)))
        carried = state.init_state(transformer, adam, mesh, 1)
        for _ in range(20):
            carried, metrics = step(carried, batch)
        jax.block_until_ready(metrics)
        begun, before = time.perf_counter(), metrics
        for _ in range(steps):
            carried, after = step(carried, batch)
            jax.block_until_ready(before)  # one step ahead: thousands in flight would be slower
            before = after
        jax.block_until_ready(before)
        return (time.perf_counter() - begun) / steps


def main() -> None:
    """Run the script; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500, help="of the shorter run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=6, help="of encoder and decoder each: as many arrays as that has")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    options = parser.parse_args()
    keep_freed_memory()
    in_loop, by_itself = [], []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        experiment = tiny(folder, options.layers)
        # What is compiled is kept, or the background's compiling would fall on the shorter run alone.
        jax.config.update("jax_compilation_cache_dir", str(folder / "executables"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        in_the_loop(experiment, folder, options.steps)
        for _ in range(options.rounds):
            shorter, longer = (in_the_loop(experiment, folder, n * options.steps) for n in (1, 5))
            in_loop.append(1e3 * (longer - shorter) / (4 * options.steps))
            by_itself.append(1e3 * alone(experiment, folder, options.steps))
    overhead = statistics.median(in_loop) - statistics.median(by_itself)
    if options.json:
        found = {"layers": options.layers, "in_the_loop_ms": in_loop, "alone_ms": by_itself, "overhead_ms": overhead}
        print(json.dumps(found, indent=2))
        return
    print(f"milliseconds a step, {options.layers}+{options.layers} layers of width 8; logging, checkpoints included")
    for name, measured in (("in the loop", in_loop), ("the compiled step alone", by_itself)):
        print(f"{name:26}{statistics.median(measured):>7.2f}   ({min(measured):.2f} – {max(measured):.2f})")
    print(f"{'host overhead':26}{overhead:>7.2f}")


if __name__ == "__main__":
    main()
