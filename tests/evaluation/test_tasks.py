"""What the tasks make of a decoder's text."""

from t2t_jax.config import Data, Experiment
from t2t_jax.evaluation.tasks import Parsing, TextToText, Translation, task_of


def test_translation() -> None:
    task = task_of(Experiment())
    assert isinstance(task, Translation)
    assert task.answer("a", "b c") == "b c"
    scores = task.score(["x"] * 2, ["one two three four", "five"], ["one two three four", "five"])
    assert scores.headline()["bleu"] == 100
    assert list(scores.as_json()["bleu"]) == ["13a", "intl", "paper"]


def test_parsing() -> None:
    task = task_of(Experiment(data=Data(task="parsing")))
    assert isinstance(task, Parsing)
    assert task.answer("a (b)", "(S NN NN )S") == "(S (NN a) (NN -LRB-b-RRB-))"
    assert task.answer("a b", "") == "(TOP (XX a) (XX b))"
    assert task.answer(" ", "(S NN )S") == ""
    gold = ["(S (NP NN )NP (VP VB )VP )S", "(S (NP NN )NP )S", ""]
    scores = task.score(["a b", "c", ""], [gold[0], "(S (NP NN", "(S NN"], gold)
    assert scores.headline()["f1"] == 100
    assert (scores.mended, scores.edits) == (1, 2)
    found = scores.as_json()
    assert (found["sentences"], found["skipped"], found["f1_up_to_40"]) == (3, 1, 100)


def test_several_tasks_are_scored_each_by_its_own() -> None:
    task = task_of(Experiment(data=Data(task="text_to_text")))
    assert isinstance(task, TextToText)
    assert task.answer("parse: a b", "(S NN NN )S") == "(S (NN a) (NN b))"
    assert task.answer("translate de en: parse: a", "x") == "x"
    words, tree = "one two three four", "(S (NP NN )NP )S"
    sources = [f"translate en de: {words}", "parse: a", f"translate de en: {words}", "parse: b"]
    scores = task.score(sources, [words, tree, "five", "(S (NP NN"], [words, tree, words, tree])
    found = scores.headline()["tasks"]
    assert [found[name]["bleu"] for name in ("translate en de", "translate de en")] == [100, 0]
    assert found["parse"]["f1"] == 100
    assert scores.headline()["bleu"] == 100
    assert scores.as_json()["tasks"]["parse"]["mended"] == 1


def test_nothing_is_to_be_written_of_a_language() -> None:
    assert task_of(Experiment(data=Data(task="language_model"))) is None
