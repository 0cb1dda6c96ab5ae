"""Every choice of an architecture trains, resumes to the bit, gives equal losses on any mesh, and is searched with."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.combinations import COMBINATIONS, ONE_TASK

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0",
    }
    command = [sys.executable, Path(__file__).with_name("choices_on_meshes.py"), tmp_path_factory.mktemp("choices")]
    done = subprocess.run(command, capture_output=True, timeout=560, env=environment, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", [*COMBINATIONS, *ONE_TASK])
def test_it_learns_and_equally_on_a_mesh(runs: dict[str, dict[str, Any]], name: str) -> None:
    one = runs[name]["1-1-1"]
    assert one[-1] < one[0] - 0.3
    np.testing.assert_allclose(runs[name]["2-2-2"], one, rtol=1e-5)


@pytest.mark.parametrize("name", [*COMBINATIONS, *ONE_TASK])
def test_it_goes_on_from_a_checkpoint_to_the_bit(runs: dict[str, dict[str, Any]], name: str) -> None:
    assert runs[name]["resumed exactly"]


@pytest.mark.parametrize("name", [*COMBINATIONS, "vision"])
def test_a_lines_translations_do_not_depend_on_its_neighbours(runs: dict[str, dict[str, Any]], name: str) -> None:
    search = runs[name]["search"]
    assert search["answered"] == [0, 1, 2, 3, 4]
    assert search["alone"] == search["together"]


def test_experts_over_devices_are_the_same_and_tokens_go_to_them(runs: dict[str, dict[str, Any]]) -> None:
    run = runs["alibi, experts"]
    np.testing.assert_allclose(run["1-2-2-2"], run["1-1-1"], rtol=1e-5)
    np.testing.assert_allclose(run["balances over experts"], run["balances"], rtol=1e-5)
    assert run["exchanged"]
    assert all(balance > 0.9 for balance in run["balances"])
