"""A sweep's rows in turns: what base has beside itself, rows without a search, the table."""

import json

import pytest

from benchmarks import sweep_rows
from t2t_jax.config import Data, Experiment, Model
from t2t_jax.data.batching import Shape

SMALL = Model(num_layers=1, d_model=8, d_ff=8, num_heads=2)
DATA = Data(vocabulary_size=40, tokenizer="whitespace", max_length=16)


def experiment(**changes: object) -> Experiment:
    return Experiment(model=Model(**(vars(SMALL) | changes)), data=DATA)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    rows = {"other": experiment(norm="pre"), "base": experiment(), "LSTM": experiment(family="recurrent")}
    return sweep_rows.measure(rows, Shape(4, 5, 2), rounds=2)


def test_base_is_once_itself(found) -> None:
    base = found["rows"][1]
    for way in sweep_rows.WAYS:
        assert (base[way]["least"], base[way]["ratio"], base[way]["most"]) == (1, 1, 1)
        for row in found["rows"]:
            assert 0 < row[way]["least"] <= row[way]["ratio"] <= row[way]["most"]


def test_what_has_no_search_has_none(found) -> None:
    silent = Experiment(model=Model(**(vars(SMALL) | {"family": "encoder"})), data=Data(
        vocabulary_size=40, max_length=16, task="masked_language_model"))  # fmt: skip
    assert sweep_rows.search_step(silent, Shape(4, 4, 2)) is None
    rows = [row | {"decoding": None} for row in found["rows"]]
    assert [line[4:] for line in sweep_rows.cells(found | {"rows": rows}).rows] == [["–"] * 3] * 3


def test_table_and_page_have_every_row(found) -> None:
    assert json.loads(json.dumps(found)) == found
    page, table = sweep_rows.html(found), sweep_rows.table(found)
    for name in ("other", "base", "LSTM"):
        assert f"{name}</th>" in page and f"\n{name}" in table
    assert "× base" in table
