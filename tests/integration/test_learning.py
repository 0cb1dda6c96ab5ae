"""The whole way on a task with a right answer: write the words backwards."""

import random
from pathlib import Path

from t2t_jax.config import Data, Decoding, Experiment, Model, Optimizer, Training
from t2t_jax.decoding.translator import Translator
from t2t_jax.training import loop


def test_reversing_is_learnt(tmp_path: Path) -> None:
    chance = random.Random(1)
    words = [f"w{i}" for i in range(12)]

    def write(stem: str, count: int) -> list[list[str]]:
        rows = [chance.choices(words, k=chance.randint(2, 7)) for _ in range(count)]
        (tmp_path / f"{stem}.a").write_text("".join(" ".join(row) + "\n" for row in rows))
        (tmp_path / f"{stem}.b").write_text("".join(" ".join(row[::-1]) + "\n" for row in rows))
        return rows

    write("train", 4000)
    write("valid", 50)
    held_out = write("test", 300)
    experiment = Experiment(
        name="reverse",
        model=Model(num_layers=2, d_model=64, d_ff=128, num_heads=4, dropout=0.0, vocabulary_multiple=8),
        data=Data(
            source="files",
            directory=str(tmp_path),
            source_language="a",
            target_language="b",
            tokenizer="whitespace",
            max_length=16,
            source_tokens_per_batch=1024,
            target_tokens_per_batch=1024,
            max_shapes=1,
        ),
        optimizer=Optimizer(peak_learning_rate=2e-3, warmup_steps=100),
        training=Training(num_steps=500, checkpoint_every=500, label_smoothing=0.0, average_last=1),
    )
    loop.train(experiment, tmp_path / "run")
    translator = Translator.load(tmp_path / "run", Decoding(beam_size=2, extra_length=4))
    answers = translator.translate([" ".join(row) for row in held_out])
    right = sum(best.text.split() == row[::-1] for (best, *_), row in zip(answers, held_out, strict=True))
    assert right / len(held_out) > 0.99
