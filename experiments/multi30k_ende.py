"""Multi30k English-German, image captions: a real benchmark for two CPU cores and an hour.

    python launch.py train experiments/multi30k_ende.py --data.directory DIR

DIR holds train.{en,de}, val.{en,de} and test_2016_flickr.{en,de}, plain or gzipped: the raw text of the WMT16
multimodal task, 29,000 training captions.

Hardware: two CPU cores. Time: 57 minutes. BLEU: 39.33 on test_2016_flickr (sacreBLEU 13a, cased, beam 4, averaged).
"""

from t2t_jax.config import Data, Experiment, Model, Optimizer, Training


def get_config() -> Experiment:
    return Experiment(
        name="multi30k_ende",
        model=Model(num_layers=3, d_model=256, d_ff=512, num_heads=4, dropout=0.2),
        data=Data(
            source="files",
            validation="val",
            test="test_2016_flickr",
            vocabulary_size=6000,
            max_length=128,
            source_tokens_per_batch=1400,
            target_tokens_per_batch=1400,
            max_shapes=12,
        ),
        optimizer=Optimizer(peak_learning_rate=1.5e-3, warmup_steps=1200),
        training=Training(
            num_steps=13_912,  # 37 epochs
            log_every=100,
            checkpoint_every=1,
            checkpoint_unit="epochs",
            keep_checkpoints=8,
            average_last=8,
        ),
    )
