"""A contestant: a process of its own that takes steps when it is told to, so that contestants can take turns.

    python -m benchmarks.contestant ours|torch-eager|torch-compile SIZE

reads a number of steps a line, and answers each line with a JSON object.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable

from benchmarks.sizes import SIZES, Size


def ours(size: Size) -> tuple[Callable[[int], None], dict[str, str]]:
    """Training's own compiled step on one device."""
    import jax
    import numpy as np

    from t2t_jax import config, model
    from t2t_jax.data.pipeline import Batch
    from t2t_jax.parallel import mesh as meshes
    from t2t_jax.parallel.memory import keep_freed_memory
    from t2t_jax.training import state
    from t2t_jax.training.lowering import train_step_on
    from t2t_jax.training.optimizer import make_optimizer

    keep_freed_memory()
    mesh = meshes.make_mesh(config.Mesh(), jax.devices()[:1])
    transformer = model.build(size.model, size.vocabulary)
    optimizer = make_optimizer(config.Optimizer(), size.model.d_model)
    abstract, _ = state.abstract_state(transformer, optimizer, mesh)
    step = train_step_on(mesh, transformer, optimizer, config.Training(), abstract)(size.shape).compile()
    rng, rows = np.random.default_rng(0), meshes.Rows(mesh)
    sides = (rng.integers(4, size.vocabulary, (size.shape.rows, n)).astype(np.int32) for n in size.shape[:2])
    batch = Batch(*(rows.place(side, size.shape.rows) for side in sides))
    carried = state.init_state(transformer, optimizer, mesh, 1)

    def run(steps: int) -> None:
        nonlocal carried
        for _ in range(steps):
            carried, metrics = step(carried, batch)
        jax.block_until_ready((carried, metrics))

    return run, {"jax": jax.__version__}


def torch_peer(size: Size, compiled: bool) -> tuple[Callable[[int], None], dict[str, str]]:
    """PyTorch's."""
    import torch

    from benchmarks.torch_transformer import Step

    step = Step(size, compiled)

    def run(steps: int) -> None:
        for _ in range(steps):
            step()

    return run, {"torch": torch.__version__}


def matrix_rate(_: Size) -> tuple[Callable[[int], None], dict[str, str]]:
    """What the machine's cores reach in JAX: a step is a product of two square float32 matrices of 2,048."""
    import jax
    import jax.numpy as jnp

    square = jax.random.normal(jax.random.key(0), (2048, 2048))
    product = jax.jit(lambda a, b: jnp.matmul(a, b))

    def run(steps: int) -> None:
        for _ in range(steps):
            last = product(square, square)
        last.block_until_ready()

    return run, {}


CONTESTANTS = {
    "ours": ours,
    "torch-eager": lambda size: torch_peer(size, compiled=False),
    "torch-compile": lambda size: torch_peer(size, compiled=True),
    "matrix": matrix_rate,
}


def main(name: str, size: str) -> None:
    """Warm up, say so, then take steps as asked."""
    start = time.perf_counter()
    run, versions = CONTESTANTS[name](SIZES[size])
    run(1)
    ready = time.perf_counter() - start
    run(2)
    print(json.dumps({"versions": versions, "first_step": ready}), flush=True)
    for line in sys.stdin:
        before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        run(int(line))
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
        answer = {
            "seconds": seconds / int(line),
            "system_share": (after.ru_stime - before.ru_stime) / max(after.ru_utime - before.ru_utime, 1e-9),
            "peak_bytes": after.ru_maxrss * 1024,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
