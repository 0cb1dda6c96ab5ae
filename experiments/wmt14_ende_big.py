"""The paper's big model on WMT14 English-German (Table 2).

    python launch.py train experiments/wmt14_ende_big.py --training.compute_dtype bfloat16

Hardware and time in the paper: eight P100 GPUs, 3.5 days (1.0 s a step). Not run by us.
Expected BLEU on newstest2014: 28.4 in the paper, by its own protocol (tokenised, compounds split), not sacreBLEU 13a.
"""

import dataclasses

from experiments import wmt14_ende_base
from t2t_jax.config import Experiment, Model


def get_config() -> Experiment:
    base = wmt14_ende_base.get_config()
    return dataclasses.replace(
        base,
        name="wmt14_ende_big",
        model=Model(
            num_layers=6, d_model=1024, d_ff=4096, num_heads=16, d_k=64, d_v=64, dropout=0.3, attention_dropout=0.3
        ),
        # 10 minutes between checkpoints are about 600 steps of big; the last 20 are averaged.
        training=dataclasses.replace(
            base.training, num_steps=300_000, checkpoint_every=600, keep_checkpoints=20, average_last=20
        ),
    )
