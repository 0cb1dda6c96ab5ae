import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax import config_fields, trajectory
from t2t_jax.config import Data, Evaluation, Experiment, Mesh, Model, Optimizer, Training
from t2t_jax.errors import ConfigError
from t2t_jax.experiment_file import load_experiment, load_sweep

FILES = sorted(p for p in (Path(__file__).parents[1] / "experiments").glob("*.py") if p.stem != "__init__")
EXPERIMENTS = [path for path in FILES if "def get_config(" in path.read_text()]
SWEEPS = [path for path in FILES if path not in EXPERIMENTS]


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.stem)
def test_shipped_experiment_loads_and_survives_json(path: Path) -> None:
    experiment = load_experiment(path)
    assert experiment.name == path.stem
    assert config_fields.from_json(config_fields.to_json(experiment)) == experiment


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.stem)
def test_shipped_experiment_opens_with_its_command_and_hardware(path: Path) -> None:
    text = path.read_text()
    assert f"python launch.py train experiments/{path.name}" in text
    assert "Hardware" in text
    task = load_experiment(path).data.task
    measures = {"parsing": "F1", "digits": "accuracy", "language_model": "perplexity"}
    measures["masked_language_model"] = "perplexity"
    assert measures.get(task, "BLEU") in text


@pytest.mark.parametrize("path", SWEEPS, ids=lambda p: p.stem)
def test_shipped_sweep_loads_and_opens_with_its_command_and_hardware(path: Path) -> None:
    assert load_sweep(path)
    text = path.read_text()
    assert f"python launch.py sweep experiments/{path.name}" in text
    assert "Hardware" in text


@pytest.mark.parametrize(
    ("name", "steps", "d_model", "dropout", "average", "vocabulary"),
    [
        ("wmt14_ende_base", 100_000, 512, 0.1, 5, 37_000),
        ("wmt14_ende_big", 300_000, 1024, 0.3, 20, 37_000),
        ("wmt14_enfr_base", 100_000, 512, 0.1, 5, 32_000),
        ("wmt14_enfr_big", 300_000, 1024, 0.1, 20, 32_000),
    ],
)
def test_wmt_experiments_are_the_papers_recipe(
    name: str, steps: int, d_model: int, dropout: float, average: int, vocabulary: int
) -> None:
    experiment = load_experiment(next(p for p in EXPERIMENTS if p.stem == name))
    model, training, optimizer = experiment.model, experiment.training, experiment.optimizer
    assert (model.num_layers, model.d_model, model.d_ff, model.key_width) == (6, d_model, 4 * d_model, 64)
    assert (model.dropout, model.attention_dropout, model.norm) == (dropout, dropout, "post")
    assert (training.num_steps, training.average_last, training.label_smoothing) == (steps, average, 0.1)
    assert (optimizer.warmup_steps, optimizer.beta2, optimizer.epsilon) == (4000, 0.98, 1e-9)
    assert experiment.data.vocabulary_size == vocabulary
    assert (experiment.data.source_tokens_per_batch, experiment.data.target_tokens_per_batch) == (25_000, 25_000)
    assert (experiment.decoding.beam_size, experiment.decoding.alpha, experiment.decoding.extra_length) == (4, 0.6, 50)


@pytest.mark.parametrize(
    ("name", "vocabulary", "extra"), [("parsing_wsj", 16_000, None), ("parsing_semisupervised", 32_000, "parsed")]
)
def test_parsing_experiments_are_the_papers_recipe(name: str, vocabulary: int, extra: str | None) -> None:
    experiment = load_experiment(next(p for p in EXPERIMENTS if p.stem == name))
    model, data, decoding = experiment.model, experiment.data, experiment.decoding
    assert (model.num_layers, model.d_model, model.norm) == (4, 1024, "post")
    assert (data.task, data.vocabulary_size, data.extra_train) == ("parsing", vocabulary, extra)
    assert (decoding.beam_size, decoding.alpha, decoding.extra_length) == (21, 0.3, 300)


@given(
    layers=st.integers(1, 12),
    heads=st.sampled_from([1, 2, 4, 8]),
    dropout=st.floats(0, 0.99),
    rate=st.none() | st.floats(1e-6, 10),
    splits=st.lists(st.sampled_from(["validation", "test"]), min_size=1, unique=True).map(tuple),
)
def test_json_round_trip_is_exact(layers: int, heads: int, dropout: float, rate: float | None, splits: tuple) -> None:
    experiment = Experiment(
        model=Model(num_layers=layers, num_heads=heads, dropout=dropout),
        optimizer=Optimizer(peak_learning_rate=rate),
        evaluation=Evaluation(splits=splits),
    )
    assert config_fields.from_json(config_fields.to_json(experiment)) == experiment


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: Model(num_heads=7), r"d_model=512 is not divisible by num_heads=7.*d_k and d_v"),
        (lambda: Model(num_layers=0), r"num_layers=0 must be greater than 0"),
        (lambda: Model(dropout=1.0), r"dropout=1.0 must be at least 0 and below 1"),
        (lambda: Model(norm="both"), r"norm='both' must be 'post' or 'pre'"),  # type: ignore[arg-type]
        (lambda: Model(d_ff="2048"), r"d_ff='2048' must be an integer"),  # type: ignore[arg-type]
        (lambda: Model(num_layers=True), r"num_layers=True must be an integer"),
        (lambda: Data(target_tokens_per_batch=100), r"target_tokens_per_batch=100 cannot hold.*max_length=256"),
        (lambda: Data(source_language="de"), r"both 'de'"),
        (lambda: Optimizer(learning_rate_factor=1.0, peak_learning_rate=1e-3), r"both set the height"),
        (lambda: Training(average_last=9), r"average_last=9.*keep_checkpoints=5"),
        (lambda: Training(seed=-1), r"seed=-1"),
        (lambda: Optimizer(peak_learning_rate=float("inf")), r"peak_learning_rate=inf must be a finite number"),
        (
            lambda: Experiment(data=Data(tokenizer_from="a"), training=Training(initialise_from="b")),
            r"leave out data.tokenizer_from='a'",
        ),
        (lambda: Mesh(data=-1, fsdp=-1), r"only one axis can be -1"),
        (lambda: Mesh(tensor=0), r"tensor=0 must be at least 1"),
        (lambda: Experiment(name="../up"), r"name='../up'"),
        (lambda: Evaluation(splits=()), r"splits is empty"),
        (lambda: Experiment(model=Model(positions="learned", max_positions=8)), r"max_positions=8 is shorter"),
    ],
)
def test_impossible_settings_are_named_with_value_and_remedy(build: object, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        build()  # type: ignore[operator]


def test_head_widths_may_be_given_apart_from_d_model() -> None:
    model = Model(num_heads=7, d_k=10, d_v=20)
    assert (model.key_width, model.value_width) == (10, 20)
    assert dataclasses.replace(Model(), num_heads=16).key_width == 32, "derived widths follow the heads"


def test_misspelt_field_names_the_nearest(tmp_path: Path) -> None:
    text = config_fields.to_json(Experiment()).replace('"num_layers"', '"num_layer"')
    with pytest.raises(ConfigError, match=r"unknown field 'model.num_layer'. Did you mean 'num_layers'"):
        config_fields.from_json(text)
    file = tmp_path / "e.py"
    file.write_text("from t2t_jax.config import *\ndef get_config():\n    return Experiment(model=Model(d_mdel=8))\n")
    with pytest.raises(ConfigError, match=r"Model has no field 'd_mdel'. Did you mean 'd_model'"):
        load_experiment(file)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def get_config(:\n", r"line 1"),
        ("x = 1\n", r"defines no get_config"),
        ("import nothing_of_that_name\n", r"line 1: ModuleNotFoundError: .*nothing_of_that_name"),
        ("def get_config():\n    return 1 / 0\n", r"line 2: ZeroDivisionError"),
        ("def get_config():\n    return 3\n", r"must return a t2t_jax.config.Experiment, not 3"),
    ],
)
def test_unusable_experiment_file_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "e.py"
    file.write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        load_experiment(file)


@pytest.mark.parametrize("text", ["", "[]", '{"model": 3}', '{"model": {"d_ff": 1.5}}', '{"name": null}'])
def test_damaged_json_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        config_fields.from_json(text)


def test_hash_covers_the_trajectory_and_nothing_else() -> None:
    base = Experiment()
    same = dataclasses.replace(
        base,
        name="other",
        mesh=Mesh(fsdp=2),
        training=dataclasses.replace(base.training, num_steps=7, log_every=3, keep_checkpoints=9),
        decoding=dataclasses.replace(base.decoding, beam_size=1),
    )
    assert trajectory.config_hash(same) == trajectory.config_hash(base)
    for alike in (
        dataclasses.replace(base, model=Model(d_k=64, d_v=64)),
        dataclasses.replace(base, model=Model(num_kv_heads=8)),
        dataclasses.replace(base, optimizer=Optimizer(learning_rate_factor=1)),
        dataclasses.replace(base, optimizer=Optimizer(learning_rate_factor=1.0)),
    ):
        assert trajectory.config_hash(alike) == trajectory.config_hash(base), "the same thing said otherwise"
    for changed in (
        dataclasses.replace(base, model=Model(d_ff=1024)),
        dataclasses.replace(base, training=Training(seed=2)),
        dataclasses.replace(base, training=Training(accumulation=2)),
        dataclasses.replace(base, training=Training(compute_dtype="bfloat16")),
        dataclasses.replace(base, optimizer=Optimizer(warmup_steps=1)),
        dataclasses.replace(base, data=Data(vocabulary_size=1000)),
    ):
        assert trajectory.config_hash(changed) != trajectory.config_hash(base)


def test_the_hash_of_a_published_run_stays() -> None:
    """docs/reproduction.md lists it; fields that are added later must not change it."""
    assert (
        trajectory.config_hash(load_experiment(Path(__file__).parents[1] / "experiments" / "quickstart.py"))
        == "a49d361ffb5c"
    )
