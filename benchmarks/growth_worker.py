"""A process of its own with so many virtual devices, which compiles training steps and takes them when told to."""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from benchmarks.contestant import matrix_rate
from benchmarks.growth_cases import Case
from benchmarks.sizes import SIZES
from benchmarks.timing import mean_seconds

_steps: dict[Case, Callable[[], None]] = {}


def start(devices: int) -> ProcessPoolExecutor:
    """The process; what is submitted to it runs there, one thing after another."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _begin, (devices,))


def _begin(devices: int) -> None:
    import jax

    from t2t_jax.parallel.memory import keep_freed_memory

    flag = f"--xla_force_host_platform_device_count={devices}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    jax.config.update("jax_platforms", "cpu")
    keep_freed_memory()


def compile_case(case: Case) -> dict[str, int]:
    """Compile training's own step and take one; returns the compiler's bytes for one device."""
    from benchmarks.training_steps import training_steps
    from t2t_jax import config

    experiment = config.Experiment(model=case.model, mesh=case.mesh)
    run, compiled = training_steps(experiment, case.vocabulary, case.shape, case.devices)
    run(1)
    _steps[case] = lambda: run(1)
    memory = compiled.memory_analysis()
    return {"arguments": memory.argument_size_in_bytes, "temporaries": memory.temp_size_in_bytes}


def seconds_of_step(case: Case, turn: float) -> float:
    """Mean time of a step, of as many as fill `turn` seconds."""
    return mean_seconds(_steps[case], turn)


def seconds_of_product(turn: float) -> float:
    """The same of a product of two square float32 matrices of 2,048, the measure of what the cores can do."""
    return mean_seconds(_product(), turn)


@functools.cache
def _product() -> Callable[[], None]:
    run, _ = matrix_rate(SIZES["base"])
    run(1)
    return lambda: run(1)
