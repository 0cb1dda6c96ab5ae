"""What training leaves: a run's averaged parameters, its tokenizer and its settings."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from t2t_jax import config, model, run_directory
from t2t_jax.data import tokenizer as tokenizers
from t2t_jax.data.tokenizer import Tokenizer
from t2t_jax.model import SequenceModel
from t2t_jax.training import checkpoints
from t2t_jax.training.state import Params


@dataclass(frozen=True)
class Trained:
    """A trained model without the rows that fill its vocabulary up to a multiple, so that none has to be masked."""

    experiment: config.Experiment
    params: Params  # float32 NumPy arrays
    tokenizer: Tokenizer
    steps: tuple[int, ...] = ()
    """Training steps whose average the parameters are."""
    run: Path | None = None

    def __str__(self) -> str:
        return repr(str(self.run) if self.run else self.experiment.name)

    @property
    def transformer(self) -> SequenceModel:
        """The module that the parameters are of."""
        settings = dataclasses.replace(self.experiment.model, vocabulary_multiple=1)
        return model.build(settings, self.tokenizer.size, self.experiment.training.compute_dtype)

    @property
    def pieces(self) -> list[str]:
        """The text of every token id, special symbols first."""
        return self.tokenizer.pieces(range(self.tokenizer.size))


def load(run: Path) -> Trained:
    """Read a run directory.

    Raises:
      RunError: not a run directory, or one without a checkpoint.
    """
    experiment = run_directory.load_config(run)
    tokenizer = tokenizers.load(run)
    params, steps = checkpoints.load_averaged(run, experiment.training.average_last)
    return dataclasses.replace(unfilled(experiment, params, tokenizer), steps=tuple(steps), run=run)


def unfilled(experiment: config.Experiment, params: Params, tokenizer: Tokenizer) -> Trained:
    """The same model with as many rows in its vocabulary as the tokenizer has entries."""
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)
    for name in {"embedding", "logits_bias"} & params.keys():
        params = params | {name: params[name][: tokenizer.size]}
    return Trained(experiment, params, tokenizer)
