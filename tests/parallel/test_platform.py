"""Commands on machines that have a package for an accelerator, but not the accelerator."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from t2t_jax.parallel import platform

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("packages", "nodes", "allowed"),
    [
        ([], [], None),  # nothing to keep JAX from
        (["tpu"], [], "cpu"),
        (["tpu"], ["accel0"], None),
        (["tpu"], ["vfio/vfio"], "cpu"),  # there on any machine that runs virtual ones
        (["tpu"], ["vfio/0"], None),
        (["tpu", "cuda"], ["nvidia0", "nvidiactl"], "cuda,cpu"),
        (["tpu", "cuda"], ["nvidiactl"], "cpu"),
        (["cuda"], ["dxg"], None),
    ],
)
def test_platforms_are_those_with_package_and_device(packages, nodes, allowed, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(platform, "installed", packages.__contains__)
    for node in nodes:
        (tmp_path / node).parent.mkdir(exist_ok=True)
        (tmp_path / node).touch()
    assert platform._platforms(tmp_path) == allowed


PROGRAM = """
import jax
from t2t_jax import command_line
from t2t_jax.commands import reporting
reporting.report = lambda targets, options: print(jax.default_backend()) or 0
command_line.main(["report", "nowhere"])
"""


@pytest.mark.skipif(
    not any(map(platform.installed, platform.NODES)), reason="no accelerator's package is installed, e.g. '.[tpu]'"
)
def test_a_command_is_quiet_and_on_the_cpu_where_there_is_no_accelerator() -> None:
    if any(any(Path("/dev").glob(node)) for nodes in platform.NODES.values() for node in nodes):
        pytest.skip("there is an accelerator here")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "TPU_"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=clean, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("cpu\n", "")
