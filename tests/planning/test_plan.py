"""Whole plans: the real step of a small model, compiled for accelerators that are not here."""

import dataclasses
import json
import re

import pytest

from t2t_jax import command_line, config
from t2t_jax.data.batching import Shape
from t2t_jax.errors import ConfigError, UserError
from t2t_jax.parallel.platform import installed
from t2t_jax.planning import table
from t2t_jax.planning.compiled_text import by_kind
from t2t_jax.planning.plan import DoesNotFit, Planner, StepPlan, _needed, compared
from t2t_jax.planning.shapes import Workload
from t2t_jax.planning.topologies import parse
from t2t_jax.training.flops import step_flops

SHAPE = Shape(16, 16, 30)
EXPERIMENT = config.Experiment(
    name="small",
    model=config.Model(num_layers=1, d_model=128, d_ff=256, num_heads=8),
    data=config.Data(vocabulary_size=1024),
    training=config.Training(compute_dtype="bfloat16"),
)
WORKLOAD = Workload((SHAPE,), (10,), 400.0, 400.0, 1024, None)
PARAMETERS = 1024 * 128 + 3 * 4 * 128 * 128 + 2 * 2 * 128 * 256  # embedding, attention and feed-forward matrices

FAMILIES = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(not installed(platform), reason=f"{extra} is not installed: pip install '.[{extra}]'"),
    )
    for name, platform, extra in (("v5e:2x4", "tpu", "tpu"), ("h100:8", "cuda", "gpu"))
]


@pytest.fixture(scope="module")
def plan_of():
    """A function from topology and mesh sizes to the plan of a step; each is compiled once."""
    made: dict[tuple[str, config.Mesh], StepPlan] = {}

    def plan(name: str, sizes: config.Mesh) -> StepPlan:
        if (name, sizes) not in made:
            made[name, sizes] = Planner(EXPERIMENT, parse(name), WORKLOAD).step(sizes, SHAPE)
        return made[name, sizes]

    return plan


def bytes_of(plan: StepPlan, kind: str) -> int:
    return by_kind(plan.collectives).get(kind, (0, 0))[1]


@pytest.mark.parametrize("name", FAMILIES)
def test_data_parallel_steps_only_add_up_gradients(name: str, plan_of) -> None:
    plan = plan_of(name, config.Mesh(8, 1, 1))
    assert set(by_kind(plan.collectives)) == {"all-reduce"}
    # bfloat16 or float32; the embedding's comes in two parts, from the lookup and from the logits
    assert 2 * PARAMETERS < bytes_of(plan, "all-reduce") < 4 * (PARAMETERS + 1024 * 128) * 1.05
    assert {c.group for c in plan.collectives} == {tuple(range(8))}


@pytest.mark.parametrize("name", FAMILIES)
def test_fsdp_steps_gather_parameters_and_scatter_gradients(name: str, plan_of) -> None:
    plan = plan_of(name, config.Mesh(1, 8, 1))
    kinds = by_kind(plan.collectives)
    assert set(kinds) == {"all-gather", "reduce-scatter", "all-reduce"}, "small arrays are added up whole"
    # Once for each use, forward and backward, at most; activations stay where their rows are.
    assert 2 * PARAMETERS < bytes_of(plan, "all-gather") < 2 * 4 * (PARAMETERS + 2 * 1024 * 128)
    # Not an eighth: a TPU pads the shorter rows of such a small model to its tiles.
    assert plan.memory.arguments < 0.6 * plan_of(name, config.Mesh(8, 1, 1)).memory.arguments


@pytest.mark.parametrize("name", FAMILIES)
def test_tensor_parallel_steps_add_up_activations(name: str, plan_of) -> None:
    plan = plan_of(name, config.Mesh(1, 1, 8))
    assert set(by_kind(plan.collectives)) == {"all-reduce"}
    activation = 16 * 30 * 128 * 2
    # Five sub-layers, forward and backward, and what enters them from the logits' and the memory's side.
    assert 10 * activation <= bytes_of(plan, "all-reduce") < 30 * activation
    assert plan.memory.arguments < 0.2 * plan_of(name, config.Mesh(8, 1, 1)).memory.arguments


@pytest.mark.parametrize("name", FAMILIES)
def test_the_compiled_products_are_the_models(name: str, plan_of) -> None:
    plan = plan_of(name, config.Mesh(8, 1, 1))
    assert (plan.rows, plan.dead) == (32, pytest.approx(2 / 32))
    assert plan.model_flops == step_flops(EXPERIMENT.model, 1024, SHAPE)
    compiled = 8 * sum(product.flops for product in plan.products)
    assert compiled == pytest.approx(plan.model_flops * 32 / 30, rel=0.05)
    assert all(product.left == product.right == "bf16" for product in plan.products if product.result == "bf16")
    assert plan.attention.startswith("XLA's own")
    assert 3 * 4 * PARAMETERS < plan.memory.arguments < 3.2 * 4 * PARAMETERS, "weights and Adam's two moments"


@pytest.mark.skipif(not installed("tpu"), reason="tpu is not installed: pip install '.[tpu]'")
def test_what_does_not_fit_is_refused_with_what_does() -> None:
    topology = parse("v5e:2x2")
    enough = Planner(EXPERIMENT, topology, WORKLOAD).step(config.Mesh(4, 1, 1), SHAPE).memory
    small = dataclasses.replace(topology, chip=dataclasses.replace(topology.chip, memory=0.96 * enough.peak))
    with pytest.raises(UserError) as caught:
        Planner(EXPERIMENT, small, WORKLOAD).own_mesh()
    found = re.search(
        r"data=4 fsdp=1 tensor=1 needs .* --mesh.data (\d) --mesh.fsdp (\d) --mesh.tensor (\d)"
        r"(?: --training.accumulation (\d))? fits, with",
        str(caught.value),
    )
    assert found, caught.value
    data, fsdp, tensor, accumulation = (int(n or 1) for n in found.groups())
    assert data * fsdp * tensor == 4
    assert fsdp * tensor * accumulation == 2, "the smallest change there is"
    with pytest.raises(ConfigError, match="cannot be laid over 4 devices"):
        Planner(EXPERIMENT, topology, WORKLOAD).mesh(config.Mesh(8, 1, 1))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_tables_fit_a_terminal(name: str, plan_of) -> None:
    topology = parse(name)
    planner = Planner(EXPERIMENT, topology, WORKLOAD)
    sizes = {"data-parallel": config.Mesh(8, 1, 1), "FSDP": config.Mesh(1, 8, 1)}
    plans = {title: (planner.mesh(size), plan_of(name, size)) for title, size in sizes.items()}
    lacking = {"tensor-parallel": (planner.mesh(config.Mesh(1, 1, 8)), DoesNotFit(20 * 2**30))}
    one = table.one_mesh(EXPERIMENT, topology, WORKLOAD, {"commonest": plan_of(name, sizes["FSDP"])})
    several = table.several_meshes(EXPERIMENT, topology, WORKLOAD, plans | lacking)
    assert max(map(len, f"{one}\n{several}".splitlines())) <= 110
    assert "no collective-permute, no all-to-all" in one
    assert re.search(r"^ +all-gather +none +\d+ / [\d.]+ +–$", several, re.MULTILINE)
    assert "needs 20.00" in several
    assert "unknown length" not in several
    mesh, plan = plans["FSDP"]
    plans["FSDP"] = mesh, dataclasses.replace(plan, loops=[2, None, None])
    told = table.several_meshes(EXPERIMENT, topology, WORKLOAD, plans | lacking)
    assert re.search(r"^loops of unknown length, counted as one round +0 +2 +–$", told, re.MULTILINE)
    looping = dataclasses.replace(plan, loops=[8, *[2] * 96, None])
    one = table.one_mesh(EXPERIMENT, topology, WORKLOAD, {"commonest": looping})
    assert "loops              1 of 8 rounds, 96 of 2 rounds, 1 of an unknown number of rounds (counted as one)" in one


@pytest.mark.parametrize(
    ("message", "needed"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.50G of 15.75G hbm. Exceeded",
            20.5 * 2**30,
        ),
        ("the total memory required for HLO temporaries (512.00M) exceeds available HBM (15.75G).", 2**29),
        ("RESOURCE_EXHAUSTED: something else", None),
    ],
)
def test_what_the_compiler_would_need_is_read_from_its_message(message: str, needed: float | None) -> None:
    assert _needed(message) == needed


def test_times_are_told_in_the_unit_that_suits() -> None:
    assert table._time((0.0073, 0.0137)) == "10.5–19.7 min"
    assert table._time((0.5, 1.5)) == "12.0–36.0 h"
    assert table._time((3.0, 7.25)) == "3.00–7.25 days"


def test_compared_meshes_keep_to_the_models_sizes() -> None:
    model = config.Model(d_model=96, num_heads=4)
    assert compared(parse("h100:16x8"), model, 1000) == {
        "data-parallel": config.Mesh(128, 1, 1),
        "FSDP": config.Mesh(4, 32, 1),
        "tensor-parallel": config.Mesh(32, 1, 4),
    }


@pytest.mark.skipif(not installed("tpu"), reason="tpu is not installed: pip install '.[tpu]'")
def test_the_verb_prints_one_json_object(capsys, tmp_path) -> None:
    small = {
        "model.num-layers": 1,
        "model.d-model": 64,
        "model.d-ff": 64,
        "model.num-heads": 4,
        "data.vocabulary-size": 1024,
        "data.max-length": 32,
        "data.max-shapes": 1,
        "mesh.fsdp": 2,
    }
    arguments = ["plan", "experiments/quickstart.py", "--topology", "v5e:2x2", "--workdir", str(tmp_path)]
    arguments += [word for name, value in small.items() for word in (f"--{name}", str(value))]
    assert command_line.main([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert "newstest2014" in printed["shapes_assumed"]
    assert printed["meshes"]["own"]["mesh"] == {"data": 2, "fsdp": 2, "tensor": 1}
    commonest, largest = printed["meshes"]["own"]["steps"]
    assert commonest["shape"] == largest["shape"], "there is one shape"
    assert commonest["seconds"]["in_turn"] >= commonest["seconds"]["overlapped"] > 0
    assert commonest["days"]["overlapped"] == pytest.approx(3800 * commonest["seconds"]["overlapped"] / 86_400)


@pytest.mark.skipif(not installed("cuda"), reason="gpu is not installed: pip install '.[gpu]'")
def test_cudnns_attention_is_compiled_where_it_is_asked_for() -> None:
    training = dataclasses.replace(EXPERIMENT.training, attention_kernel="cudnn", compute_dtype="bfloat16")
    model = dataclasses.replace(EXPERIMENT.model, attention_dropout=0.0)
    experiment = dataclasses.replace(EXPERIMENT, training=training, model=model)
    plan = Planner(experiment, parse("h100:8"), WORKLOAD).step(config.Mesh(8, 1, 1), SHAPE)
    attentions = 3 * model.num_layers
    assert plan.attention == f"cuDNN fused attention ({2 * attentions} calls)", "forward and backward"
