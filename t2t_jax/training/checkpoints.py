"""Checkpoints of a run: written in the background by Orbax, sealed, a fixed number kept, averaged for evaluation."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import logging
import shutil
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from t2t_jax.errors import RunError
from t2t_jax.parallel.channel import Channel
from t2t_jax.progress import say
from t2t_jax.run_directory import AVERAGED, CHECKPOINTS, finished_steps
from t2t_jax.seal import SEAL, damage, is_sealed, seal
from t2t_jax.training.state import Params, TrainState


@dataclass(frozen=True)
class EarlyStopping:
    """What validation has shown; saved with the state, so a resumed run stops where an undisturbed one would."""

    best_loss: float | None = None
    stale: int = 0
    """Validations since the best one."""

    def after(self, loss: float) -> EarlyStopping:
        """The same once a validation gave `loss`."""
        if self.best_loss is None or loss < self.best_loss:
            return EarlyStopping(loss, 0)
        return dataclasses.replace(self, stale=self.stale + 1)


@dataclass(frozen=True)
class Retention:
    """Which checkpoints of a run that writes them stay."""

    keep: int
    """Newest regular ones."""
    every: int
    """Steps between regular ones. One in between, of a stop or a run's end, goes when the next one comes."""


class Checkpoints:
    """The checkpoints of one run directory, by the number of finished steps. Only sealed ones exist for a reader."""

    def __init__(self, run: Path, retention: Retention | None = None, channel: Channel | None = None):
        """Open for reading, or, with a `retention`, for all processes of `channel` to write together."""
        self._run, self._folder = run, (run / CHECKPOINTS).resolve()
        self._channel = channel or Channel.alone()
        self._retention = retention
        self._started: tuple[int, Future[None]] | None = None
        self._failed = False
        if retention is None:
            return
        logging.getLogger("absl").setLevel(logging.CRITICAL)  # Orbax prints an error four times before it raises it
        if self._channel.first:
            for folder in self._folder.glob("*"):  # of a process that died while it wrote or deleted
                if folder.name.isdigit() and not is_sealed(folder):
                    shutil.rmtree(folder)
        self._channel.exchange()
        options = ocp.CheckpointManagerOptions(enable_async_checkpointing=True, create=True)
        self._manager = ocp.CheckpointManager(self._folder, options=options, item_names=("state", "early_stopping"))
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="seal")

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_: object) -> None:
        if self._retention is None:
            return
        self._pool.shutdown(wait=True)
        # A write that has failed fails here once more.
        with contextlib.suppress(Exception) if self._failed else contextlib.nullcontext():
            self._manager.close()

    @property
    def steps(self) -> list[int]:
        """Steps that have a finished checkpoint, ascending."""
        return finished_steps(self._run)

    def save(self, step: int, state: TrainState, stopping: EarlyStopping) -> None:
        """Start writing; returns once the state may change again.

        Raises:
          RunError: this checkpoint cannot be written, or the one before could not.
        """
        self.wait()
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state), early_stopping=ocp.args.JsonSave(dataclasses.asdict(stopping))
        )
        try:
            self._manager.save(step, args=items, force=True)
        except Exception as error:  # a full disk is an OSError here and tensorstore's own kind there
            raise self._unwritten(step, error) from error
        self._started = step, self._pool.submit(self._finish, step)

    def wait(self) -> None:
        """Return when every started checkpoint is whole on disk.

        Raises:
          RunError: it could not be written; says which one is the last good one.
        """
        if self._started is None:
            return
        step, writing = self._started
        self._started = None
        try:
            writing.result()
        except Exception as error:
            raise self._unwritten(step, error) from error
        self._channel.exchange()  # the seal is process 0's

    def newest(self, abstract: TrainState) -> tuple[TrainState, EarlyStopping] | None:
        """The newest undamaged checkpoint, laid out as `abstract` says, or None when the run has none at all.

        Damaged ones are said so and put aside as STEP.damaged.

        Raises:
          RunError: there are checkpoints, but every one is damaged.
        """
        step = self._channel.exchange(self._put_damaged_aside() if self._channel.first else None)[0]
        if step is None:
            return None
        self._manager.reload()
        items = ocp.args.Composite(state=ocp.args.StandardRestore(abstract), early_stopping=ocp.args.JsonRestore())
        restored = self._manager.restore(step, args=items)
        return restored["state"], EarlyStopping(**restored["early_stopping"])

    def _put_damaged_aside(self) -> int | None:
        """The step of the newest checkpoint that is as it was written; None when there is not even a damaged one."""
        damaged = []
        for step in reversed(self.steps):
            wrong = damage(self._folder / str(step))
            if wrong is None:
                break
            say(f"The checkpoint of step {step:,} is damaged ({wrong}); looking at the one before it.")
            damaged.append(step)
        else:
            if damaged:
                raise RunError(f"Every checkpoint in {str(self._folder)!r} is damaged; use another --workdir.")
            return None
        for bad in damaged:
            aside = self._folder / f"{bad}.damaged"
            shutil.rmtree(aside, ignore_errors=True)
            (self._folder / str(bad)).rename(aside)
        return step

    def params(self, step: int) -> Params:
        """The parameters after `step` steps, as NumPy arrays.

        Raises:
          RunError: the checkpoint is damaged.
        """
        _refuse_damage(self._folder / str(step))
        return _read_arrays(self._folder / str(step) / "state", only="params")

    def _unwritten(self, step: int, error: Exception) -> RunError:
        last = f"the last whole one is step {self.steps[-1]:,}" if self.steps else "there is none before it"
        self._failed = True
        full = f"os_error_code='{errno.ENOSPC}'" in str(error) or getattr(error, "errno", None) == errno.ENOSPC
        reason = "the disk is full" if full else str(error).split("\n")[0][:300]
        return RunError(f"The checkpoint of step {step:,} could not be written ({reason}); {last}.")

    def _finish(self, step: int) -> None:
        """Seal a checkpoint once it is written, and only then let go of the oldest; one process for all."""
        self._manager.wait_until_finished()
        if not self._channel.first:
            return
        seal(self._folder / str(step))
        assert self._retention is not None
        keep, every = self._retention.keep, self._retention.every
        regular = [old for old in self.steps if old % every == 0]
        passing = [old for old in self.steps if old % every and old < step]
        for old in regular[:-keep] + passing:
            (self._folder / str(old) / SEAL).unlink()  # first: what is half deleted must not look whole
            shutil.rmtree(self._folder / str(old))


def _refuse_damage(folder: Path) -> None:
    wrong = damage(folder)
    if wrong is not None:
        raise RunError(f"{str(folder)!r} is damaged: {wrong}. Delete it, and train on to make it again.")


def _read_arrays(folder: Path, only: str | None = None) -> Any:
    """What Orbax saved at `folder`, or its part `only`, as NumPy arrays, whatever devices it was saved from."""
    reader = ocp.PyTreeCheckpointHandler()
    saved = reader.metadata(folder).tree
    wanted = saved if only is None else {only: saved[only]}
    as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), wanted)
    arguments = ocp.args.PyTreeRestore(item=wanted, restore_args=as_numpy, partial_restore=only is not None)
    restored = reader.restore(folder, args=arguments)
    reader.close()
    return restored if only is None else restored[only]


def average(checkpoints: Checkpoints, last: int) -> tuple[Params, list[int]]:
    """The mean of the last `last` checkpoints' parameters (section 6.1), and their steps.

    Summed in float64, in order of steps, so that the result is the same every time.

    Raises:
      RunError: there is no checkpoint.
    """
    steps = checkpoints.steps[-last:]
    if not steps:
        raise RunError("This run has no checkpoint yet; train it first.")
    return _mean([functools.partial(checkpoints.params, step) for step in steps]), steps


def _mean(loaders: Sequence[functools.partial[Params]]) -> Params:
    total: Any = None
    for load in loaders:  # one set of parameters in memory at a time beside the sum
        wide = jax.tree.map(lambda leaf: leaf.astype(np.float64), load())
        total = wide if total is None else jax.tree.map(np.add, total, wide)
    return jax.tree.map(lambda leaf: (leaf / len(loaders)).astype(np.float32), total)


def save_averaged(run: Path, params: Params, steps: Sequence[int]) -> None:
    """Keep averaged parameters in the run directory; replaces what was there. Process 0 does it alone."""
    alone = ocp.options.MultiprocessingOptions(active_processes={jax.process_index()})
    handler = ocp.CompositeCheckpointHandler(
        "params", "steps", composite_options=ocp.CompositeOptions(multiprocessing_options=alone)
    )
    with ocp.Checkpointer(handler, multiprocessing_options=alone) as writer:
        items = ocp.args.Composite(params=ocp.args.StandardSave(params), steps=ocp.args.JsonSave(list(steps)))
        writer.save((run / AVERAGED).resolve(), args=items, force=True)
    seal(run / AVERAGED)


def load_averaged(run: Path, last: int) -> tuple[Params, list[int]]:
    """A run's averaged parameters as NumPy arrays and the steps they come from; averaged now if training has not yet.

    Raises:
      RunError: the run has no checkpoint.
    """
    path = run / AVERAGED
    if is_sealed(path):
        _refuse_damage(path)
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler("steps")) as reader:
            steps = reader.restore(path.resolve(), args=ocp.args.Composite(steps=ocp.args.JsonRestore()))["steps"]
        return _read_arrays(path.resolve() / "params"), list(steps)
    if not (run / CHECKPOINTS).is_dir():
        raise RunError(f"{str(run)!r} has no checkpoint; train it first.")
    with Checkpoints(run) as checkpoints:
        return average(checkpoints, last)
