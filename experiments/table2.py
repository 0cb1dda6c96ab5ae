"""Table 2 of the paper: base and big on WMT14 English-German and English-French, scored on newstest2014.

    python launch.py sweep experiments/table2.py --dry-run
    python launch.py sweep experiments/table2.py --launcher slurm --slurm.gpus-per-node 8

Averaged over the last 5 checkpoints of base and the last 20 of big, by the paper's BLEU: tokenised, and for German with
compounds split, which sacreBLEU's 13a does not do.

Hardware and time in the paper: eight P100 GPUs, 12 hours for base, 3.5 days for big. Not run by us.
Expected BLEU: English-German 27.3 and 28.4, English-French 38.1 and 41.8.
"""

from experiments import wmt14_ende_base, wmt14_ende_big, wmt14_enfr_base, wmt14_enfr_big
from t2t_jax.config import Experiment
from t2t_jax.sweeps import variants


def get_sweep() -> dict[str, Experiment]:
    experiments = {
        "EN-DE base": wmt14_ende_base.get_config(),
        "EN-DE big": wmt14_ende_big.get_config(),
        "EN-FR base": wmt14_enfr_base.get_config(),
        "EN-FR big": wmt14_enfr_big.get_config(),
    }
    return {row: variants.vary(experiment, {"protocol": "paper"}) for row, experiment in experiments.items()}
