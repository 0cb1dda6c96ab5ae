"""The time of a training step on this machine, beside PyTorch's, in turns.

    python -m benchmarks.train_step [--size base|multi30k] [--steps N] [--rounds N] [--peers …] [--json]

Each contestant is a process of its own that rests while another computes. PyTorch gets what makes it fastest in plain
form: fused Adam, and tcmalloc if Debian's libtcmalloc-minimal4 is there. Needs `torch`.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.sizes import SIZES
from t2t_jax.training.flops import step_flops

ROOT = Path(__file__).parents[1]
MATRIX_FLOPS = 2 * 2048**3
TCMALLOC = glob.glob("/usr/lib/*/libtcmalloc_minimal.so.4")


@dataclass
class Contestant:
    """A process and what it has shown."""

    name: str
    process: subprocess.Popen[str]
    versions: dict[str, str] = field(default_factory=dict)
    first_step: float = 0.0
    seconds: list[float] = field(default_factory=list)
    last: dict[str, float] = field(default_factory=dict)

    @classmethod
    def start(cls, name: str, size: str) -> Contestant:
        """Start it and wait until it is warm."""
        kind, _, allocator = name.partition("+")
        environment = os.environ | ({"LD_PRELOAD": TCMALLOC[0]} if allocator else {})
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.contestant", kind, size],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        contestant = cls(name, process)
        ready = contestant._answer()
        contestant.versions, contestant.first_step = ready["versions"], ready["first_step"]
        return contestant

    def run(self, steps: int) -> None:
        """Take steps and note the mean time of one."""
        assert self.process.stdin is not None
        print(steps, file=self.process.stdin, flush=True)
        self.last = self._answer()
        self.seconds.append(self.last["seconds"])

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.name} ended: {self.process.wait()}")
        return json.loads(line)


def compete(size: str, names: list[str], steps: int, rounds: int) -> dict[str, Any]:
    """Rounds in which everyone takes `steps` steps; what came of it."""
    contestants = {name: Contestant.start(name, size) for name in ["matrix", *names]}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            contestant.run(10 * steps if name == "matrix" else steps)
    for contestant in contestants.values():
        contestant.process.kill()
    chosen = SIZES[size]
    tokens = chosen.shape.rows * chosen.shape.target
    rate = MATRIX_FLOPS / statistics.median(contestants.pop("matrix").seconds)
    flops = step_flops(chosen.model, chosen.vocabulary, chosen.shape)
    results = {
        name: {
            "median_seconds": (median := statistics.median(contestant.seconds)),
            "fastest_seconds": min(contestant.seconds),
            "slowest_seconds": max(contestant.seconds),
            "target_tokens_per_second": tokens / median,
            "matrix_rate_fraction": flops / median / rate,
            "system_share": contestant.last["system_share"],
            "peak_gib": contestant.last["peak_bytes"] / 2**30,
            "first_step_seconds": contestant.first_step,
        }
        for name, contestant in contestants.items()
    }
    eager = min((r["median_seconds"] for n, r in results.items() if n.startswith("torch-eager")), default=None)
    ours = results["ours"]["median_seconds"]
    return {
        "size": size,
        "shape": str(chosen.shape),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "versions": {k: v for contestant in contestants.values() for k, v in contestant.versions.items()},
        "matrix_gflops": rate / 1e9,
        "model_gflop": flops / 1e9,
        "results": results,
        "matrix_rate_fraction": results["ours"]["matrix_rate_fraction"],
        "ratio_to_torch_eager": eager / ours if eager else None,
    }


def table(found: dict[str, Any]) -> str:
    """The same for people."""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    lines = [
        f"{found['size']}, {found['shape']} tokens, {found['model_gflop']:.0f} GFLOP a step; {found['machine']}, "
        f"{found['matrix_gflops']:.0f} GFLOP/s in products; {versions}",
        "",
        f"{'':22}{'ms a step':>10}{'(from – to)':>18}{'tokens/s':>10}{'of matrix rate':>16}{'system/user':>13}"
        f"{'GiB':>6}{'first step, s':>15}",
    ]
    for name, r in found["results"].items():
        spread = f"({1e3 * r['fastest_seconds']:.0f} – {1e3 * r['slowest_seconds']:.0f})"
        lines.append(
            f"{name:22}{1e3 * r['median_seconds']:>10.1f}{spread:>18}{r['target_tokens_per_second']:>10,.0f}"
            f"{100 * r['matrix_rate_fraction']:>15.1f}%{100 * r['system_share']:>12.1f}%{r['peak_gib']:>6.1f}"
            f"{r['first_step_seconds']:>15.1f}"
        )
    if found["ratio_to_torch_eager"]:
        lines += ["", f"PyTorch eager at its best takes {found['ratio_to_torch_eager']:.2f} times as long as ours."]
    return "\n".join(lines)


def main() -> None:
    """Run the script; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="multi30k")
    parser.add_argument("--steps", type=int, default=5, help="steps a turn")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each")
    eager = ["torch-eager", *(["torch-eager+tcmalloc"] if TCMALLOC else [])]
    parser.add_argument("--peers", nargs="*", default=eager, help="torch-eager, torch-compile, with +tcmalloc or not")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    options = parser.parse_args()
    found = compete(options.size, ["ours", *options.peers], options.steps, options.rounds)
    print(json.dumps(found, indent=2) if options.json else table(found))


if __name__ == "__main__":
    main()
