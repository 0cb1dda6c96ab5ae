"""What there is to export: a run's averaged parameters, its tokenizer and its settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from t2t_jax import config, run_directory
from t2t_jax.data import tokenizer as tokenizers
from t2t_jax.data.tokenizer import Tokenizer
from t2t_jax.errors import ConfigError
from t2t_jax.training import checkpoints
from t2t_jax.training.state import Params


@dataclass(frozen=True)
class Trained:
    """A trained model without the rows that fill its vocabulary up to a multiple."""

    experiment: config.Experiment
    params: Params  # float32 NumPy arrays
    tokenizer: Tokenizer

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
    params, _ = checkpoints.load_averaged(run, experiment.training.average_last)
    return unfilled(experiment, params, tokenizer)


def unfilled(experiment: config.Experiment, params: Params, tokenizer: Tokenizer) -> Trained:
    """The same model with as many rows in its vocabulary as the tokenizer has entries."""
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)
    for name in {"embedding", "logits_bias"} & params.keys():
        params = params | {name: params[name][: tokenizer.size]}
    return Trained(experiment, params, tokenizer)


# Choices that other tools have an equivalent of, as far as each of them refuses no more.
EXPORTABLE: dict[str, tuple[object, ...]] = {
    "family": ("transformer",),
    "norm_kind": ("layer",),
    "activation": ("relu", "swish", "gelu"),
    "positions": ("sinusoidal", "learned"),
    "num_kv_heads": (None,),
    "encoder_attention": ("full",),
    "decoder_attention": ("full",),
    "experts": (None,),
}


def refuse_choices(model: config.Model, tool: str) -> None:
    """Sub-layers and families that an export does not write (docs/lineage.md).

    Raises:
      ConfigError: the model has one.
    """
    for name, known in EXPORTABLE.items():
        if getattr(model, name) not in known:
            raise ConfigError(f"model: {name}={getattr(model, name)!r} is not written for {tool}.")


def refuse_other_widths(model: config.Model, tool: str) -> None:
    """Heads whose widths don't add up to d_model: `tool` has no field for them.

    Raises:
      ConfigError: d_k or d_v is not d_model / num_heads.
    """
    for name, width in (("d_k", model.key_width), ("d_v", model.value_width)):
        if width * model.num_heads != model.d_model:
            raise ConfigError(
                f"model: {name}={width} has no equivalent in {tool}, where every head is d_model/num_heads="
                f"{model.d_model / model.num_heads:g} wide."
            )
