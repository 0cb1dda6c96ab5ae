"""The first run: short English-German sentences that come with the package.

    python launch.py train experiments/quickstart.py

Hardware: two CPU cores. Time: 9 minutes. BLEU: 26.11 on the embedded test split (sacreBLEU 13a, beam 4, averaged).
"""

from t2t_jax.config import Data, Experiment, Model, Optimizer, Training


def get_config() -> Experiment:
    return Experiment(
        name="quickstart",
        model=Model(num_layers=3, d_model=192, d_ff=768, num_heads=6, dropout=0.1),
        data=Data(
            source="embedded",
            vocabulary_size=4000,
            max_length=64,
            # Small batches: on two cores they learn far more a minute than the paper's 25,000 tokens.
            source_tokens_per_batch=1024,
            target_tokens_per_batch=1024,
            max_shapes=10,
        ),
        optimizer=Optimizer(peak_learning_rate=2e-3, warmup_steps=500),
        training=Training(num_steps=3800, log_every=50, checkpoint_every=200, keep_checkpoints=5, average_last=5),
    )
