from t2t_jax.config import Data, Decoding, Experiment, Model, Optimizer, Training


def get_config() -> Experiment:
    return Experiment(
        name="parsing_gum",
        model=Model(num_layers=2, d_model=128, d_ff=512, num_heads=4, dropout=0.3),
        data=Data(
            task="parsing",
            vocabulary_size=2000,
            max_length=400,
            source_tokens_per_batch=1200,
            target_tokens_per_batch=1600,
            max_shapes=10,
        ),
        optimizer=Optimizer(peak_learning_rate=2e-3, warmup_steps=500),
        training=Training(num_steps=4000, log_every=50, checkpoint_every=200, keep_checkpoints=5, average_last=5),
        decoding=Decoding(beam_size=4, alpha=0.3, extra_length=300),
    )
