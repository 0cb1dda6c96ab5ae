"""Table 3 of the paper: variations of the base model, English-German, scored on newstest2013.

    python launch.py sweep experiments/table3.py --dry-run
    python launch.py sweep experiments/table3.py --launcher slurm --slurm.gpus-per-node 8

As in the paper the last checkpoint is scored, not an average, on the validation split: perplexity per word-piece, and
BLEU by the paper's protocol. Rows are what they change in experiments/wmt14_ende_base.py; big is that of
experiments/wmt14_ende_big.py. P_drop is the dropout on attention weights too. Row B leaves d_v at 64. Row E learns a
table of 256 positions, as many as the longest training sentence has tokens; what lies beyond would never be trained.

Hardware and time in the paper: eight P100 GPUs, about 12 hours a row of base's size, 3.5 days for big. Not run by us.
Expected, base: perplexity 4.92, BLEU 25.8; big: 4.33 and 26.4.
"""

from experiments import wmt14_ende_base, wmt14_ende_big
from t2t_jax.config import Experiment
from t2t_jax.sweeps import variants

SCORED = {"evaluation.splits": ("validation",), "evaluation.protocol": "paper", "training.average_last": 1}


def get_sweep() -> dict[str, Experiment]:
    base = variants.vary(wmt14_ende_base.get_config(), SCORED)
    big = variants.vary(wmt14_ende_big.get_config(), SCORED)
    changes: dict[str, dict[str, object]] = {
        "base": {},
        "A h=1": {"num_heads": 1, "d_k": 512, "d_v": 512},
        "A h=4": {"num_heads": 4, "d_k": 128, "d_v": 128},
        "A h=16": {"num_heads": 16, "d_k": 32, "d_v": 32},
        "A h=32": {"num_heads": 32, "d_k": 16, "d_v": 16},
        "B d_k=16": {"d_k": 16},
        "B d_k=32": {"d_k": 32},
        "C N=2": {"num_layers": 2},
        "C N=4": {"num_layers": 4},
        "C N=8": {"num_layers": 8},
        "C d_model=256": {"d_model": 256, "d_k": 32, "d_v": 32},
        "C d_model=1024": {"d_model": 1024, "d_k": 128, "d_v": 128},
        "C d_ff=1024": {"d_ff": 1024},
        "C d_ff=4096": {"d_ff": 4096},
        "D P_drop=0.0": {"dropout": 0.0, "attention_dropout": 0.0},
        "D P_drop=0.2": {"dropout": 0.2, "attention_dropout": 0.2},
        "D eps_ls=0.0": {"label_smoothing": 0.0},
        "D eps_ls=0.2": {"label_smoothing": 0.2},
        "E learned positions": {"positions": "learned", "max_positions": 256},
    }
    return variants.rows(base, changes) | {"big": big}
