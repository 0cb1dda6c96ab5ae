"""The lineage as one table: what came before the Transformer and after it, on one corpus and one budget of steps.

    python launch.py sweep experiments/lineage.py --data.directory DIR

Base, data, steps and scoring are those of experiments/ablations_small.py, with the same DIR. Each row is what it
changes in base (docs/lineage.md has the formulas), and its parameters are within 5% of base's unless said here:

- SwiGLU has two thirds of base's d_ff, rounded to a multiple of 8, since it has three matrices instead of two.
- Shared keys have fewer parameters, by 14% (two heads of keys) and 17% (one); nothing is widened to make up for them.
- A mixture has four experts of half of base's d_ff and picks two, so that a position goes through as many parameters as
  in base, of 25% more in all.
- The recurrent models have two layers as well, the GRU's wider since it has three matrices for the LSTM's four; the
  convolutional one has three layers.
- "together" is what later decoders combine: pre-norm, RMSNorm, SwiGLU, rotary positions, two heads of keys.

Window and Linformer's length are small enough to mean something for captions of a dozen words.
Linformer's projections have 128 columns, a column for each position that a sentence may have, as the learned table has
128 rows.

Attention dropout (0.1 in base) has no meaning for what has no attention weights, so some rows are without it. The row
"attention dropout=0" is theirs to be compared with. Blockwise attention computes that row's numbers in another order:
a difference between the two is rounding, grown over training.

The learning rate is base's for all; it was tuned for no row. What was displaced clips gradients to the norm 1, as
Bahdanau et al. do (Gehring et al. clip harder).

Hardware: two CPU cores. Time: about ten minutes a row, more for the recurrent ones.
"""

from experiments import ablations_small
from t2t_jax.config import Experiment
from t2t_jax.sweeps import variants


def get_sweep() -> dict[str, Experiment]:
    base = variants.vary(ablations_small.get_sweep()["base"], {"name": "lineage"})
    undropped: dict[str, object] = {"attention_dropout": 0.0}
    displaced = undropped | {"gradient_clip": 1.0}
    changes: dict[str, dict[str, object]] = {
        "base": {},
        "pre-norm": {"norm": "pre"},
        "RMSNorm": {"norm_kind": "rms"},
        "GELU": {"activation": "gelu"},
        "SwiGLU": {"activation": "swiglu", "d_ff": 344},
        "learned positions": {"positions": "learned", "max_positions": 128},
        "rotary": {"positions": "rotary"},
        "ALiBi": {"positions": "alibi"},
        "T5 relative bias": {"positions": "t5"},
        "grouped-query": {"num_kv_heads": 2},
        "multi-query": {"num_kv_heads": 1},
        "window": {"encoder_attention": "window", "decoder_attention": "window", "attention_window": 4},
        "Linformer": {"encoder_attention": "linformer", "linformer_length": 8, "max_positions": 128},
        "mixture of experts": {"experts": 4, "experts_per_token": 2, "d_ff": 256},
        "attention dropout=0": undropped,
        "blockwise": undropped | {"attention_kernel": "blockwise"},
        "Performer": undropped
        | {"encoder_attention": "performer", "decoder_attention": "performer", "performer_features": 128},
        "LSTM": displaced | {"family": "recurrent", "recurrent_cell": "lstm"},
        "GRU": displaced | {"family": "recurrent", "recurrent_cell": "gru", "d_model": 272},
        "ConvS2S": displaced | {"family": "convolutional", "num_layers": 3, "kernel_width": 3},
        "together": {
            **{"norm": "pre", "norm_kind": "rms", "activation": "swiglu", "d_ff": 344},
            **{"positions": "rotary", "num_kv_heads": 2},
        },
    }
    return variants.rows(base, changes)
