"""The sweep of the lineage is one of equals: as large as base where nothing else is said, on its data and budget."""

from pathlib import Path

from t2t_jax import model, trajectory
from t2t_jax.experiment_file import load_sweep
from t2t_jax.training.state import abstract_params, count_parameters

ROOT = Path(__file__).parents[2]
SMALLER = {"grouped-query", "multi-query", "together"}
LARGER = {"mixture of experts"}


def test_rows_are_as_large_as_base_where_the_file_says_so() -> None:
    sweep = load_sweep(ROOT / "experiments" / "lineage.py")
    modules = {name: model.build(experiment.model, 6000) for name, experiment in sweep.items()}
    counts = {name: count_parameters(abstract_params(module), module) for name, module in modules.items()}
    ratio = {name: count / counts["base"] for name, count in counts.items()}
    assert {name for name in sweep if ratio[name] < 0.95} == SMALLER
    assert {name for name in sweep if ratio[name] > 1.05} == LARGER
    assert round(ratio["grouped-query"], 2) == 0.86 and round(ratio["multi-query"], 2) == 0.83
    assert round(ratio["mixture of experts"], 2) == 1.25


def test_base_is_that_of_the_small_ablations_and_all_share_its_data_and_steps() -> None:
    ablations, sweep = (load_sweep(ROOT / "experiments" / f"{name}.py") for name in ("ablations_small", "lineage"))
    assert next(iter(sweep)) == "base"
    assert trajectory.config_hash(sweep["base"]) == trajectory.config_hash(ablations["base"])
    base = sweep["base"]
    for experiment in sweep.values():
        assert (experiment.data, experiment.decoding, experiment.evaluation) == (
            base.data,
            base.decoding,
            base.evaluation,
        )
        assert experiment.training.num_steps == base.training.num_steps
        assert experiment.optimizer.peak_learning_rate == base.optimizer.peak_learning_rate


def test_blockwise_trains_what_the_row_without_attention_dropout_trains() -> None:
    sweep = load_sweep(ROOT / "experiments" / "lineage.py")
    assert trajectory.config_hash(sweep["blockwise"]) == trajectory.config_hash(sweep["attention dropout=0"])
    assert sweep["blockwise"] != sweep["attention dropout=0"]
