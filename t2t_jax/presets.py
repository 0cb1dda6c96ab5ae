"""The named sets of choices in which the paper and the code released with it differ, as changes of an experiment."""

from __future__ import annotations

import dataclasses

from t2t_jax.config import Experiment

# With News Commentary v13 where the shared task of 2014 had v9.
T2T_GERMAN = ("europarl_v7", "commoncrawl", "newscommentary_v13")


def paper(experiment: Experiment) -> Experiment:
    """What the paper says, with dropout on attention weights as on sub-layers."""
    return _replace(
        experiment,
        model={
            "norm": "post",
            "attention_dropout": experiment.model.dropout,
            "relu_dropout": 0.0,
            "sinusoid_layout": "interleaved",
        },
        optimizer={"learning_rate_factor": 1.0, "peak_learning_rate": None, "warmup_steps": 4000, "beta2": 0.98},
        data={"corpora": ()},
        training={"label_smoothing_mass": "vocabulary"},
        decoding={"extra_length": 50},
    )


def t2t_v1(experiment: Experiment) -> Experiment:
    """tensor2tensor's first hyper-parameters, with which the paper's models were trained, and its German corpora."""
    languages = {experiment.data.source_language, experiment.data.target_language}
    german = experiment.data.source == "tfds" and languages == {"en", "de"}
    return _replace(
        paper(experiment),
        data={"corpora": T2T_GERMAN if german else ()},
        model={"attention_dropout": 0.0, "sinusoid_layout": "concatenated"},
        training={"label_smoothing_mass": "others"},
        decoding={"extra_length": 100},
    )


def t2t_v2(experiment: Experiment) -> Experiment:
    """tensor2tensor's later default: pre-norm, dropout inside the sub-layers, a longer warm-up to a higher rate."""
    return _replace(
        t2t_v1(experiment),
        model={"norm": "pre", "attention_dropout": 0.1, "relu_dropout": 0.1},
        optimizer={"learning_rate_factor": 2.0, "warmup_steps": 8000, "beta2": 0.997},
    )


def _replace(experiment: Experiment, **rooms: dict[str, object]) -> Experiment:
    changed = {name: dataclasses.replace(getattr(experiment, name), **values) for name, values in rooms.items()}
    return dataclasses.replace(experiment, **changed)
