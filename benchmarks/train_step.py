"""The time of a training step on this machine, beside PyTorch's, in turns.

    python -m benchmarks.train_step [--size base|multi30k] [--steps N] [--rounds N] [--peers …] [--json]
                                    [--python NAME=PYTHON …]

Each contestant is a process of its own that rests while another computes. PyTorch gets what makes it fastest in plain
form: fused Adam, and tcmalloc if Debian's libtcmalloc-minimal4 is there. Needs `torch`. A peer that another Python has
is run by it: `--peers joeynmt --python joeynmt=/path/to/python`; what that needs says `benchmarks.decoding --help`.
"Of matrix rate" is the model's FLOPs over the step's time and this machine's rate of plain float32 products in JAX.
"""

from __future__ import annotations

import argparse
import glob
import json
import statistics
import sys
from typing import Any

from benchmarks.sizes import SIZES
from benchmarks.turns import Contestant, ContestantEnded
from t2t_jax.machine import host
from t2t_jax.training.flops import step_flops

MATRIX_FLOPS = 2 * 2048**3
TCMALLOC = glob.glob("/usr/lib/*/libtcmalloc_minimal.so.4")


def start(name: str, size: str, pythons: dict[str, str]) -> Contestant:
    """Start a contestant, with another memory allocator if its name says so, and wait until it is warm."""
    kind, _, allocator = name.partition("+")
    preload = {"LD_PRELOAD": TCMALLOC[0]} if allocator else {}
    return Contestant(name, ["benchmarks.contestant", kind, size], pythons.get(kind, sys.executable), **preload)


def compete(size: str, names: list[str], pythons: dict[str, str], steps: int, rounds: int) -> dict[str, Any]:
    """Rounds in which everyone takes `steps` steps; what came of it."""
    contestants = {name: start(name, size, pythons) for name in ["matrix", *names]}
    answers: dict[str, list[dict[str, float]]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            answers[name].append(contestant.ask(10 * steps if name == "matrix" else steps))
    for contestant in contestants.values():
        contestant.stop()
    seconds = {name: [answer["seconds"] for answer in given] for name, given in answers.items()}
    chosen = SIZES[size]
    tokens = chosen.shape.rows * chosen.shape.target
    rate = MATRIX_FLOPS / statistics.median(seconds.pop("matrix"))
    flops = step_flops(chosen.model, chosen.vocabulary, chosen.shape)
    results = {
        name: {
            "median_seconds": (median := statistics.median(taken)),
            "fastest_seconds": min(taken),
            "slowest_seconds": max(taken),
            "target_tokens_per_second": tokens / median,
            "matrix_rate_fraction": flops / median / rate,
            "system_share": answers[name][-1]["system_share"],
            "peak_gib": answers[name][-1]["peak_bytes"] / 2**30,
            "first_step_seconds": contestants[name].ready["first_step"],
        }
        for name, taken in seconds.items()
    }
    eager = min((r["median_seconds"] for n, r in results.items() if n.startswith("torch-eager")), default=None)
    ours = results["ours"]["median_seconds"]
    return {
        "size": size,
        "shape": str(chosen.shape),
        "machine": host(),
        "versions": {k: v for contestant in contestants.values() for k, v in contestant.ready["versions"].items()},
        "matrix_gflops": rate / 1e9,
        "model_gflop": flops / 1e9,
        "results": results,
        "matrix_rate_fraction": results["ours"]["matrix_rate_fraction"],
        "ratio_to_torch_eager": eager / ours if eager else None,
        "ratios": {name: result["median_seconds"] / ours for name, result in results.items() if name != "ours"},
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
    ratios = "; ".join(f"{name} {ratio:.2f}" for name, ratio in found["ratios"].items())
    if ratios:
        lines += ["", f"times as long as ours: {ratios}"]
    return "\n".join(lines)


def main() -> None:
    """Run the script; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="multi30k")
    parser.add_argument("--steps", type=int, default=5, help="steps a turn")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each")
    eager = ["torch-eager", *(["torch-eager+tcmalloc"] if TCMALLOC else [])]
    parser.add_argument(
        "--peers", nargs="*", default=eager, help="torch-eager, torch-compile, joeynmt, with +tcmalloc or not"
    )
    parser.add_argument("--python", nargs="*", default=[], metavar="NAME=PYTHON", help="the Python that has a peer")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    options = parser.parse_args()
    pythons = dict(word.split("=", 1) for word in options.python)
    try:
        found = compete(options.size, ["ours", *options.peers], pythons, options.steps, options.rounds)
    except ContestantEnded as ended:
        sys.exit(str(ended))
    print(json.dumps(found, indent=2) if options.json else table(found))


if __name__ == "__main__":
    main()
