import subprocess
import sys
from pathlib import Path

import pytest

from t2t_jax.errors import RunError
from t2t_jax.run_lock import LOCK, locked

HOLD = """
import sys, time
from pathlib import Path
from t2t_jax.run_lock import locked
run = Path(sys.argv[1])
with locked(run):
    (run / "work").touch()
    print("held", flush=True)
    time.sleep(60)
"""


def test_second_writer_is_refused_by_name_and_a_dead_one_is_forgotten(tmp_path: Path) -> None:
    run = tmp_path / "run"
    root = Path(__file__).parents[1]
    with subprocess.Popen([sys.executable, "-c", HOLD, str(run)], stdout=subprocess.PIPE, cwd=root) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"held\n"
        with pytest.raises(RunError, match=f"process {owner.pid} on .* is writing"), locked(run):
            pass
        owner.kill()
    with locked(run):
        pass
    assert (run / "work").exists()


def test_lock_can_be_taken_again_and_leaves_no_empty_folder(tmp_path: Path) -> None:
    run = tmp_path / "deep" / "run"
    for _ in range(2):
        with locked(run):
            assert (run / LOCK).exists()
        assert not (tmp_path / "deep").exists()


def test_unwritable_place_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="cannot be written"), locked(tmp_path / "file"):
        pass
