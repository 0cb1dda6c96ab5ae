"""Constituency parsing on the trees that come with the package: news, interviews, academic and court English.

    python launch.py train experiments/parsing_gum.py

2,493 training trees from GUM (CC-BY), a sixteenth of what the paper's WSJ-only parser was trained on, so the model is
small and dropout strong.

Hardware: two CPU cores. Time: about 25 minutes. F1: 32.95 on the embedded test split (EVALB's rules, length <= 40:
38.77); trees that always branch to the right have 14.50.
"""

from t2t_jax.config import Data, Decoding, Experiment, Model, Optimizer, Training


def get_config() -> Experiment:
    return Experiment(
        name="parsing_gum",
        model=Model(num_layers=3, d_model=192, d_ff=768, num_heads=4, dropout=0.3, attention_dropout=0.1, norm="pre"),
        data=Data(
            task="parsing",
            vocabulary_size=1500,
            max_length=400,
            source_tokens_per_batch=1200,
            target_tokens_per_batch=1600,
            max_shapes=10,
        ),
        optimizer=Optimizer(peak_learning_rate=1.5e-3, warmup_steps=500),
        training=Training(num_steps=6000, log_every=50, checkpoint_every=250, keep_checkpoints=8, average_last=8),
        decoding=Decoding(beam_size=4, alpha=1.0, extra_length=300),
    )
