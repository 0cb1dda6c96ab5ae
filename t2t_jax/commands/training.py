"""Verbs that make a run, or say what making one would take."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from t2t_jax import run_directory
from t2t_jax.command_line import DONE, STOPPED
from t2t_jax.commands import settle
from t2t_jax.commands.scoring import keep, print_samples, print_scores
from t2t_jax.data import pipeline, schemes, store
from t2t_jax.evaluation.evaluate import Evaluator
from t2t_jax.options import Plan, Prepare, Train
from t2t_jax.parallel.channel import Channel
from t2t_jax.parallel.processes import connected
from t2t_jax.planning import plan as planning
from t2t_jax.planning import shapes, table, topologies
from t2t_jax.run_lock import locked
from t2t_jax.training import loop


def train(targets: Sequence[Path], options: Train) -> int:
    """Train, average, translate the evaluation splits, print BLEU with samples, write the report."""
    experiment = options.settings
    run = options.workdir or Path("runs") / experiment.name
    settle()
    with connected(options.process) as channel, _writing(run, channel):
        outcome = loop.train(experiment, run, channel, options.profile)
        if not outcome.finished:
            return STOPPED
        evaluator = Evaluator(run, channel=channel)
        results = [evaluator.split(split) for split in experiment.evaluation.splits]
        if channel.first:
            keep(evaluator, results)
            print_samples(results[0], evaluator.trained.tokenizer)
            print_scores(results)
            print(f"\nReport: {run / run_directory.PAGE}")
    return DONE


def prepare(targets: Sequence[Path], options: Prepare) -> int:
    """Prepare the data and say what it is like."""
    experiment = options.settings
    run = options.workdir or Path("runs") / experiment.name
    with locked(run):
        prepared = loop.prepare(experiment, run, Channel.alone())
    corpus = prepared.corpus()
    plan = pipeline.plan_for(experiment.data, corpus, experiment.training.seed)
    compared = schemes.compare(experiment.data, plan, *corpus.lengths)
    run_directory.keep_schemes(run, schemes.as_json(compared))
    print(store.describe(prepared.manifest))
    print(f"batches: {plan.batches_per_epoch:,} an epoch in {len(plan.shapes)} shapes, rows x (source+target):")
    for shape, count in zip(plan.shapes, plan.batches_per_shape, strict=True):
        print(f"  {shape!s:>16}  {count:,}")
    tokens = (f"{side.sum(dtype=np.int64) / plan.batches_per_epoch:,.0f}" for side in corpus.lengths)
    print(f"real tokens a batch, mean: {' + '.join(tokens)}")
    print(f"real tokens of all positions, by scheme:\n{schemes.as_text(compared)}")
    print(f"padding efficiency: {100 * plan.padding_efficiency(*corpus.lengths):.1f}%")
    return DONE


def plan(targets: Sequence[Path], options: Plan) -> int:
    """Compile the step for accelerators and print what it costs there; the experiment's own mesh has to fit."""
    experiment = options.settings
    topology = topologies.parse(options.topology)
    jax.config.update("jax_platforms", "cpu")  # planning takes no device, which another program may be using
    run = options.workdir or Path("runs") / experiment.name
    workload = shapes.workload(experiment.data, experiment.training.seed, run)
    planner = planning.Planner(experiment, topology, workload)
    if options.compare:
        plans = planner.compare()
        result = table.several_meshes(experiment, topology, workload, plans)
        steps = {name: (mesh, [step]) for name, (mesh, step) in plans.items()}
        mesh = None
    else:
        mesh, titled = planner.own_mesh()
        result = table.one_mesh(experiment, topology, workload, titled)
        steps = {"own": (mesh, list(titled.values()))}
    if options.json:
        print(json.dumps(table.as_json(experiment, topology, workload, steps), indent=2))
    else:
        print(f"{table.header(experiment, topology, workload, mesh)}\n\n{result}")
    return DONE


def _writing(run: Path, channel: Channel) -> contextlib.AbstractContextManager[None]:
    """The run's lock, which process 0 holds for all."""
    return locked(run) if channel.first else contextlib.nullcontext()
