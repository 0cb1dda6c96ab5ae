import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax import config_fields, run_directory, trajectory
from t2t_jax.config import Experiment
from t2t_jax.errors import ConfigError, RunError
from t2t_jax.run_lock import locked
from t2t_jax.seal import seal
from t2t_jax.sweeps import rows, variants

BASE = Experiment()
TABLE = variants.rows(BASE, {"base": {}, "A h=1": {"num_heads": 1}, "dropout 0 %": {"dropout": 0.0}})


@pytest.fixture
def sweep(tmp_path: Path) -> rows.Sweep:
    planned = rows.plan_rows("table", tmp_path / "table", TABLE, seeds=2)
    rows.save(planned)
    return planned


def test_a_run_for_each_row_and_seed_is_read_back_as_it_was_planned(sweep: rows.Sweep) -> None:
    assert [(row.name, row.seed) for row in sweep.rows] == [(name, seed) for name in TABLE for seed in (1, 2)]
    assert len({row.directory for row in sweep.rows}) == 6
    assert sweep.rows[2].directory.name == f"A-h-1-{trajectory.config_hash(TABLE['A h=1'])}"
    assert rows.load(sweep.directory) == sweep


@given(st.lists(st.text("aé_.-/ %", min_size=1), min_size=1, max_size=3, unique=True))
def test_folders_lie_inside_whatever_rows_are_called(names: list[str]) -> None:
    table = {name: {"dropout": place / 10} for place, name in enumerate(names)}
    planned = None
    with contextlib.suppress(ConfigError):  # names that would make one folder, or none
        planned = rows.plan_rows("any", Path("sweeps/any"), variants.rows(BASE, table))
    folders = [row.directory for row in planned.rows] if planned else []
    assert len(set(folders)) == len(folders) == (len(names) if planned else 0)
    assert all(folder.parent == Path("sweeps/any") and not folder.name.startswith(".") for folder in folders)
    assert planned or any(not re.search(r"\w", name) for name in names) or len(names) > 1


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"a": {}, "b": {"dropout": 0.1}}, r"The rows 'a' and 'b' are the same experiment \(seed 1, config hash \w+\)"),
        ({"a": {}, "b": {"d_k": 64, "d_v": 64}}, "The rows 'a' and 'b' are the same experiment"),
        ({"a": {}, "b": {"seed": 2}}, r"The rows 'a' and 'b' are the same experiment \(seed 2"),
        ({"h=1": {}, "h 1": {"num_heads": 1}}, "The rows 'h=1' and 'h 1' would share the folder 'h-1'"),
        ({"%": {}}, "The row '%' needs a letter or a digit in its name"),
    ],
)
def test_two_rows_that_are_one_are_refused(table: dict, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=sentence):
        rows.plan_rows("table", tmp_path, variants.rows(BASE, table), seeds=2)


def test_rows_may_differ_in_scoring_alone(tmp_path: Path) -> None:
    planned = rows.plan_rows("beams", tmp_path, variants.product(BASE, beam_size=[1, 4]))
    assert len({row.config_hash for row in planned.rows}) == 1
    assert len({row.directory for row in planned.rows}) == 2


def test_runs_share_prepared_data_exactly_if_it_is_the_same(tmp_path: Path) -> None:
    table = {"base": {}, "other model": {"num_layers": 2}, "other batches": {"source_tokens_per_batch": 9000}}
    others = {"other text": {"vocabulary_size": 500}, "other tokenizer": {"initialise_from": "runs/x"}}
    planned = rows.plan_rows("table", tmp_path, variants.rows(BASE, table | others))
    stores = [Path(rows.experiment_to_run(row).data.store or "") for row in planned.rows]
    assert len(set(stores[:3])) == 1
    assert len(set(stores)) == 3
    assert {store.parent for store in stores} == {tmp_path / rows.STORES}
    own = rows.plan_rows("own", tmp_path, {"base": variants.vary(BASE, {"store": "elsewhere"})})
    assert rows.experiment_to_run(own.rows[0]).data.store == "elsewhere"


def damage(change: Callable[[dict], object]) -> Callable[[str], str]:
    def apply(text: str) -> str:
        content = json.loads(text)
        change(content)
        return json.dumps(content)

    return apply


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda text: text[:-9], "cannot be used"),
        (lambda text: "[]", "cannot be used"),
        (damage(lambda c: c.update(format=2)), "written by another version"),
        (damage(lambda c: c.update(runs=[])), "no name or no rows"),
        (damage(lambda c: c["runs"][0].update(run="../elsewhere")), "not the name of a folder"),
        (damage(lambda c: c["runs"][0].update(run=".hidden")), "not the name of a folder"),
        (damage(lambda c: c["runs"][0].update(seed=7)), "another seed than its config"),
        (damage(lambda c: c["runs"][0]["config"]["model"].update(d_ff=8)), "has not the hash"),
        (damage(lambda c: c["runs"][0]["config"]["model"].update(d_fff=8)), "Did you mean 'd_ff'"),
        (damage(lambda c: c["runs"][0].pop("config")), "cannot be used"),
    ],
)
def test_a_damaged_sweep_is_one_sentence(sweep: rows.Sweep, spoil: Callable[[str], str], sentence: str) -> None:
    path = sweep.directory / rows.SWEEP
    path.write_text(spoil(path.read_text()))
    with pytest.raises(RunError, match=sentence):
        rows.load(sweep.directory)


def test_a_run_is_what_its_directory_says(sweep: rows.Sweep) -> None:
    row = sweep.rows[0]
    assert rows.state(row) == rows.State("not begun")
    checkpoint = row.directory / run_directory.CHECKPOINTS / "40"
    checkpoint.mkdir(parents=True)
    seal(checkpoint)
    (row.directory / run_directory.CONFIG).write_text(config_fields.to_json(rows.experiment_to_run(row)))
    assert rows.state(row) == rows.State("stopped", 40)

    rows.record_failure(row, "Step 41 gave loss nan", 1)
    assert rows.state(row) == rows.State("failed", 40, "Step 41 gave loss nan", 1)
    with locked(row.directory):
        assert (found := rows.state(row)).kind == "running" and found.reason and found.reason.startswith("process ")
    rows.forget_outcome(row)
    assert rows.state(row) == rows.State("stopped", 40)

    report = {"config_hash": row.config_hash, "steps": row.experiment.training.num_steps}
    (row.directory / run_directory.REPORT).write_text(json.dumps(report))
    assert rows.state(row) == rows.State("done", 100_000)


@pytest.mark.parametrize("change", [{"num_steps": 200_000}, {"beam_size": 1}, {"average_last": 1}])
def test_a_row_that_asks_for_more_than_its_report_is_not_done(change: dict, sweep: rows.Sweep) -> None:
    first = sweep.rows[0]
    first.directory.mkdir()
    (first.directory / run_directory.CONFIG).write_text(config_fields.to_json(first.experiment))
    report = {"config_hash": first.config_hash, "steps": first.experiment.training.num_steps}
    (first.directory / run_directory.REPORT).write_text(json.dumps(report))
    assert rows.state(first).kind == "done"
    (changed,) = rows.plan_rows("table", sweep.directory, {"base": variants.vary(BASE, change)}).rows
    assert changed.directory == first.directory
    assert rows.state(changed).kind == "not begun"
    elsewhere = {"directory": "/other/place", "log_every": 7, "data.store": "there", "mesh.fsdp": 2}
    (moved,) = rows.plan_rows("table", sweep.directory, {"base": variants.vary(BASE, elsewhere)}).rows
    assert rows.state(moved).kind == "done"
