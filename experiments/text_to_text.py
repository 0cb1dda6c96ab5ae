"""One model for three tasks: English to German, German to English, and parsing, on what comes with the package.

    python launch.py train experiments/text_to_text.py

A source begins with what is to be done: `translate en de: `, `translate de en: ` or `parse: `. So too when it is used:
`echo "translate de en: Wo bist du?" | python launch.py translate runs/text_to_text`.

Hardware: two CPU cores. Time: 18 minutes. On the embedded test split: 19.21 BLEU into German, 23.48 into English
(sacreBLEU 13a, beam 4, averaged), F1 15.75 of trees.
"""

import dataclasses

from experiments import quickstart
from t2t_jax.config import Experiment


def get_config() -> Experiment:
    base = quickstart.get_config()
    return dataclasses.replace(
        base,
        name="text_to_text",
        # Trees are longer than sentences, and written in the same word-pieces.
        data=dataclasses.replace(
            base.data, task="text_to_text", max_length=160, source_tokens_per_batch=1280, target_tokens_per_batch=1280
        ),
        training=dataclasses.replace(base.training, num_steps=7600),
        decoding=dataclasses.replace(base.decoding, extra_length=200),
    )
