"""Quickstart's translation by one stack: a language model reads the English sentence and goes on in German.

    python launch.py train experiments/translation_by_continuation.py

Six layers without attention over an encoder's output are nearly quickstart's three and three with it.

Hardware: two CPU cores. Time and BLEU on the embedded test split: not run to its end yet.
"""

import dataclasses

from experiments import quickstart
from t2t_jax.config import Experiment


def get_config() -> Experiment:
    base = quickstart.get_config()
    return dataclasses.replace(
        base,
        name="translation_by_continuation",
        model=dataclasses.replace(base.model, family="decoder", num_layers=6, norm="pre"),
    )
