"""Constituency parsing of English, with millions of automatically parsed sentences beside the WSJ (Table 4).

    python launch.py train experiments/parsing_semisupervised.py --data.directory DIR --training.compute_dtype bfloat16

DIR holds what parsing_wsj.py needs, and parsed.trees, another parser's trees of other text; the paper had about 17
million of them. Nine pairs in ten are from there, and the WSJ is repeated as often as that takes.

Hardware and time: the paper gives none. Not run by us.
Expected F1 on section 23: 92.7 in the paper.
"""

import dataclasses

from experiments import parsing_wsj
from t2t_jax.config import Experiment, Optimizer


def get_config() -> Experiment:
    base = parsing_wsj.get_config()
    return dataclasses.replace(
        base,
        name="parsing_semisupervised",
        # With so much text less dropout and a shorter warm-up, as in tensor2tensor's hyper-parameters for this task.
        model=dataclasses.replace(base.model, dropout=0.1, attention_dropout=0.1),
        # The paper does not say how the two corpora are mixed; the share is ours.
        data=dataclasses.replace(base.data, vocabulary_size=32_000, extra_train="parsed", extra_share=0.9),
        optimizer=Optimizer(learning_rate_factor=1.0, warmup_steps=4000),
        training=dataclasses.replace(base.training, num_steps=200_000),
    )
