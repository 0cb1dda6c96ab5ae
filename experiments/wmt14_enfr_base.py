"""The paper's base model on WMT14 English-French (Table 2).

    python launch.py train experiments/wmt14_enfr_base.py --training.compute_dtype bfloat16

The paper's 32,000 word-pieces are one BPE vocabulary of that size for both languages here; docs/wmt.md has more.

Hardware and time in the paper: eight P100 GPUs, 12 hours (0.4 s a step). Not run by us.
Expected BLEU on newstest2014: 38.1 in the paper, by its own protocol (tokenised), not sacreBLEU 13a.
"""

import dataclasses

from experiments import wmt14_ende_base
from t2t_jax.config import Experiment


def get_config() -> Experiment:
    base = wmt14_ende_base.get_config()
    return dataclasses.replace(
        base,
        name="wmt14_enfr_base",
        data=dataclasses.replace(base.data, target_language="fr", vocabulary_size=32_000),
    )
