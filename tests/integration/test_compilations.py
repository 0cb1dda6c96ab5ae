"""Nothing is compiled after the announced shapes, however long training goes on."""

from pathlib import Path

import jax.monitoring
import pytest

from t2t_jax.config import Data, Experiment, Model, Optimizer, Training
from t2t_jax.data import pipeline
from t2t_jax.parallel.channel import Channel
from t2t_jax.training import loop, metrics

EVENT = "/jax/core/compile/backend_compile_duration"


@pytest.fixture(scope="module")
def compilations():
    """What JAX has compiled in this process, as it grows."""
    seen: list[str] = []

    def note(event: str, duration: float, **_: object) -> None:
        if event == EVENT:
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    yield seen
    jax.monitoring.unregister_event_duration_listener(note)


def experiment(steps: int, folder: Path) -> Experiment:
    return Experiment(
        name="short",
        model=Model(num_layers=1, d_model=16, d_ff=16, num_heads=2, vocabulary_multiple=8),
        data=Data(
            source="embedded",
            vocabulary_size=600,
            max_length=48,
            max_shapes=3,
            source_tokens_per_batch=256,
            target_tokens_per_batch=256,
            store=str(folder / "data"),
        ),
        optimizer=Optimizer(warmup_steps=10),
        training=Training(num_steps=steps, log_every=7, checkpoint_every=20, average_last=1),
    )


def test_a_longer_run_compiles_nothing_more(tmp_path: Path, compilations: list[str]) -> None:
    def count(steps: int, name: str) -> int:
        before = len(compilations)
        loop.train(experiment(steps, tmp_path), tmp_path / name)
        return len(compilations) - before

    count(40, "warm")  # compiles once in a process: what initialises, averages, …
    shapes = count(40, "short")
    assert count(120, "long") == shapes

    settings = experiment(40, tmp_path)
    prepared = loop.prepare(settings, tmp_path / "short", Channel.alone())
    plan = pipeline.plan_for(settings.data, prepared.corpus(), settings.training.seed)
    assert {plan.slot(k).shape for k in range(40)} == set(plan.shapes), "the short run meets every shape as well"


def test_every_logged_step_tells_rates_and_waiting(tmp_path: Path) -> None:
    loop.train(experiment(40, tmp_path), tmp_path / "run")
    entries = metrics.read(tmp_path / "run")
    assert [entry["step"] for entry in entries] == [k for k in range(1, 41) if k % 7 == 0 or k % 20 == 0]
    assert all(0 <= entry["data_wait"] < 1 and entry["flops_per_second"] > 0 for entry in entries)
