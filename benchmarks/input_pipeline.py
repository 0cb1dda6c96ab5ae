"""The input pipeline alone, from a prepared corpus to padded batches in memory, against what a training step needs.

    python -m benchmarks.input_pipeline experiments/wmt14_ende_base.py --store RUN/data [--json]

Without a device and without a model: opening the store, which compares every file with its hash; planning; the first
batch; and then batches as fast as they come. A step is the experiment's, at half of the peak of eight H100s.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from t2t_jax import config
from t2t_jax.data import pipeline, store
from t2t_jax.experiment_file import load_experiment
from t2t_jax.parallel.chips import CHIPS
from t2t_jax.training.flops import step_flops

DEVICES, UTILISATION = 8, 0.5


def measure(experiment: config.Experiment, directory: Path, batches: int, rounds: int) -> dict[str, Any]:
    """Seconds and memory up to the first batch, and the rates after it."""
    begun = time.perf_counter(), time.process_time()

    def stage(name: str) -> None:
        since = time.perf_counter() - begun[0], time.process_time() - begun[1]
        stages[name] = {
            "seconds": since[0],
            "cpu_seconds": since[1],
            "resident_gib": _resident(),
            "mapped_gib": _mapped(),
        }

    stages: dict[str, dict[str, float]] = {}
    stage("start")
    opened = store.open_store(directory)
    corpus = opened.corpus()
    stage("store opened")
    plan = pipeline.plan_for(experiment.data, corpus, experiment.training.seed)
    plan.slot(0)
    stage("epoch planned")
    pipeline.make_batch(corpus, plan, 0)
    stage("first batch drawn")
    real = sum(int(side.sum(dtype=np.int64)) for side in corpus.lengths) / plan.batches_per_epoch
    seconds, busy = [], []
    for turn in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in pipeline.batches(corpus, plan, turn * batches, (turn + 1) * batches):
            pass
        seconds.append((time.perf_counter() - wall) / batches)
        busy.append((time.process_time() - cpu) / batches)
    vocabulary = opened.manifest["vocabulary"]
    flops = sum(
        n * step_flops(experiment.model, vocabulary, shape)
        for n, shape in zip(plan.batches_per_shape, plan.shapes, strict=True)
    )
    step = flops / plan.batches_per_epoch / (DEVICES * UTILISATION * CHIPS["h100"].bfloat16)
    return {
        "pairs": len(corpus),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "batches_per_epoch": plan.batches_per_epoch,
        "real_tokens_per_batch": real,
        "stages": stages,
        "milliseconds_per_batch": 1e3 * statistics.median(seconds),
        "cpu_milliseconds_per_batch": 1e3 * statistics.median(busy),
        "tokens_per_second": real / statistics.median(seconds),
        "tokens_per_cpu_second": real / statistics.median(busy),
        "step_milliseconds": 1e3 * step,
        "step_tokens_per_second": real / step,
    }


def _resident() -> float:
    """The most memory this process has had, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _mapped() -> float:
    """How much of that, now, is files in the page cache, which the kernel takes back when it needs the room, in GiB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(r"RssFile:\s+(\d+) kB", status)[1]) / 2**20  # type: ignore[index]


def table(found: dict[str, Any]) -> str:
    """The same for people."""
    lines = [
        f"{found['pairs']:,} pairs, {found['real_tokens_per_batch']:,.0f} real tokens a batch; {found['machine']}",
        "",
    ]
    titles = ("s", "s of processor", "most GiB so far", "GiB of files now")
    lines.append(f"{'since the start':32}{titles[0]:>14}{titles[1]:>18}{titles[2]:>18}{titles[3]:>18}")
    lines += [
        f"{name:32}{at['seconds']:>14.2f}{at['cpu_seconds']:>18.2f}{at['resident_gib']:>18.2f}{at['mapped_gib']:>18.2f}"
        for name, at in found["stages"].items()
    ]
    lines.append("")
    lines += [
        f"{'a batch':32}{found['milliseconds_per_batch']:>14.2f} ms",
        f"{'… processor time':32}{found['cpu_milliseconds_per_batch']:>14.2f} ms",
        f"{'a step, 50% of 8 H100':32}{found['step_milliseconds']:>14.2f} ms",
        f"{'real tokens/s':32}{found['tokens_per_second']:>14,.0f}",
        f"{'… of processor time':32}{found['tokens_per_cpu_second']:>14,.0f}",
        f"{'… that the step eats':32}{found['step_tokens_per_second']:>14,.0f}",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run the script; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--store", type=Path, required=True, help="folder of the prepared data")
    parser.add_argument("--batches", type=int, default=1000, help="batches a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    options = parser.parse_args()
    found = measure(load_experiment(options.experiment), options.store, options.batches, options.rounds)
    print(json.dumps(found, indent=2) if options.json else table(found))


if __name__ == "__main__":
    main()
