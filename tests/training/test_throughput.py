"""The clock of a training run, whose host is steps ahead of its devices."""

from typing import Any

import jax
import numpy as np
import pytest

from t2t_jax.config import Experiment
from t2t_jax.training import loop, throughput
from t2t_jax.training.loss import TokenLoss
from t2t_jax.training.step import StepMetrics


def test_an_interval_ends_when_its_last_step_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when it was begun: the first steps after a validation are begun at once, on devices with nothing to do."""
    now, fetch = 100.0, jax.device_get

    def wait_for_the_devices(tree: Any) -> Any:
        nonlocal now
        now += 4
        return fetch(tree)

    monkeypatch.setattr(throughput.time, "perf_counter", lambda: now)
    monkeypatch.setattr(loop.jax, "device_get", wait_for_the_devices)
    speed = throughput.Throughput(Experiment(), 100, jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",)))
    metrics: Any = StepMetrics(TokenLoss(*map(np.float32, (30, 20, 10))), np.float32(1))
    nothing_wrong: Any = None
    now += 50  # a validation
    speed.restart()
    entry = loop.summarise(loop.Unread(2, [metrics, metrics], speed.take()), speed, nothing_wrong)
    assert (entry["seconds"], entry["target_tokens"], entry["tokens_per_second"]) == (4, 20, 5)
    entry = loop.summarise(loop.Unread(3, [metrics], speed.take()), speed, nothing_wrong)
    assert entry["tokens_per_second"] == 2.5
