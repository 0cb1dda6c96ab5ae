"""What the two tasks make of a decoder's text."""

from t2t_jax.config import Data, Experiment
from t2t_jax.evaluation.tasks import Parsing, Translation, task_of


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
