import random
from pathlib import Path

from tests.chaos import chaos


def test_a_run_whose_processes_are_killed_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    """The short form of tests/chaos.py."""
    seed = random.SystemRandom().randrange(1 << 16)
    assert chaos(3, 2, random.Random(seed), tmp_path), f"seed {seed}"
