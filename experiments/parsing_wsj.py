"""Constituency parsing of English, trained on the Wall Street Journal alone (section 6.3, Table 4).

    python launch.py train experiments/parsing_wsj.py --data.directory DIR --training.compute_dtype bfloat16

DIR holds train.trees (sections 2 to 21 of the Penn treebank's WSJ), valid.trees (22) and test.trees (23), each the .mrg
files of its sections one after another: docs/parsing.md.

Hardware and time: the paper gives none. Not run by us.
Expected F1 on section 23: 91.3 in the paper.
"""

from t2t_jax.config import Data, Decoding, Experiment, Model, Optimizer, Training


def get_config() -> Experiment:
    return Experiment(
        name="parsing_wsj",
        # The paper prints N and d_model. d_ff and the heads are ours, those of its big model; both rates of dropout and
        # the warm-up are those of the hyper-parameters that tensor2tensor released for this task. The paper tuned
        # dropout and learning rate on section 22, so try others.
        model=Model(num_layers=4, d_model=1024, d_ff=4096, num_heads=16, dropout=0.2, attention_dropout=0.2),
        data=Data(
            task="parsing",
            source="files",
            vocabulary_size=16_000,
            max_length=512,
            source_tokens_per_batch=25_000,
            target_tokens_per_batch=25_000,
            shapes="free",
        ),
        optimizer=Optimizer(learning_rate_factor=1.0, warmup_steps=16_000),
        training=Training(num_steps=40_000, checkpoint_every=1000, keep_checkpoints=5, average_last=5),  # ours
        # Trees are longer than their sentences, and 21 hypotheses wide: fewer at once than of translations.
        decoding=Decoding(beam_size=21, alpha=0.3, extra_length=300, tokens_per_batch=2048),
    )
