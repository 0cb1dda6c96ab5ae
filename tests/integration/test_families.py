"""Tiny models of the other families, trained by real processes and scored as their tasks are."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import t2t_jax
from t2t_jax.command_line import main
from t2t_jax.data.digits_source import VOCABULARY
from t2t_jax.errors import RunError
from t2t_jax.run_directory import load_config
from t2t_jax.symbols import SPECIAL_SYMBOLS
from t2t_jax.training.checkpoints import load_averaged
from t2t_jax.training.loop import train

FAST = "--optimizer.warmup-steps", 10, "--optimizer.peak-learning-rate", 0.01


@pytest.fixture(scope="module")
def language_model(launch, tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("language_model") / "run"
    settings = "--data.task", "language_model", "--model.family", "decoder", "--training.label-smoothing", 0, *FAST
    done = launch("train", *tiny, *settings, "--workdir", run)
    assert done.returncode == 0, done.stderr
    assert "test  accuracy" in done.stdout
    return run


def test_a_language_model_is_scored_by_its_tokens(language_model: Path, capsys) -> None:
    report = json.loads((language_model / "report.json").read_text())
    scores = report["splits"]["test"]
    assert report["bleu"] is None and 0 <= report["accuracy"] <= 100
    assert report["perplexity"] < 250, "all 500 entries alike would give 500"
    assert scores["perplexity"] == pytest.approx(math.exp(scores["negative_log_likelihood"]), abs=0.01)
    assert "Perplexity" in (language_model / "report.html").read_text()
    assert not (language_model / "translations" / "test.hypothesis").exists()
    assert main(["evaluate", str(language_model), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == report["splits"]


def test_it_writes_sentences_that_begin_as_they_are_told(language_model: Path, tmp_path: Path, capfdbinary) -> None:
    (tmp_path / "in").write_text("de\n")
    (tmp_path / "begin").write_text("Tom ist\n")
    command = ["translate", language_model, "--input", tmp_path / "in", "--prefix", tmp_path / "begin", "--sample"]
    assert main([str(word) for word in command]) == 0
    assert capfdbinary.readouterr().out.startswith(b"Tom ist")


def test_what_a_language_model_cannot_do_is_one_sentence(language_model: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "in").write_text("de\n")
    for arguments, sentence in (
        (("translate", language_model, "--input", tmp_path / "in", "--alignments"), "no --alignments"),
        (("export", language_model, "--format", "marian", "--output", tmp_path / "out"), "family='decoder' is not"),
        (("compare", language_model, language_model), "translations of the test split"),
        (("parse", language_model), "was trained for language_model, not for parsing"),
    ):
        assert main([str(word) for word in arguments]) == 2
        complaint = capsys.readouterr().err
        assert sentence in complaint
        assert complaint.count("\n") == 1


def train_here(tiny: list[str], run: Path, *settings: str) -> None:
    assert main(["train", *tiny, *settings, "--training.num-steps", "10", "--workdir", str(run)]) == 0


def test_translation_as_continuation_is_searched_like_any_other(tiny: list[str], tmp_path: Path, capsys) -> None:
    train_here(tiny, tmp_path / "run", "--model.family", "decoder")
    assert "test  BLEU (13a)" in capsys.readouterr().out
    assert len((tmp_path / "run" / "translations" / "test.hypothesis").read_text().splitlines()) == 12


def test_one_model_of_several_tasks(tiny: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_here(tiny, run, "--data.task", "text_to_text")
    report = json.loads((run / "report.json").read_text())
    assert list(report["tasks"]) == ["translate en de", "translate de en"]
    assert report["bleu"] == report["tasks"]["translate en de"]["bleu"]
    assert "test, translate de en" in (run / "report.html").read_text()


@pytest.fixture(scope="module")
def masked(launch, tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("masked") / "run"
    settings = "--data.task", "masked_language_model", "--model.family", "encoder", *FAST
    done = launch("train", *tiny, *settings, "--training.num-steps", 20, "--workdir", run)
    assert done.returncode == 0, done.stderr
    return run


def test_a_masked_language_model_goes_on_with_the_same_gaps(masked: Path) -> None:
    """In a process of another kind, and with a pause."""
    experiment, resumed = load_config(masked), masked.with_name("resumed")
    for steps in (10, 20):
        train(replace(experiment, training=replace(experiment.training, num_steps=steps)), resumed)
    params, others = (load_averaged(run, 2)[0] for run in (masked, resumed))
    jax.tree.map(np.testing.assert_array_equal, params, others)
    scores = json.loads((masked / "report.json").read_text())["splits"]["test"]
    assert scores["target_tokens"] < 50, "one in seven of the 12 lines' tokens"


def test_an_encoder_writes_nothing(masked: Path, tmp_path: Path, capsys) -> None:
    run = masked
    (tmp_path / "in").write_text("de\n")
    for arguments, sentence in (
        (("translate", run, "--input", tmp_path / "in"), "fills gaps and writes no text"),
        (("score", run, "--source", tmp_path / "in", "--target", tmp_path / "in"), "fills gaps and writes no text"),
        (("export", run, "--format", "ctranslate2", "--output", tmp_path / "out"), "family='encoder' is not written"),
    ):
        assert main([str(word) for word in arguments]) == 2
        complaint = capsys.readouterr().err
        assert sentence in complaint
        assert complaint.count("\n") == 1
    with pytest.raises(RunError, match="fills gaps and writes no text"):
        t2t_jax.load(run)


DIGITS = {
    "model.num-layers": 1,
    "training.num-steps": 120,
    "training.checkpoint-every": 120,
    "optimizer.warmup-steps": 10,
    "optimizer.peak-learning-rate": 0.005,
}


def test_digits_from_patches(tmp_path: Path, capsys) -> None:
    pytest.importorskip("sklearn", reason="the images come with scikit-learn")
    settings = [word for name, value in DIGITS.items() for word in (f"--{name}", str(value))]
    run = tmp_path / "run"
    assert main(["train", "experiments/digits.py", *settings, "--workdir", str(run)]) == 0
    report = json.loads((run / "report.json").read_text())
    assert report["accuracy"] > 60, "it was 86 when this was written, and 10 is chance"
    assert f"test  accuracy {report['accuracy']:.2f}" in capsys.readouterr().out
    found = (run / "translations" / "test.hypothesis").read_text().splitlines()
    right = (run / "translations" / "test.target").read_text().splitlines()
    assert report["accuracy"] == pytest.approx(100 * np.mean(np.array(found) == np.array(right)), abs=0.01)
    assert "Accuracy" in (run / "report.html").read_text()


def test_digits_take_no_other_vocabulary(tmp_path: Path, capsys) -> None:
    """The place of an entry is an intensity, so another order would be another image, and nobody would see it."""
    pytest.importorskip("sklearn", reason="the images come with scikit-learn")
    names = [*SPECIAL_SYMBOLS, *reversed(VOCABULARY)]
    (tmp_path / "tokenizer.vocabulary").write_text("".join(f"{name}\n" for name in names))
    settings = ["--data.tokenizer-from", str(tmp_path), "--workdir", str(tmp_path / "run")]
    assert main(["prepare", "experiments/digits.py", *settings]) == 2
    assert "does not begin with intensities in order" in capsys.readouterr().err


def test_digits_without_scikit_learn_are_one_sentence(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert main(["prepare", "experiments/digits.py", "--workdir", str(tmp_path / "run")]) == 2
    complaint = capsys.readouterr().err
    assert "pip install scikit-learn" in complaint and complaint.count("\n") == 1
