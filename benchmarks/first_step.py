"""How long a newcomer waits for the first training step: from the start of the command, vocabulary included.

    python -m benchmarks.first_step [--experiment FILE] [--rounds N] [--json]

Cold, with nothing compiled before, and warm, with the folder of compiled programs that the cold run left behind. Each
is a process of its own in a run directory of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]


def first_step(experiment: str, run: Path, cache: Path) -> float:
    """Seconds from starting `launch.py train` to its word that the first step is done."""
    begun = time.perf_counter()
    command = [sys.executable, "launch.py", "train", experiment, "--workdir", str(run)]
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    environment["XDG_CACHE_HOME"] = str(cache)
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("First step after"):
                seconds = time.perf_counter() - begun
                time.sleep(20)  # the other shapes are compiled and kept
                process.kill()
                return seconds
    sys.exit("".join(said))


def main() -> None:
    """Run the script; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", default="experiments/quickstart.py")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {"cold": [], "warm": []}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(options.rounds):
            cache = Path(scratch) / f"cache-{number}"
            for kind, measured in seconds.items():
                measured.append(first_step(options.experiment, Path(scratch) / f"run-{number}-{kind}", cache))
    if options.json:
        print(json.dumps({"experiment": options.experiment, "seconds": seconds}, indent=2))
        return
    print(f"Seconds from the start of the command to the end of the first step of {options.experiment}")
    for kind, measured in seconds.items():
        print(f"{kind:6}{statistics.median(measured):>8.1f}   ({min(measured):.1f} – {max(measured):.1f})")


if __name__ == "__main__":
    main()
