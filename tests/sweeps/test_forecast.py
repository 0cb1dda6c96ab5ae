"""What `sweep --dry-run` says, and mistakes in a sweep file, all without data or training."""

import json
from pathlib import Path

import pytest

from t2t_jax import command_line
from t2t_jax.experiment_file import load_sweep
from t2t_jax.planning.shapes import assume
from t2t_jax.sweeps import rows
from t2t_jax.training.flops import step_flops

# As the paper's rows have them with 37,000 entries, counted by hand.
COUNTS = {
    "base": 63_045_632,
    "A h=1": 63_045_632,
    "A h=4": 63_045_632,
    "A h=16": 63_045_632,
    "A h=32": 63_045_632,
    "B d_k=16": 55_967_744,
    "B d_k=32": 58_327_040,
    "C N=2": 33_644_544,
    "C N=4": 48_345_088,
    "C N=8": 77_746_176,
    "C d_model=256": 26_816_512,
    "C d_model=1024": 163_815_424,
    "C d_ff=1024": 50_450_432,
    "C d_ff=4096": 88_236_032,
    "D P_drop=0.0": 63_045_632,
    "D P_drop=0.2": 63_045_632,
    "D eps_ls=0.0": 63_045_632,
    "D eps_ls=0.2": 63_045_632,
    "E learned positions": 63_045_632 + 256 * 512,
    "big": 214_171_648,
}


def dry_run(capsys, *arguments: object) -> dict:
    assert command_line.main(["sweep", *map(str, arguments), "--dry-run", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_table_3_is_the_papers(capsys, tmp_path: Path) -> None:
    found = dry_run(capsys, "experiments/table3.py", "--workdir", tmp_path / "none")["rows"]
    assert {row["row"]: row["parameters"] for row in found} == COUNTS
    assert [row["row"] for row in found] == list(COUNTS)
    assert len({row["config_hash"] for row in found}) == 20
    by_name = {row["row"]: row for row in found}
    assert by_name["base"]["differs"] == {}
    assert by_name["B d_k=16"]["differs"] == {"model.d_k": 16}
    assert by_name["D eps_ls=0.2"]["differs"] == {"training.label_smoothing": 0.2}
    assert by_name["C d_ff=4096"]["parameters_millions"] == 88.2
    assert all(row["shapes_assumed"] and row["state"] == "not begun" for row in found)
    assert not (tmp_path / "none").exists()
    for experiment in load_sweep("experiments/table3.py").values():
        assert experiment.evaluation.splits == ("validation",) and experiment.training.average_last == 1
        assert experiment.model.value_width == 64 or experiment.model.key_width == experiment.model.value_width

    # FLOPs are those of 100,000 mean steps.
    base = load_sweep("experiments/table3.py")["base"]
    batches = assume(base.data, base.training.seed)
    each = [n * step_flops(base.model, 37_000, shape) for shape, n in zip(batches.shapes, batches.batches, strict=True)]
    assert by_name["base"]["training_flops"] == pytest.approx(100_000 * sum(each) / sum(batches.batches))


def test_the_table_for_people_says_what_is_assumed(capsys) -> None:
    assert command_line.main(["sweep", "experiments/ablations_small.py", "--dry-run", "--seeds", "2"]) == 0
    told = capsys.readouterr().out
    assert "shapes assumed" in told
    assert "h=2 (seed 2)" in told and "num_heads=2" in told


def test_overrides_reach_every_row_and_a_changed_config_is_a_new_row(capsys, tmp_path: Path) -> None:
    plain = dry_run(capsys, "experiments/ablations_small.py")["rows"]
    options = ["--data.directory", tmp_path, "--training.num_steps", 7, "--data.no-byte-fallback"]
    moved = dry_run(capsys, "experiments/ablations_small.py", *options[:4])["rows"]
    assert [row["run"] for row in moved] == [row["run"] for row in plain], "neither is of the trajectory"
    changed = dry_run(capsys, "experiments/ablations_small.py", *options)["rows"]
    assert not {row["run"] for row in changed} & {row["run"] for row in plain}
    assert [row["differs"] for row in changed] == [row["differs"] for row in plain]


SWEEP = """
from t2t_jax.config import Experiment, Model
from t2t_jax.sweeps import variants
def get_sweep():
    return {}
"""


@pytest.mark.parametrize(
    ("returned", "options", "sentence"),
    [
        ("{'a': Experiment(), 'b': Experiment()}", [], "The rows 'a' and 'b' are the same experiment"),
        ("variants.product(Experiment(), num_heads=[4, 8])", ["--model.num-heads", "2"], "'num_heads=8' are the same"),
        ("variants.product(Experiment(), num_heads=[4, 8])", ["--model.num-heads", "8"], "'num_heads=8' are the same"),
        ("variants.product(Experiment(), d_model=[512, 64])", ["--model.num-heads", "128"], "The row 'd_model=64': "),
        ("variants.product(Experiment(), num_head=[4, 8])", [], "The row 'num_head=4': There is no field 'num_head'"),
        ("{'a': Experiment(model=Model(d_mdel=3))}", [], "line 5: Model has no field 'd_mdel'. Did you mean 'd_model'"),
        ("{}", [], "must return a dict of at least one row"),
        ("{'a': Model()}", [], "the row 'a' must be a t2t_jax.config.Experiment"),
        ("{'a': Experiment()}", ["--jobs", "0"], "--jobs 0 must be at least 1"),
        ("{'a': Experiment()}", ["--seeds", "0"], "--seeds 0 must be at least 1"),
        ("{'a': Experiment()}", ["--data.directry", "x"], "Did you mean '--data.directory'"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    returned: str, options: list[str], sentence: str, tmp_path: Path, capsys
) -> None:
    file = tmp_path / "sweep.py"
    file.write_text(SWEEP.replace("{}", returned))
    assert command_line.main(["sweep", str(file), "--workdir", str(tmp_path / "runs"), *options]) == 2
    told = capsys.readouterr()
    assert sentence in told.err and told.err.count("\n") == 1 and told.out == ""
    assert not (tmp_path / "runs").exists()


def test_each_verb_says_whose_file_it_is(tmp_path: Path, capsys) -> None:
    assert command_line.main(["train", "experiments/table3.py"]) == 2
    assert "defines no get_config() but get_sweep(), so `sweep` takes it." in capsys.readouterr().err
    assert command_line.main(["sweep", "experiments/quickstart.py"]) == 2
    assert "defines no get_sweep() but get_config()" in capsys.readouterr().err
    (tmp_path / "mine.txt").touch()
    assert command_line.main(["sweep", "experiments/ablations_small.py", "--workdir", str(tmp_path)]) == 2
    assert "holds something else than a sweep" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_only_a_run_of_the_sweep_is_trained_and_a_sweep_without_text_leaves_nothing(tmp_path: Path, capsys) -> None:
    runs = tmp_path / "runs"
    assert command_line.main(["train-row", str(tmp_path), "base-000000000000"]) == 2
    assert "is not the directory of a sweep" in capsys.readouterr().err
    words = ["sweep", "experiments/ablations_small.py", "--workdir", str(runs), "--data.directory", str(tmp_path)]
    assert command_line.main(words) == 2
    assert "train.en" in capsys.readouterr().err
    assert not runs.exists()
    for name in ("train", "val", "test_2016_flickr"):
        (tmp_path / f"{name}.en").write_text("One.\nTwo.\n")
        (tmp_path / f"{name}.de").write_text("Eins.\n")
    for _ in range(2):  # what is left of the first attempt does not stop the second
        assert command_line.main(words) == 2
        told = capsys.readouterr().err
        assert "validation text: val.en has 2 lines but val.de has 1" in told
    assert not (runs / rows.SWEEP).exists()
    rows.save(rows.plan_rows("table", runs, load_sweep("experiments/table2.py")))
    for folder in ("base-000000000000", ".."):
        assert command_line.main(["train-row", str(runs), folder]) == 2
        assert "has no run" in capsys.readouterr().err
    assert command_line.main(words) == 2
    assert "holds the sweep 'table', not 'ablations_small'" in capsys.readouterr().err
