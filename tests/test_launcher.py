import io
import pickle
import sys
from pathlib import Path

import pytest

from t2t_jax import command_line
from t2t_jax.errors import ConfigError, UserError
from t2t_jax.launcher import Command, Slurm, job_folder

QUICKSTART = "experiments/quickstart.py"


def script(settings: Slurm) -> list[str]:
    """The lines of the batch script that submitit writes for a job."""
    slurm = pytest.importorskip("submitit.slurm.slurm", reason="submitit is not installed")
    return slurm._make_sbatch_string("COMMAND", "/jobs", **settings.parameters("base")).split("\n")


def test_a_job_asks_for_what_the_settings_say() -> None:
    lines = script(Slurm(partition="gpu", account="us", nodes=2, tasks_per_node=4, gpus_per_node=8, time=90, notice=60))
    for option in (
        "job-name=base", "partition=gpu", "account=us", "nodes=2", "ntasks-per-node=4", "gpus-per-node=8", "time=90",
        "signal=USR2@60", "open-mode=append", "requeue",
    ):  # fmt: skip
        assert f"#SBATCH --{option}" in lines
    assert not any("cpus-per-task" in line or "wckey" in line for line in lines), "what is not asked for is not there"
    (command,) = (line for line in lines if line.startswith("srun "))
    assert "--kill-on-bad-exit=1 COMMAND" in command


def test_a_step_gets_the_cores_of_its_job() -> None:
    lines = script(Slurm(cpus_per_task=7))
    assert "#SBATCH --cpus-per-task=7" in lines
    assert any(line.startswith("srun ") and "--cpus-per-task=7" in line for line in lines)


def test_additional_options_come_as_they_are_and_win() -> None:
    lines = script(Slurm(additional=("mem=64G", "exclusive", "time=0:30", "comment=a=b c")))
    assert {"#SBATCH --mem=64G", "#SBATCH --exclusive", "#SBATCH --time=0:30"} <= set(lines)
    assert "#SBATCH --comment='a=b c'" in lines
    assert "#SBATCH --time=1440" not in lines


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"nodes": 0}, "slurm.nodes=0 must be at least 1"),
        ({"gpus_per_node": -1}, "slurm.gpus_per_node=-1 must be at least 0"),
        ({"time": 2}, "slurm.notice=120 seconds must be more than 0 and less than slurm.time=2 minutes"),
        ({"additional": ("=3",)}, "slurm.additional='=3' is no option of sbatch"),
    ],
)
def test_settings_that_cannot_work(wrong: dict, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Slurm(**wrong)


def test_the_pickle_holds_a_command_line_and_nothing_else(tmp_path: Path) -> None:
    utils = pytest.importorskip("submitit.core.utils", reason="submitit is not installed")
    words = ["train", QUICKSTART, "--launcher", "local"]
    utils.DelayedSubmission(Command(words)).dump(tmp_path / "job.pkl")
    named = set()

    class Noting(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> type:
            named.add(f"{module}.{name}")
            return super().find_class(module, name)

    job = Noting(io.BytesIO((tmp_path / "job.pkl").read_bytes())).load()
    assert vars(job.function) == {"words": words}
    assert (job.args, job.kwargs) == ((), {})
    assert named == {"submitit.core.utils.DelayedSubmission", "t2t_jax.launcher.Command"}
    assert job.function.checkpoint().function.words == words, "queued again, it is the same job"


@pytest.mark.parametrize("status", [command_line.DONE, command_line.USER_ERROR, command_line.STOPPED])
def test_the_first_process_speaks_for_a_stopped_job(status: int, tmp_path: Path, monkeypatch) -> None:
    """A process that ends with another status than 0 would have Slurm end the others, and the one that requeues."""
    monkeypatch.setattr(command_line, "main", lambda words: status)
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("PATH", str(tmp_path))  # where nothing could be asked of Slurm
    try:
        Command(["train", QUICKSTART])()
        left_with = 0
    except SystemExit as leaving:
        left_with = leaving.code
    assert left_with == (2 if status == 2 else 0)


def test_job_files_stay_outside_the_run_directory(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "base"
    assert job_folder(run, Slurm()) == tmp_path / "runs" / ".slurm" / "base"
    assert job_folder(run, Slurm(folder=tmp_path / "jobs")) == tmp_path / "jobs"
    for inside in (run, run / "jobs", tmp_path / "runs" / "x" / ".." / "base" / "jobs"):
        with pytest.raises(UserError, match="inside the run directory"):
            job_folder(run, Slurm(folder=inside))


@pytest.mark.parametrize(("missing", "sentence"), [("submitit", "pip install 'submitit"), ("sbatch", "not on PATH")])
def test_what_is_not_here_is_named(missing: str, sentence: str, tmp_path: Path, monkeypatch, capsys) -> None:
    if missing == "submitit":
        monkeypatch.setitem(sys.modules, "submitit", None)
    else:
        pytest.importorskip("submitit", reason="submitit is not installed")
        monkeypatch.setenv("PATH", str(tmp_path))
    run = tmp_path / "runs" / "base"
    assert command_line.main(["train", QUICKSTART, "--launcher", "slurm", "--workdir", str(run)]) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err and printed.err.startswith("error: ") and printed.err.count("\n") == 1
    assert printed.out == ""
    assert not run.parent.exists(), "nothing half-made is left"
