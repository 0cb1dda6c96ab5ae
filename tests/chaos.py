"""Kill one training run again and again, and compare what it ends with to a run that nobody disturbed.

    python -m tests.chaos [--kills 25] [--processes 2] [--seed N] [--keep DIR]

Two processes train a small model on the embedded text, with a checkpoint every few steps. At a random moment, also
while a checkpoint is being written, one of them is killed by SIGKILL; the other has to end by itself, and both are
started again, until the kills are used up and the run may end. (While they start, and may not have met yet, all are
killed at once.) Its final parameters must be those of the undisturbed run, bit for bit. Exit status 0 if they are.
"""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from t2t_jax.config import Data
from t2t_jax.data.sources import open_source
from t2t_jax.run_directory import finished_steps
from t2t_jax.training.checkpoints import Checkpoints, load_averaged
from tests.integration.processes import Group

STEPS, INTERVAL = 120, 5
SETTINGS = {
    "data.source": "files",
    "data.vocabulary-size": 500,
    "data.max-length": 48,
    "data.source-tokens-per-batch": 512,
    "data.target-tokens-per-batch": 512,
    "data.max-shapes": 1,
    "model.num-layers": 1,
    "model.d-model": 16,
    "model.d-ff": 32,
    "model.num-heads": 2,
    "training.num-steps": STEPS,
    "training.log-every": 1,
    "training.checkpoint-every": INTERVAL,
    "training.keep-checkpoints": 3,
    "training.average-last": 2,
    "decoding.beam-size": 1,
    "decoding.extra-length": 0,
}


def write_text(folder: Path) -> None:
    """A few hundred pairs of the embedded corpus."""
    source = open_source(Data())
    for split, stem, count in (("train", "train", 300), ("validation", "valid", 8), ("test", "test", 4)):
        pairs = list(itertools.islice(source.pairs(split), count))  # type: ignore[arg-type]
        for side, language in enumerate(("en", "de")):
            (folder / f"{stem}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")


def arguments(text: Path, run: Path) -> list[object]:
    """The command line that trains in `run`."""
    settings = SETTINGS | {"data.directory": text}
    options = [word for name, value in settings.items() for word in (f"--{name}", value)]
    return ["train", "experiments/quickstart.py", "--workdir", run, *options]


def moment(run: Path, chance: random.Random) -> tuple[str, str, Callable[[Group], bool]]:
    """When to kill next: its kind, in words, and whether that moment has come."""
    kind = chance.choice(["start", "step", "checkpoint", "checkpoint"])
    done = finished_steps(run)[-1] if finished_steps(run) else 0
    if kind == "start":
        deadline = time.monotonic() + chance.uniform(0.5, 8)
        return kind, "while they start", lambda group: time.monotonic() > deadline
    if kind == "step":
        step = done + chance.randint(1, INTERVAL)
        return kind, f"at step {step}", lambda group: f"\nstep {step}/" in group.log(0)
    folder = run / "checkpoints"
    known = {path.name for path in folder.glob("*")}
    return (
        kind,
        "while a checkpoint is written",
        lambda group: any(path.name not in known and not (path / "sha256.json").exists() for path in folder.glob("*")),
    )


def chaos(kills: int, count: int, chance: random.Random, place: Path) -> bool:
    """Whether a run of `count` processes that is killed `kills` times ends like one that is not."""
    text, whole, run = (place / name for name in ("text", "whole", "run"))
    text.mkdir()
    write_text(text)
    with Group(count, *arguments(text, whole)) as group:
        assert group.wait() == [0] * count, group.log(0)
    used = 0
    while used < kills:
        kind, words, come = moment(run, chance)
        victims = range(count) if kind == "start" else [chance.randrange(count)]
        with Group(count, *arguments(text, run)) as group:
            while not come(group) and all(process.poll() is None for process in group.processes):
                time.sleep(0.001)
            time.sleep(chance.random() * 0.05)
            for victim in victims:
                group.processes[victim].send_signal(signal.SIGKILL)
            started = time.monotonic()
            statuses = group.wait(60)  # TimeoutExpired is what a hang looks like
            took = time.monotonic() - started
            killed = any(statuses[victim] == -signal.SIGKILL for victim in victims)
            used += killed
            who = "all" if kind == "start" else f"process {victims[0]}"
            end = f"all had ended {took:.1f} s later" if killed else "too late"
            print(f"kill {used}: {who} {words}; {end}; newest checkpoint: {finished_steps(run)[-1:] or 'none'}")
            others = {status for number, status in enumerate(statuses) if number not in victims}
            assert not killed or others <= {0, 1}, group.log(0) + group.log(1)
        if finished_steps(run)[-1:] == [STEPS] and used < kills:  # it has come to its end: begin again elsewhere
            verify(whole, run)
            run = place / f"run{used}"
    with Group(count, *arguments(text, run)) as group:
        assert group.wait() == [0] * count, group.log(0)
    return verify(whole, run)


def verify(whole: Path, run: Path) -> bool:
    """Whether the final checkpoints and averages are the same bit for bit."""
    with Checkpoints(whole) as left, Checkpoints(run) as right:
        pairs = [(left.params(STEPS), right.params(STEPS)), (load_averaged(whole, 2)[0], load_averaged(run, 2)[0])]
    same = all(jax.tree.all(jax.tree.map(np.array_equal, *pair)) for pair in pairs)
    print(f"{run.name}: final parameters and average {'equal, bit for bit' if same else 'DIFFER'}")
    return same


def main() -> int:
    """Run the script; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 16))
    parser.add_argument("--keep", type=Path, help="work here instead of in a temporary folder, and leave it")
    options = parser.parse_args()
    print(f"{options.kills} kills of a run of {options.processes} processes, seed {options.seed}")
    with tempfile.TemporaryDirectory() as temporary:
        place = options.keep or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        return 0 if chaos(options.kills, options.processes, random.Random(options.seed), place) else 1


if __name__ == "__main__":
    sys.exit(main())
