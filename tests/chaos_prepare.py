"""Kill `prepare` at random moments and start it again, and compare the store with one that nobody disturbed.

    python -m tests.chaos_prepare [--kills 10] [--seed N]

The text is the embedded corpus, in pieces of 2,000 pairs. Exit status 0 if all files are the same, byte for byte.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
PREPARE = """
import sys
from pathlib import Path
from t2t_jax.config import Data
from t2t_jax.data import store, tokenising
tokenising.CHUNK, tokenising.PIECE = 500, 2000
store.prepare(Data(vocabulary_size=1000, vocabulary_sample=5000), Path(sys.argv[1]))
"""


def start(run: Path) -> subprocess.Popen[bytes]:
    """A process that prepares the data of `run`."""
    return subprocess.Popen([sys.executable, "-c", PREPARE, run], cwd=ROOT, stderr=subprocess.DEVNULL)


def content(run: Path) -> dict[str, bytes]:
    """All that lies in the run directory."""
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def chaos(kills: int, chance: random.Random, place: Path) -> bool:
    """Whether stores whose making was killed `kills` times are those of an undisturbed call."""
    began = time.monotonic()
    assert start(place / "whole").wait() == 0
    took = time.monotonic() - began
    whole, used, runs = content(place / "whole"), 0, 0
    while used < kills:
        run = place / f"run{runs}"
        process, moment = start(run), chance.uniform(0, took)
        time.sleep(moment)
        process.kill()
        if process.wait() == 0:  # it came to its end before
            if not _same(whole, run):
                return False
            runs += 1
            continue
        used += 1
        found = ", ".join(sorted(content(run))) or "no files"
        print(f"kill {used}: after {moment:.2f} of {took:.2f} s; there were {found}")
    return start(run).wait() == 0 and _same(whole, run)


def _same(whole: dict[str, bytes], run: Path) -> bool:
    same = content(run) == whole
    print(f"{run.name}: {len(whole)} files {'equal, byte for byte' if same else 'DIFFER'}")
    return same


def main() -> int:
    """Run the script; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 16))
    options = parser.parse_args()
    print(f"{options.kills} kills, seed {options.seed}")
    with tempfile.TemporaryDirectory() as place:
        return 0 if chaos(options.kills, random.Random(options.seed), Path(place)) else 1


if __name__ == "__main__":
    sys.exit(main())
