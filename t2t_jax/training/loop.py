"""The training loop: data, state, compiled steps, and what happens between two steps."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import time
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import numpy as np
import optax
from jax.sharding import Mesh
from rich.progress import TextColumn

from t2t_jax import config, model, progress, run_directory
from t2t_jax.data import pipeline, schemes, store
from t2t_jax.data.batching import Plan, Shape
from t2t_jax.data.pipeline import Batch
from t2t_jax.errors import ConfigError, NonFiniteLoss, RunError
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.channel import Channel
from t2t_jax.parallel.precompile import Precompiled, background_compiler
from t2t_jax.training import calls, checkpoints, optimizer, state, step, trackers
from t2t_jax.training.checkpoints import Checkpoints, EarlyStopping, Retention
from t2t_jax.training.interruption import StopRequests
from t2t_jax.training.lowering import train_step_on
from t2t_jax.training.metrics import Entry, MetricsWriter
from t2t_jax.training.profile import StepProfile
from t2t_jax.training.state import TrainState
from t2t_jax.training.throughput import Interval, Throughput
from t2t_jax.training.validation import HeldOut

# Steps that the devices are given before the oldest has ended: enough that they never wait for the next, few enough
# that what the bar says is so.
AHEAD = 2


@dataclass(frozen=True)
class Outcome:
    """How a call of `train` ended."""

    step: int
    finished: bool
    """False when a signal asked it to stop; the same command goes on from the saved checkpoint."""


def prepare(experiment: config.Experiment, run: Path, channel: Channel) -> store.Store:
    """Make or continue the run directory and prepare its data; a run started from another takes its tokenizer.

    Process 0 does it; the others wait, and open what it has prepared.
    """
    if not channel.first:
        return store.attach(experiment.data, run, channel.exchange()[0])
    data = data_settings(experiment, run)
    made_from = store.origin(data)
    run_directory.check(run, experiment, made_from)
    prepared = store.prepare(data, run, made_from)
    run_directory.adopt(run, experiment, prepared)
    channel.exchange(prepared.manifest["sha256"])
    return prepared


def data_settings(experiment: config.Experiment, run: Path) -> config.Data:
    """What the data of `experiment` are prepared with: its own settings, and the tokenizer that it borrows."""
    borrowed = experiment.data.tokenizer_from or experiment.training.initialise_from
    if borrowed is None:
        return experiment.data
    # Once it has begun, a run needs nothing but its own directory.
    own = not Path(borrowed).exists() and run_directory.finished_steps(run)
    return dataclasses.replace(experiment.data, tokenizer_from=str(run) if own else borrowed)


def train(experiment: config.Experiment, run: Path, channel: Channel | None = None, profile: bool = False) -> Outcome:
    """Train `experiment` in the directory `run`, from its newest checkpoint if it has one.

    With a `channel`, this is one of several processes that call it alike; `run` is on storage that all of them share.
    With `profile`, a few of its steps are traced.

    Raises:
      UserError: the settings, the data or the directory cannot work.
      NonFiniteLoss: a loss was NaN or infinite; names the step, the batch and the last good checkpoint.
    """
    called = time.perf_counter()
    training = experiment.training
    channel = channel or Channel.alone()
    trackers.check(training.trackers)
    mesh = meshes.make_mesh(experiment.mesh)
    if training.attention_kernel == "cudnn" and mesh.devices.flat[0].platform != "gpu":
        raise ConfigError("training: attention_kernel='cudnn' is for NVIDIA GPUs; 'xla' runs everywhere.")
    prepared = prepare(experiment, run, channel)
    corpus = prepared.corpus()
    plan = pipeline.plan_for(experiment.data, corpus, training.seed)
    if channel.first:
        compared = schemes.compare(experiment.data, plan, *corpus.lengths)
        run_directory.keep_schemes(run, schemes.as_json(compared))

    transformer = model.build(experiment.model, prepared.tokenizer.size, training=training)
    adam = optimizer.make_optimizer(experiment.optimizer, experiment.model.d_model)
    learning_rate = optimizer.schedule(experiment.optimizer, experiment.model.d_model)
    abstract, _ = state.abstract_state(transformer, adam, mesh)
    interval = training.checkpoint_every * (plan.batches_per_epoch if training.checkpoint_unit == "epochs" else 1)

    with contextlib.ExitStack() as stack:
        saved = stack.enter_context(Checkpoints(run, Retention(training.keep_checkpoints, every=interval), channel))
        restored = saved.newest(abstract)
        start = 0 if restored is None else int(restored[0].step)
        rows = meshes.Rows(mesh, meshes.row_parts(mesh) * training.accumulation)
        background = stack.enter_context(background_compiler())
        steps = compile_steps(experiment, transformer, adam, plan, mesh, abstract, plan.slot(start).shape, background)
        held_out = HeldOut(
            *run_directory.evaluation_text(run, "validation"),
            prepared.tokenizer,
            transformer,
            experiment,
            mesh,
            abstract.params,
            background,
        )
        train_state, stopping = restored or (
            initial_state(experiment, transformer, adam, mesh, abstract),
            EarlyStopping(),
        )
        announce(experiment, transformer, abstract, plan, mesh, start)

        stop_at = start if out_of_patience(stopping, training) else training.num_steps
        writer = None
        if channel.first and start < stop_at:
            calls.record(run, start)
            writer = stack.enter_context(MetricsWriter(run, start, trackers.start(experiment, run, start)))
        requests = stack.enter_context(StopRequests(channel))
        bar = stack.enter_context(progress.bar(TextColumn("{task.fields[status]}")))
        task = bar.add_task("training", total=training.num_steps, completed=start, status="compiling the first step")

        speed = Throughput(experiment, prepared.tokenizer.size, mesh)

        def tell(entry: Entry) -> None:
            entry |= {
                "epoch": entry["step"] / plan.batches_per_epoch,
                "learning_rate": float(learning_rate(int(entry["step"]) - 1)),
            }
            if writer is not None:
                writer.write(entry)
            bar.update(task, status=status(entry))
            if "validation_perplexity" in entry or not bar.live.console.is_terminal:
                progress.say(f"step {entry['step']:,}/{training.num_steps:,}  {status(entry)}")

        tracer = StepProfile(run, lambda shape: text_of(steps[shape])) if profile and channel.first else None
        k, pending, in_flight = start, [], collections.deque[step.StepMetrics]()
        unread: Unread | None = None
        for batch in speed.waiting_for(pipeline.batches(corpus, plan, start, stop_at, rows.local)):
            shape = plan.slot(k).shape
            placed = Batch(*(rows.place(side, shape.rows) for side in batch))
            executable = steps[shape]
            requests.begin(k + 1)
            if tracer is not None:
                tracer.before(shape, train_state.step)
            train_state, metrics = executable(train_state, placed)
            if tracer is not None:
                tracer.after(metrics)
            speed.count(shape, executable)
            pending.append(metrics)
            in_flight.append(metrics)
            k += 1
            if k == start + 1:
                jax.block_until_ready(metrics)
                progress.say(f"First step after {time.perf_counter() - called:.1f} s of preparing and compiling.")
                bar.update(task, status="")
            if len(in_flight) > AHEAD:
                jax.block_until_ready(in_flight.popleft())
            bar.update(task, completed=k)
            if unread is not None:  # the devices have the next step to do while these numbers are fetched
                tell(summarise(unread, speed, saved))
                unread = None

            checkpoint = k % interval == 0 or k == training.num_steps
            stop = requests.step is not None and k >= requests.step
            if not (checkpoint or stop or k % training.log_every == 0):
                continue
            if checkpoint or stop:
                jax.block_until_ready(metrics)
            unread, pending = Unread(k, pending, speed.take()), []
            if not (checkpoint or stop):
                continue
            entry, unread = summarise(unread, speed, saved), None
            if checkpoint:
                held = held_out.loss(train_state.params)
                refuse_non_finite(held.plain, f"The validation after step {k:,}", saved)
                if k % interval == 0:  # a run that ends in between may be made longer later
                    stopping = stopping.after(held.plain)
                entry |= {"validation_loss": held.plain, "validation_perplexity": held.perplexity}
            saved.save(k, train_state, stopping)  # one of a stop alone goes when the next comes, and no average has it
            tell(entry)
            if checkpoint and out_of_patience(stopping, training):
                progress.say(f"Stopping at step {k:,}: no better validation loss in {stopping.stale} validations.")
                break
            if stop and k < training.num_steps:
                saved.wait()
                return stopped(requests, k)
            speed.restart()

        saved.wait()
        if channel.first:
            write_average(saved, run, training.average_last)
        return stopped(requests, k) if requests.anywhere() else Outcome(k, finished=True)


def out_of_patience(stopping: EarlyStopping, training: config.Training) -> bool:
    """Whether validation has not got better for `training.patience` times in a row."""
    return training.patience is not None and stopping.stale >= training.patience


def stopped(requests: StopRequests, k: int) -> Outcome:
    """Say that a signal has ended this call after `k` steps."""
    name = requests.received.name if requests.received else "a signal to another process"
    progress.say(f"Stopped by {name} at step {k:,} with a checkpoint; the same command goes on.")
    return Outcome(k, finished=False)


def compile_steps(
    experiment: config.Experiment,
    transformer: model.SequenceModel,
    adam: optax.GradientTransformation,
    plan: Plan,
    mesh: Mesh,
    abstract: TrainState,
    first: Shape,
    background: Executor,
) -> Precompiled[Shape]:
    """The training step for each of the plan's shapes: `first` first, then the commonest."""
    lower = train_step_on(mesh, transformer, adam, experiment.training, abstract)
    # Only GPUs have kernels that add in whatever order they finish.
    ordered = experiment.training.deterministic and mesh.devices.flat[0].platform == "gpu"
    options: dict[str, str | bool] | None = {"xla_gpu_deterministic_ops": True} if ordered else None

    def compile_one(shape: Shape) -> jax.stages.Compiled:
        return lower(shape).compile(compiler_options=options)

    used = [
        (shape != first, -count, shape)
        for shape, count in zip(plan.shapes, plan.batches_per_shape, strict=True)
        if count
    ]
    return Precompiled(compile_one, [shape for *_, shape in sorted(used)], background)


def text_of(executable: Any) -> str:
    """The HLO of a compiled step."""
    return cast(jax.stages.Compiled, executable).as_text() or ""


def initial_state(
    experiment: config.Experiment,
    transformer: model.SequenceModel,
    adam: optax.GradientTransformation,
    mesh: Mesh,
    abstract: TrainState,
) -> TrainState:
    """Fresh parameters, or the averaged ones of `training.initialise_from` with a fresh optimizer.

    Raises:
      RunError: the other run's parameters have other shapes.
    """
    fresh = state.init_state(transformer, adam, mesh, experiment.training.seed)
    if experiment.training.initialise_from is None:
        return fresh
    other = Path(experiment.training.initialise_from)
    settings = run_directory.load_config(other)
    params, steps = checkpoints.load_averaged(other, settings.training.average_last)
    theirs, ours = (jax.tree.map(np.shape, tree) for tree in (params, fresh.params))
    if theirs != ours:
        raise RunError(
            f"training: initialise_from={str(other)!r} has other parameter shapes than this experiment; "
            "the two need the same model settings and tokenizer."
        )
    progress.say(f"Starting from the average of steps {', '.join(map(str, steps))} of {other}.")
    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract.params)
    return fresh._replace(params=meshes.lay_out(params, shardings))


def announce(
    experiment: config.Experiment,
    transformer: model.SequenceModel,
    abstract: TrainState,
    plan: Plan,
    mesh: Mesh,
    start: int,
) -> None:
    """Say what is about to run."""
    count = state.count_parameters(abstract.params, transformer)
    devices = ", ".join(f"{axis}={size}" for axis, size in mesh.shape.items())
    progress.say(
        f"{experiment.name}: {count:,} parameters, {plan.batches_per_epoch:,} batches an epoch, mesh {devices} on "
        f"{mesh.size} {mesh.devices.flat[0].platform} device{'s' * (mesh.size != 1)}"
    )
    progress.say(f"{len(plan.shapes)} batch shapes, rows x (source+target): {' '.join(map(str, plan.shapes))}")
    if start:
        progress.say(f"Going on from the checkpoint of step {start:,}.")


class Unread(NamedTuple):
    """Steps whose numbers are still on the devices: the last of them, each one's metrics, what they consist of."""

    step: int
    metrics: list[step.StepMetrics]
    interval: Interval


def summarise(unread: Unread, speed: Throughput, saved: Checkpoints) -> Entry:
    """The steps' metrics in one transfer: token-weighted loss, perplexity, the last one's gradient norm, rates.

    Raises:
      NonFiniteLoss: at the first step whose loss or gradient is not finite.
    """
    k, fetched = unread.step, jax.device_get(unread.metrics)
    seconds = speed.lap()
    for number, metrics in enumerate(fetched, start=k - len(fetched) + 1):
        where = f"Step {number:,} (batch {number - 1:,} of the plan)"
        refuse_non_finite(float(metrics.loss.smoothed) / max(int(metrics.loss.tokens), 1), where, saved)
        refuse_non_finite(float(metrics.gradient_norm), where, saved, "gradient norm")
    tokens = sum(int(metrics.loss.tokens) for metrics in fetched)
    balances = [float(metrics.balance) for metrics in fetched if metrics.balance is not None]
    return {
        "step": k,
        "loss": sum(float(metrics.loss.smoothed) for metrics in fetched) / tokens,
        "perplexity": math.exp(min(sum(float(metrics.loss.plain) for metrics in fetched) / tokens, 700.0)),
        "gradient_norm": float(fetched[-1].gradient_norm),
        "target_tokens": tokens,
        **({"expert_balance": sum(balances) / len(balances)} if balances else {}),
        **unread.interval.rates(seconds, tokens, speed.peak),
    }


def status(entry: Entry) -> str:
    """What a person wants to see of an entry while training."""
    words = [f"loss {entry['loss']:.3f}", f"{entry['tokens_per_second']:,.0f} tokens/s"]
    if "utilisation" in entry:
        words.append(f"{100 * entry['utilisation']:.0f}% of peak")
    if "validation_perplexity" in entry:
        words.append(f"validation perplexity {entry['validation_perplexity']:.2f}")
    return "  ".join(words)


def refuse_non_finite(value: float, where: str, saved: Checkpoints, what: str = "loss") -> None:
    """Raise `NonFiniteLoss` for a NaN or an infinity, naming the place and the last good checkpoint."""
    if math.isfinite(value):
        return
    saved.wait()
    good = f"the last good checkpoint is step {saved.steps[-1]:,}" if saved.steps else "there is no checkpoint"
    raise NonFiniteLoss(
        f"{where} gave {what} {value}; {good}. A lower learning rate, a longer warm-up or "
        "--optimizer.gradient-clip usually helps."
    )


def write_average(saved: Checkpoints, run: Path, last: int) -> None:
    """Average the last checkpoints' parameters into the run directory (section 6.1)."""
    params, steps = checkpoints.average(saved, last)
    checkpoints.save_averaged(run, params, steps)
    fewer = f" (average_last={last}, but no more were written)" if len(steps) < last else ""
    progress.say(f"Averaged the checkpoints of steps {', '.join(map(str, steps))}{fewer}.")
