"""The paper's base model on WMT14 English-German (Table 2).

    python launch.py train experiments/wmt14_ende_base.py --training.compute_dtype bfloat16

The text is downloaded, or brought by hand, as docs/wmt.md says; presets.t2t_v1 takes tensor2tensor's later corpora.

Hardware and time in the paper: eight P100 GPUs, 12 hours (0.4 s a step). Not run by us.
Expected BLEU on newstest2014: 27.3 in the paper, by its own protocol (tokenised, compounds split), not sacreBLEU 13a.
"""

from t2t_jax.config import Data, Decoding, Experiment, Model, Optimizer, Training


def get_config() -> Experiment:
    return Experiment(
        name="wmt14_ende_base",
        model=Model(
            num_layers=6, d_model=512, d_ff=2048, num_heads=8, d_k=64, d_v=64, dropout=0.1, attention_dropout=0.1
        ),
        data=Data(
            source="tfds",
            source_language="en",
            target_language="de",
            validation="validation",  # newstest2013
            test="test",  # newstest2014
            vocabulary_size=37_000,
            source_tokens_per_batch=25_000,
            target_tokens_per_batch=25_000,
            shapes="free",
        ),
        optimizer=Optimizer(learning_rate_factor=1.0, warmup_steps=4000, beta1=0.9, beta2=0.98, epsilon=1e-9),
        # The paper wrote a checkpoint every 10 minutes, about 1,500 steps of base, and averaged the last five.
        training=Training(
            num_steps=100_000, label_smoothing=0.1, checkpoint_every=1500, keep_checkpoints=5, average_last=5
        ),
        decoding=Decoding(beam_size=4, alpha=0.6, extra_length=50),
    )
