import numpy as np

from t2t_jax.config import Data
from t2t_jax.data.cleaning import fitting, look_reversed, none_dropped, usable


def test_each_pair_is_dropped_for_one_reason() -> None:
    data = Data(max_length=8, max_length_ratio=2.0, drop_identical=True)
    dropped = none_dropped(data)
    pairs = [(None, ""), ("", "b"), (" a ", "a"), ("a", "b"), ("a", "A")]
    assert usable(data, pairs, dropped) == [("a", "b"), ("a", "A")]
    source, target = np.array([[8, 9, 4, 5, 2, 9], [8, 1, 2, 2, 5, 9]])
    assert fitting(data, source, target, dropped).tolist() == [True, False, True, False, False, False]
    assert dropped == {"invalid UTF-8": 1, "empty": 1, "identical sides": 1, "too long": 2, "length ratio": 2}


def test_filters_that_are_off_drop_nothing_and_count_nothing() -> None:
    data = Data()
    dropped = none_dropped(data)
    assert usable(data, [("a", "a")], dropped) == [("a", "a")]
    assert fitting(data, np.array([2]), np.array([200]), dropped).all()
    assert dropped == {"invalid UTF-8": 0, "empty": 0, "too long": 0}


def test_swapped_text_is_told_by_its_words() -> None:
    train = [("the house of 1999 .", "das Haus von 1999 ."), ("a tree", "ein Baum")]
    held_out = [("the tree .", "das Haus 1999")]
    assert not look_reversed(train, held_out)
    assert look_reversed(train, [pair[::-1] for pair in held_out])
    assert not look_reversed(train, [("1999 .", "1999 ."), (None, "x")]), "what both sides have tells nothing"
