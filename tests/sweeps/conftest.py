"""A sweep that was never trained: directories as training and scoring write them, with figures made up by hand."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from t2t_jax import config_fields, run_directory
from t2t_jax.config import Experiment
from t2t_jax.decoding.translator import EMPTY
from t2t_jax.evaluation.bleu import Score
from t2t_jax.evaluation.evaluate import SplitResult, report_of
from t2t_jax.evaluation.tasks import Scores, TranslationScores
from t2t_jax.sweeps import rows, variants
from t2t_jax.symbols import SPECIAL_SYMBOLS
from t2t_jax.training import calls
from t2t_jax.training.metrics import MetricsWriter
from t2t_jax.training.validation import HeldOutLoss

SOURCES = [f"{i} small black cats sat on the mat" for i in range(30)]
REFERENCES = [f"{i} kleine schwarze Katzen saßen auf der Matte" for i in range(30)]
STEPS = 40

Write = Callable[..., None]


@pytest.fixture
def base() -> Experiment:
    """Settings that validate quickly and name all that the tests rely on."""
    return variants.vary(
        Experiment(),
        {
            "num_steps": STEPS,
            "splits": ("validation", "test"),
            "checkpoint_every": 20,
            "average_last": 1,
            "source": "files",
        },
    )


@pytest.fixture
def plan(tmp_path: Path, base: Experiment) -> Callable[..., rows.Sweep]:
    """From a table of changes to a planned sweep in a new directory."""

    def make(table: Mapping[str, Mapping[str, Any]], seeds: int = 1, name: str = "made_up") -> rows.Sweep:
        planned = rows.plan_rows(name, tmp_path / name, variants.rows(base, table), seeds)
        planned = dataclasses.replace(planned, command=f"python launch.py sweep {name}.py --data.directory {tmp_path}")
        rows.save(planned)
        return planned

    return make


@pytest.fixture
def write_run(monkeypatch: pytest.MonkeyPatch) -> Write:
    """Fills the directory of a run with what training and scoring leave."""
    monkeypatch.setattr(sys, "argv", ["/somewhere/launch.py", "train-row", "/somewhere/runs", "row"])
    return fill


def fill(
    row: rows.Row,
    bleu: float = 30.0,
    perplexity: float = 5.0,
    parameters: int = 1_500_000,
    worse: int = 0,
    tokenizer: str = "aa",
    utilisation: float | None = None,
    scores: Scores | None = None,
) -> None:
    """Fill the directory of `row`.

    Args:
      worse: translations, of the thirty, that lack a word.
      utilisation: of devices with a data sheet.
      scores: of another task than translation.
    """
    run, experiment = row.directory, row.experiment
    (run / "translations").mkdir(parents=True)
    (run / run_directory.CONFIG).write_text(config_fields.to_json(experiment))
    (run / run_directory.DATA).write_text(json.dumps({"files": {"tokenizer.vocabulary": tokenizer}}))
    (run / "tokenizer.vocabulary").write_text("".join(f"{symbol}\n" for symbol in [*SPECIAL_SYMBOLS, "cat"]))
    calls.record(run, 0)
    with MetricsWriter(run, 0) as writer:
        for step in (20, STEPS):
            # 25 seconds at 4 GFLOP/s, twice
            speed = {"seconds": 25.0, "target_tokens": 5000, "flops_per_second": 4e9, "compiled_flops_per_second": 5e9}
            speed["memory_bytes"] = (60 + step) * 2**20
            more = {} if utilisation is None else {"utilisation": utilisation}
            writer.write({"step": step, "loss": 3.0, "epoch": 1.0, "validation_loss": 3 - step / 40, **speed, **more})
    hypotheses = [" ".join(line.split()[:-1]) if i < worse else line for i, line in enumerate(REFERENCES)]
    results = []
    for split, points in (("validation", 0.0), ("test", 1.0)):
        for side, lines in (("source", SOURCES), ("target", REFERENCES), ("hypothesis", hypotheses)):
            text = "".join(f"{line}\n" for line in lines)
            (run / "translations" / f"{split}.{side}").write_text(text, encoding="utf-8")
        by_protocol = {
            name: Score(bleu + points + more, f"signature:{name}", "") for name, more in (("13a", 0.0), ("paper", 0.5))
        }
        loss = HeldOutLoss(3.0, math.log(perplexity + points), 100, 30)
        translations = [EMPTY._replace(text=text, ids=(4,) * 5) for text in hypotheses]
        told = scores or TranslationScores(by_protocol, Score(55.5, "chrf", ""))
        answers = list(hypotheses)
        results.append(SplitResult(split, loss, told, SOURCES, REFERENCES, translations, answers, 3.0))  # type: ignore[arg-type]
    report = report_of(run, experiment, results, parameters, [STEPS])
    (run / run_directory.REPORT).write_text(json.dumps(report))
