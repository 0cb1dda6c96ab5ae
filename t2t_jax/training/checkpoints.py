"""Checkpoints of a run: written in the background by Orbax, a fixed number kept, averaged for evaluation."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from t2t_jax.errors import RunError
from t2t_jax.run_directory import AVERAGED, CHECKPOINTS
from t2t_jax.training.state import Params, TrainState


@dataclass(frozen=True)
class Progress:
    """What early stopping has seen; saved with the state, so a resumed run stops where an undisturbed one would."""

    best_loss: float | None = None
    stale: int = 0
    """Validations since the best one."""

    def after(self, loss: float) -> Progress:
        """The progress once a validation gave `loss`."""
        if self.best_loss is None or loss < self.best_loss:
            return Progress(loss, 0)
        return dataclasses.replace(self, stale=self.stale + 1)


class Checkpoints:
    """The checkpoints of one run directory, by the number of finished steps."""

    def __init__(self, run: Path, keep: int | None = None):
        self._manager = ocp.CheckpointManager(
            (run / CHECKPOINTS).resolve(),
            options=ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=True, create=True),
            item_names=("state", "progress"),
        )

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_: object) -> None:
        self._manager.close()

    @property
    def steps(self) -> list[int]:
        """Steps that have a whole checkpoint, ascending."""
        return sorted(self._manager.all_steps())

    def save(self, step: int, state: TrainState, progress: Progress) -> None:
        """Start writing; returns once the state may change again."""
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state), progress=ocp.args.JsonSave(dataclasses.asdict(progress))
        )
        self._manager.save(step, args=items)

    def wait(self) -> None:
        """Return when every started checkpoint is whole on disk."""
        self._manager.wait_until_finished()

    def restore(self, step: int, abstract: TrainState) -> tuple[TrainState, Progress]:
        """The state after `step` steps, laid out as `abstract` says."""
        items = ocp.args.Composite(state=ocp.args.StandardRestore(abstract), progress=ocp.args.JsonRestore())
        restored = self._manager.restore(step, args=items)
        return restored["state"], Progress(**restored["progress"])

    def params(self, step: int) -> Params:
        """The parameters after `step` steps, as NumPy arrays."""
        state = self._manager.restore(step, args=ocp.args.Composite(state=ocp.args.StandardRestore()))["state"]
        return jax.tree.map(np.asarray, state["params"])


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
    """Keep averaged parameters in the run directory; replaces what was there."""
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler("params", "steps")) as writer:
        items = ocp.args.Composite(params=ocp.args.StandardSave(params), steps=ocp.args.JsonSave(list(steps)))
        writer.save((run / AVERAGED).resolve(), args=items, force=True)


def load_averaged(run: Path, last: int) -> tuple[Params, list[int]]:
    """A run's averaged parameters as NumPy arrays and the steps they come from; averaged now if training has not yet.

    Raises:
      RunError: the run has no checkpoint.
    """
    path = run / AVERAGED
    if path.is_dir():
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler("params", "steps")) as reader:
            items = ocp.args.Composite(params=ocp.args.StandardRestore(), steps=ocp.args.JsonRestore())
            restored = reader.restore(path.resolve(), args=items)
        return jax.tree.map(np.asarray, restored["params"]), list(restored["steps"])
    if not (run / CHECKPOINTS).is_dir():
        raise RunError(f"{str(run)!r} has no checkpoint; train it first.")
    with Checkpoints(run) as checkpoints:
        return average(checkpoints, last)
