"""Tiny models of the other families, trained by real processes and scored as their tasks are."""

import json
import math
from pathlib import Path

import pytest

from t2t_jax.command_line import main

FAST = "--optimizer.warmup-steps", 10, "--optimizer.peak-learning-rate", 0.01


@pytest.fixture(scope="module")
def language_model(launch, tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("language_model") / "run"
    settings = "--data.task", "language_model", "--model.family", "decoder", "--training.label-smoothing", 0, *FAST
    done = launch("train", *tiny, *settings, "--workdir", run)
    assert done.returncode == 0, done.stderr
    assert "test  token accuracy" in done.stdout
    return run


def test_a_language_model_is_scored_by_its_tokens(language_model: Path) -> None:
    report = json.loads((language_model / "report.json").read_text())
    scores = report["splits"]["test"]
    assert report["bleu"] is None and 0 <= report["token_accuracy"] <= 100
    assert report["perplexity"] < 250, "all 500 entries alike would give 500"
    assert scores["perplexity"] == pytest.approx(math.exp(scores["negative_log_likelihood"]), abs=0.01)
    assert "Perplexity" in (language_model / "report.html").read_text()
    assert not (language_model / "translations" / "test.hypothesis").exists()


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


def test_translation_as_continuation_is_searched_like_any_other(launch, tiny: list[str], tmp_path: Path) -> None:
    done = launch(
        "train", *tiny, "--model.family", "decoder", "--training.num-steps", 10, "--workdir", tmp_path / "run"
    )
    assert done.returncode == 0, done.stderr
    assert "test  BLEU (13a)" in done.stdout
    assert len((tmp_path / "run" / "translations" / "test.hypothesis").read_text().splitlines()) == 12


def test_one_model_of_several_tasks(launch, tiny: list[str], tmp_path: Path, capsys) -> None:
    run = tmp_path / "run"
    done = launch("train", *tiny, "--data.task", "text_to_text", "--training.num-steps", 10, "--workdir", run)
    assert done.returncode == 0, done.stderr
    report = json.loads((run / "report.json").read_text())
    assert list(report["tasks"]) == ["translate en de", "translate de en"]
    assert report["bleu"] == report["tasks"]["translate en de"]["bleu"]
    assert "test, translate de en" in (run / "report.html").read_text()
    (tmp_path / "in").write_text("translate de en: Wo?\n")
    assert main(["translate", str(run), "--input", str(tmp_path / "in")]) == 0
