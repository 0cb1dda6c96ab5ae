"""A tiny parser, trained by real processes: whatever it has learnt, every sentence gets a tree over its words."""

import itertools
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from t2t_jax.command_line import main
from t2t_jax.config import Data
from t2t_jax.data.sources import open_source
from t2t_jax.parsing.linear import tree_of
from t2t_jax.parsing.trees import parse, split_words, words

SETTINGS = {
    "data.vocabulary-size": 500,
    "data.max-length": 80,
    "data.source-tokens-per-batch": 512,
    "data.target-tokens-per-batch": 512,
    "data.max-shapes": 2,
    "model.num-layers": 1,
    "model.d-model": 16,
    "model.d-ff": 32,
    "model.num-heads": 2,
    "training.num-steps": 30,
    "training.log-every": 10,
    "training.checkpoint-every": 15,
    "training.keep-checkpoints": 2,
    "training.average-last": 2,
    "decoding.extra-length": 40,
    "decoding.beam-size": 2,
}


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("treebank")
    source = open_source(Data(task="parsing"))
    for split, stem, count in (("train", "train", 150), ("validation", "valid", 12), ("test", "test", 8)):
        pairs = ((s, t) for s, t in source.pairs(split) if s and t and len(s.split(" ")) < 20)  # type: ignore[arg-type]
        lines = [str(tree_of(t.split(" "), s.split(" "))) for s, t in itertools.islice(pairs, count)]
        (folder / f"{stem}.trees").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def parser(launch, treebank: Path) -> Path:
    run = treebank / "run"
    settings = [word for name, value in SETTINGS.items() for word in (f"--{name}", str(value))]
    files = "--data.source", "files", "--data.directory", treebank
    done = launch("train", "experiments/parsing_gum.py", *files, *settings, "--workdir", run)
    assert done.returncode == 0, done.stderr
    assert "test  F1 " in done.stdout
    return run


def test_the_run_has_scores_trees_and_a_page(launch, parser: Path, treebank: Path, capsys) -> None:
    report = json.loads((parser / "report.json").read_text())
    assert {"f1", "precision", "recall", "complete_match", "tagging_accuracy", "perplexity"} <= report.keys()
    assert report["bleu"] is None
    trees = parser / "translations" / "test.hypothesis"
    assert main(["brackets", "--gold", str(treebank / "test.trees"), "--test", str(trees), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["all"]
    assert (found["f1"], found["sentences"]) == (report["f1"], 8)
    assert found.items() <= report["splits"]["test"].items()
    page = (parser / "report.html").read_text()
    assert page.count('aria-label="Parse of line') == 8
    again = launch("evaluate", parser, "--json")
    assert json.loads(again.stdout)["test"] == report["splits"]["test"]


def test_every_line_gets_a_tree_over_its_words(launch, parser: Path, tmp_path: Path) -> None:
    lines = ["The cat sat .", "", "(a) b\u00a0c \x85 語 <s>", "\t", "word " * 100, "\u2028", "x\r", "last"]
    (tmp_path / "in").write_bytes("\n".join(lines).encode())
    out, pictures = tmp_path / "out", tmp_path / "pictures"
    done = launch("parse", parser, "--input", tmp_path / "in", "--output", out, "--pictures", pictures, "--beam", 3)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    found = out.read_bytes().decode().split("\n")
    assert found.pop() == ""
    assert [words(parse(tree)) if tree else [] for tree in found] == [split_words(line) for line in lines]
    drawn = sorted(path.name for path in pictures.iterdir())
    assert drawn == [f"{n:06}.svg" for n in (1, 3, 5, 6, 7, 8)]
    for path in pictures.iterdir():
        ElementTree.parse(path)


def test_requests_that_cannot_work_are_one_sentence(parser: Path, tmp_path: Path, capsys) -> None:
    broken, good = tmp_path / "broken", tmp_path / "good"
    broken.write_text("(S (NN a)\n")
    good.write_text("(S (NN a))\n")
    for arguments, sentence in (
        (("brackets", "--gold", good, "--test", broken), "line 1, column 1: this bracket is never closed"),
        (("brackets", "--gold", good, "--test", good, "--parameters", good), "there is no parameter '(S'"),
        (("brackets", "--gold", good, "--test", tmp_path / "none"), "cannot be read"),
        (("brackets", "--gold", good), "needs --test"),
        (("compare", parser, parser), "no BLEU to compare"),
        (("parse", parser, "--pictures", good), "Pictures cannot be written"),
        (("parse", tmp_path), "is not a run directory"),
    ):
        assert main([str(word) for word in arguments]) == 2
        complaint = capsys.readouterr().err
        assert sentence in complaint
        assert complaint.count("\n") == 1


def test_unequal_sentences_are_counted_not_refused(tmp_path: Path, capsys) -> None:
    gold, test = tmp_path / "gold", tmp_path / "test"
    gold.write_text("(S (NN a))\n" * 14)
    test.write_text("(S (NN a))\n\n" + "(S (NN b))\n" * 12)
    assert main(["brackets", "--gold", str(gold), "--test", str(test), "--sentences"]) == 0
    said = capsys.readouterr()
    assert "Number of Error sentence  =     12\nNumber of Skip  sentence  =      1\n" in said.out
    assert "EVALB stops here (MAX_ERROR 10)" in said.err
