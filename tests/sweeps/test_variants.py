import pytest

from t2t_jax.config import Experiment, Model
from t2t_jax.errors import ConfigError
from t2t_jax.sweeps import variants

BASE = Experiment()


def test_fields_are_changed_together_by_full_or_last_name() -> None:
    varied = variants.vary(BASE, {"model.num_heads": 7, "d_model": 14, "name": "seven", "label_smoothing": 0.0})
    assert varied.model == Model(num_heads=7, d_model=14), "neither value goes with the base's other one"
    assert (varied.name, varied.training.label_smoothing) == ("seven", 0.0)
    assert Experiment() == BASE


def test_products_and_zips_name_their_rows() -> None:
    rows = variants.product(BASE, num_heads=[4, 8], d_k=[16, 32])
    assert list(rows) == ["num_heads=4 d_k=16", "num_heads=4 d_k=32", "num_heads=8 d_k=16", "num_heads=8 d_k=32"]
    assert [(row.model.num_heads, row.model.d_k) for row in rows.values()] == [(4, 16), (4, 32), (8, 16), (8, 32)]
    pairs = variants.zipped(BASE, **{"model.num_heads": [1, 4], "model.dropout": [0.0, 0.2]})
    assert list(pairs) == ["num_heads=1 dropout=0.0", "num_heads=4 dropout=0.2"]
    assert pairs["num_heads=4 dropout=0.2"].model == Model(num_heads=4, dropout=0.2)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_headz": 4}, "The row 'x': There is no field 'num_headz'. Did you mean 'num_heads'?"),
        ({"model.num_headz": 4}, "The row 'x': There is no field 'model.num_headz'. Did you mean 'model.num_heads'?"),
        ({"num_heads": 7}, "The row 'x': model: d_model=512 is not divisible by num_heads=7"),
        ({"dropout": "much"}, "The row 'x': model: dropout='much' must be a finite number"),
        ({"positions": "learned", "max_positions": 100}, "The row 'x': model: max_positions=100 is shorter"),
    ],
)
def test_a_mistake_names_the_row(changes: dict, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        variants.rows(BASE, {"fine": {}, "x": changes})
    assert str(caught.value).startswith(sentence)


def test_zips_need_as_many_values_of_each() -> None:
    with pytest.raises(ConfigError, match="as many values of each field, not {'num_heads': 2, 'd_k': 1}"):
        variants.zipped(BASE, num_heads=[1, 4], d_k=[16])
