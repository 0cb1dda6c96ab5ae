"""The model whose decoding is measured: the paper's base model with random weights that every tool can load."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from t2t_jax import config, model
from t2t_jax.data.tokenizer import WhitespaceTokenizer
from t2t_jax.symbols import EOS_ID, SPECIAL_SYMBOLS
from t2t_jax.training.state import abstract_params
from t2t_jax.training.trained import Trained, unfilled

ENTRIES = 37_000
ALPHA = 0.6


def trained(beam: int) -> Trained:
    """Random but fixed, without an end: nothing stops a translation before its longest length.

    The embedding of the end of sentence is zero. Its logit is then 0, and thousands of others are above.
    """
    experiment = config.Experiment(decoding=config.Decoding(beam_size=beam, alpha=ALPHA, extra_length=0))
    transformer = model.build(experiment.model, ENTRIES)
    rng = np.random.default_rng(0)

    def fill(path: Any, leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        if leaf.ndim == 1:
            return np.full(leaf.shape, float(path[-1].key == "scale"), np.float32)
        return rng.standard_normal(leaf.shape, np.float32) * np.float32(experiment.model.d_model**-0.5)

    params = jax.tree_util.tree_map_with_path(fill, abstract_params(transformer))
    params["embedding"][EOS_ID] = 0
    params["embedding"][ENTRIES:] = 0
    return unfilled(experiment, params, WhitespaceTokenizer([*SPECIAL_SYMBOLS, *map(word, range(4, ENTRIES))]))


def word(number: int) -> str:
    """The text of a token id."""
    return f"w{number}"
