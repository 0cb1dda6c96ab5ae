"""Real processes on a small corpus: what the integration tests share."""

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from t2t_jax.config import Data
from t2t_jax.data.sources import open_source

ROOT = Path(__file__).parents[2]

Launch = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def launch() -> Launch:
    """`launch.py` in a process of its own, with its output as text."""

    def run(*arguments: object, stdin: str | bytes = "", **keywords: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "launch.py"), *map(str, arguments)]
        given = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(command, input=given, capture_output=True, cwd=ROOT, timeout=300, **keywords)  # type: ignore[call-overload]
        return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train, valid and test files of 400, 20 and 12 embedded pairs."""
    folder = tmp_path_factory.mktemp("corpus")
    source = open_source(Data())
    for split, stem, count in (("train", "train", 400), ("validation", "valid", 20), ("test", "test", 12)):
        pairs = list(itertools.islice(source.pairs(split), count))  # type: ignore[arg-type]
        for side, language in enumerate(("en", "de")):
            (folder / f"{stem}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny(small_corpus: Path) -> list[str]:
    """Arguments of a training run that takes seconds."""
    settings = {
        "data.source": "files",
        "data.directory": small_corpus,
        "data.vocabulary-size": 500,
        "data.max-length": 48,
        "data.source-tokens-per-batch": 512,
        "data.target-tokens-per-batch": 512,
        "data.max-shapes": 2,
        "model.num-layers": 1,
        "model.d-model": 16,
        "model.d-ff": 32,
        "model.num-heads": 2,
        "training.num-steps": 40,
        "training.log-every": 5,
        "training.checkpoint-every": 10,
        "training.keep-checkpoints": 3,
        "training.average-last": 2,
        "decoding.extra-length": 4,
        "decoding.beam-size": 2,
    }
    experiment = ["experiments/quickstart.py"]
    return experiment + [word for name, value in settings.items() for word in (f"--{name}", str(value))]


@pytest.fixture(scope="session")
def trained(launch: Launch, tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of an undisturbed tiny training run."""
    run = tmp_path_factory.mktemp("trained") / "run"
    done = launch("train", *tiny, "--workdir", run)
    assert done.returncode == 0, done.stderr
    return run
