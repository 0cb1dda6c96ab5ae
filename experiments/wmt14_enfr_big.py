"""The paper's big model on WMT14 English-French (Table 2).

    python launch.py train experiments/wmt14_enfr_big.py --training.compute_dtype bfloat16

Hardware and time in the paper: eight P100 GPUs, 3.5 days (1.0 s a step). Not run by us.
Expected BLEU on newstest2014: 41.8 in the paper, by its own protocol (tokenised), not sacreBLEU 13a.
"""

import dataclasses

from experiments import wmt14_ende_big, wmt14_enfr_base
from t2t_jax.config import Experiment


def get_config() -> Experiment:
    big = wmt14_ende_big.get_config()
    return dataclasses.replace(
        big,
        name="wmt14_enfr_big",
        model=dataclasses.replace(big.model, dropout=0.1, attention_dropout=0.1),  # section 5.4: 0.1 here, not 0.3
        data=wmt14_enfr_base.get_config().data,
    )
