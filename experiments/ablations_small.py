"""Table 3 in small: the paper's variations of a model that two CPU cores train on Multi30k in ten minutes.

    python launch.py sweep experiments/ablations_small.py --data.directory DIR

DIR holds train.{en,de}, val.{en,de} and test_2016_flickr.{en,de}, as for experiments/multi30k_ende.py. Each row is what
it changes in base, as in Table 3: heads at equal total width, the width of keys alone, dropout (on attention weights
too), label smoothing, depth, d_ff, and learned positions, of which the table has 128, the longest training sentence.
The last checkpoint is scored, not an average, first on the validation split, as in Table 3, then on test.

Hardware: two CPU cores. Time: about ten minutes a row.
"""

from experiments import multi30k_ende
from t2t_jax.config import Experiment
from t2t_jax.sweeps import variants


def get_sweep() -> dict[str, Experiment]:
    base = variants.vary(
        multi30k_ende.get_config(),
        {
            "name": "ablations_small",
            "num_layers": 2,
            "num_heads": 8,
            "dropout": 0.1,
            "attention_dropout": 0.1,
            "warmup_steps": 800,
            "num_steps": 3000,
            "checkpoint_every": 500,
            "checkpoint_unit": "steps",
            "keep_checkpoints": 1,
            "average_last": 1,
            "splits": ("validation", "test"),
        },
    )
    changes: dict[str, dict[str, object]] = {
        "base": {},
        "h=1": {"num_heads": 1},
        "h=2": {"num_heads": 2},
        "h=16": {"num_heads": 16},
        "d_k=half": {"d_k": 16, "d_v": 32},
        "N=half": {"num_layers": 1},
        "d_ff=double": {"d_ff": 1024},
        "dropout=0": {"dropout": 0.0, "attention_dropout": 0.0},
        "dropout=0.3": {"dropout": 0.3, "attention_dropout": 0.3},
        "label smoothing=0": {"label_smoothing": 0.0},
        "learned positions": {"positions": "learned", "max_positions": 128},
    }
    return variants.rows(base, changes)
