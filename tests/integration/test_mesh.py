"""The run on any mesh is the run on one device: eight virtual CPU devices in a process of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
MESHES = ["8-1-1", "2-2-2", "1-4-2", "1-1-8", "4-1-2"]  # data, fsdp, tensor

Runs = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def process(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        # Level 0 leaves the partitioner alone and halves the time that compiling takes.
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0",
        "TF_CPP_MIN_LOG_LEVEL": "1",  # the compiler's warnings are shown
    }
    command = [
        sys.executable,
        Path(__file__).with_name("runs_on_meshes.py"),
        small_corpus,
        tmp_path_factory.mktemp("m"),
    ]
    done = subprocess.run(command, capture_output=True, timeout=560, env=environment, text=True)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def runs(process: subprocess.CompletedProcess[str]) -> Runs:
    return json.loads(process.stdout)


def assert_same_run(run: dict[str, Any], expected: dict[str, Any]) -> None:
    assert run["batches"] == expected["batches"]
    np.testing.assert_allclose(run["losses"], expected["losses"], rtol=1e-5, atol=0)


@pytest.mark.parametrize("mesh", MESHES)
def test_every_loss_and_batch_is_that_of_one_device(runs: Runs, mesh: str) -> None:
    one = runs["1-1-1"]
    assert len(one["losses"]) == len(set(one["batches"])) == 20
    assert one["losses"][-1] < one["losses"][0] - 1, "it learns, so equal losses mean equal parameters"
    assert one["losses"] != runs["without dropout"]["losses"]
    assert_same_run(runs[mesh], one)


def test_some_meshes_needed_dead_rows(runs: Runs) -> None:
    dead = {mesh: runs[mesh]["dead_rows"] for mesh in MESHES}
    assert dead == {"8-1-1": 5, "2-2-2": 1, "1-4-2": 1, "1-1-8": 0, "4-1-2": 1}, "11 rows a batch"


def test_four_parts_on_a_mesh_are_the_one_big_batch_on_one_device(runs: Runs) -> None:
    assert_same_run(runs["without dropout, in four parts"], runs["without dropout"])


def test_four_parts_with_dropout_are_reproducible_to_the_bit(runs: Runs) -> None:
    assert runs["in four parts"] == runs["in four parts, again"]


def test_the_training_loop_runs_the_same_steps(runs: Runs) -> None:
    np.testing.assert_allclose(runs["the loop"]["losses"], runs["1-1-1"]["losses"][:6], rtol=1e-5)


def test_the_compiler_never_gave_up_on_a_sharding(process: subprocess.CompletedProcess[str]) -> None:
    assert "rematerialization" not in process.stderr


@pytest.mark.parametrize("mesh", ["1-1-1", *MESHES])
def test_every_collective_is_one_that_the_mesh_calls_for(runs: Runs, mesh: str) -> None:
    """Parameters are gathered over fsdp, gradients summed over rows, activations [B, T, D] summed over tensor.

    So logits, queries, keys, values, dropout masks and tokens stay where they are. (On CPUs the sum of a gradient of
    which each device keeps a part is an all-reduce, where other compilers may choose a reduce-scatter.)
    """
    data, fsdp, tensor = map(int, mesh.split("-"))
    arrays, found = runs[mesh]["arrays"], runs[mesh]["collectives"]
    gradients = arrays["parameters"] if data * fsdp > 1 else []
    passing = ["activations", "embedded", "per target token", "sum of the table"] if tensor > 1 else []
    allowed: dict[str, set[str]] = {}
    if gradients or passing:
        allowed["all-reduce"] = set().union(*gradients, *(arrays[kind] for kind in passing))
    if fsdp > 1:
        allowed["all-gather"] = {*arrays["matrices"]}
    moved = {kind: set(shapes) - {*arrays["sums"]} for kind, shapes in found.items()}
    assert moved.keys() == allowed.keys()
    assert moved.get("all-gather", set()) == allowed.get("all-gather", set())
    assert moved.get("all-reduce", set()) <= allowed.get("all-reduce", set())
    for forms in [*gradients, *(arrays[kind] for kind in passing)]:
        assert moved["all-reduce"] & set(forms), f"nothing adds up {forms}"
