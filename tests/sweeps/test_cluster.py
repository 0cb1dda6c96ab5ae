"""What the queue says of a sweep's rows where Slurm does not answer; tests/integration/test_slurm.py has a real one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from t2t_jax.errors import RunError
from t2t_jax.sweeps import cluster, rows


@pytest.mark.parametrize(("status", "answers"), [(0, True), (1, False)])
def test_a_queue_that_does_not_answer_is_not_empty(
    status: int, answers: bool, plan: Callable[..., rows.Sweep], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = plan({"base": {}, "other": {"dropout": 0.0}})
    for tool in ("squeue", "scontrol", "sacct"):
        (tmp_path / tool).write_text(f"#!/bin/sh\nexit {status}\n")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert cluster.in_queue(sweep) == {}, "none was ever submitted"
    (sweep.directory / cluster.JOBS).write_text(json.dumps({sweep.rows[0].directory.name: "7"}))
    if answers:
        assert cluster.in_queue(sweep) == {}
    else:
        with pytest.raises(RunError, match="does not say which of the sweep's jobs"):
            cluster.in_queue(sweep)
