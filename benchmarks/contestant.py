"""A contestant: a process of its own that takes steps when it is told to, so that contestants can take turns.

    python -m benchmarks.contestant ours|torch-eager|torch-compile|joeynmt|matrix SIZE

reads a number of steps a line, and answers each line with a JSON object.
"""

from __future__ import annotations

import dataclasses
import json
import resource
import sys
import time
from collections.abc import Callable

from benchmarks.sizes import SIZES, Size


def ours(size: Size) -> tuple[Callable[[int], None], dict[str, str]]:
    """Training's own compiled step on one device."""
    import jax

    from benchmarks.training_steps import training_steps
    from t2t_jax import config
    from t2t_jax.parallel.memory import keep_freed_memory

    keep_freed_memory()
    run, _ = training_steps(config.Experiment(model=size.model), size.vocabulary, size.shape)
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


def joeynmt(size: Size) -> tuple[Callable[[int], None], dict[str, str]]:
    """JoeyNMT's model and loss, in the order of its trainer's step."""
    from importlib.metadata import version

    import torch
    from joeynmt.batch import Batch

    from benchmarks.joeynmt_model import BOS, EOS, PAD, build

    torch.manual_seed(0)
    model = build(dataclasses.asdict(size.model), size.vocabulary, size.model.dropout).train()
    model.loss_function = ("crossentropy", 0.1)
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98))
    rows = size.shape.rows
    source, target = (torch.randint(4, size.vocabulary, (rows, length - 1)) for length in size.shape[:2])
    begin, end = torch.full((rows, 1), BOS), torch.full((rows, 1), EOS)
    source, target = torch.cat([source, end], 1), torch.cat([begin, target, end], 1)
    lengths = torch.full((rows,), size.shape.source)

    def run(steps: int) -> None:
        for _ in range(steps):
            given = (source, lengths, None, target, None, torch.arange(rows), torch.device("cpu"), PAD, EOS)
            batch = Batch(*given)
            batch.sort_by_src_length()
            loss, _, _, correct = model(return_type="loss", **vars(batch))
            loss = batch.normalize(loss, normalization="tokens")
            loss.backward()
            loss.item(), batch.normalize(correct, "sum").item()  # as its trainer does for its log
            adam.step()
            adam.zero_grad()

    return run, {"joeynmt": version("joeynmt")}


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
    "joeynmt": joeynmt,
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
