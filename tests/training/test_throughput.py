"""The clock of a training run, whose host is steps ahead of its devices."""

from typing import Any

import jax
import numpy as np
import pytest

from t2t_jax.config import Experiment, Model, Training
from t2t_jax.data.batching import Shape
from t2t_jax.training import loop, throughput
from t2t_jax.training.loss import TokenLoss
from t2t_jax.training.step import StepMetrics


@pytest.mark.parametrize(
    ("model", "training", "counts"),
    [
        ({}, {}, True),
        ({}, {"accumulation": 2}, False),
        ({"family": "recurrent"}, {}, False),
        ({"decoder_attention": "performer"}, {}, True),
        ({"attention_dropout": 0.0}, {"attention_kernel": "blockwise"}, True),
    ],
)
def test_the_compilers_count_is_told_only_where_it_counts_everything(
    model: dict[str, Any], training: dict[str, Any], counts: bool
) -> None:
    """Of a loop it counts one round. Attention in blocks of 128 positions has one here, and two of longer sentences."""
    experiment = Experiment(model=Model(**model), training=Training(**training))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    for length in (128, 129):
        speed = throughput.Throughput(experiment, 100, mesh)
        product = jax.jit(lambda a: a @ a).lower(jax.ShapeDtypeStruct((8, 8), np.float32)).compile()
        speed.count(Shape(length, length, 4), product)
        told = speed.take().compiled_flops
        if counts and (length == 128 or not (model or training)):
            assert told == 2 * 8**3
        else:
            assert told is None


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
