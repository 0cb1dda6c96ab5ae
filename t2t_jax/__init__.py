"""t2t_jax: "Attention Is All You Need" in JAX and Flax, trained the same on any mesh."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from t2t_jax.config import Decoding
    from t2t_jax.decoding.translator import Translator


def load(*runs: str | Path, decoding: Decoding | None = None) -> Translator:
    """The translator of a run directory, or of several as an ensemble: `load("runs/x").translate(["A line."])`.

    `decoding` replaces the run's own settings of the search.

    Raises:
      RunError: not a run directory, one without a checkpoint, or runs with different vocabularies.
    """
    from t2t_jax.decoding.translator import Translator  # brings JAX in

    return Translator.load([Path(run) for run in runs], decoding)
