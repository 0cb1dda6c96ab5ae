"""Training as a job of a real Slurm: pushed out and queued again, cancelled, failed."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from t2t_jax.run_directory import finished_steps
from t2t_jax.training.checkpoints import Checkpoints
from tests.integration.slurm_cluster import Unavailable, cluster
from tests.integration.test_sweep import write_sweep

PATIENCE = 250
"""Seconds in which a job must get anywhere; there to end a test that would hang."""


class Queue:
    """The cluster, and jobs submitted to it by launch.py."""

    def __init__(self, launch: Callable, environment: dict[str, str]) -> None:
        self.launch = launch
        self.environment = environment

    def submit(self, *arguments: object) -> tuple[str, Path]:
        """Job id and log of a training run."""
        done = self.launch("train", *arguments, "--launcher", "slurm", env=self.environment)
        assert done.returncode == 0, done.stderr
        said = dict(line.split(":", 1) for line in done.stdout.strip().split("\n"))
        return said["job"].strip(), Path(said["log"].strip())

    def ask(self, *command: str) -> str:
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout

    def facts(self, job: str) -> dict[str, str]:
        """What `scontrol show job` says."""
        return dict(re.findall(r"(\w+)=(\S+)", self.ask("scontrol", "--oneliner", "show", "job", job)))

    def wait_for_state(self, job: str, log: Path, *states: str) -> dict[str, str]:
        return self._wait(lambda: (facts := self.facts(job))["JobState"] in states and facts, log)

    def wait_for_line(self, log: Path, beginning: str) -> None:
        self._wait(lambda: log.exists() and f"\n{beginning}" in f"\n{log.read_text()}", log)

    def _wait(self, look: Callable, log: Path) -> dict[str, str]:
        deadline = time.monotonic() + PATIENCE
        while not (seen := look()):
            assert time.monotonic() < deadline, log.read_text() if log.exists() else "not started"
            time.sleep(0.05)
        return seen


@pytest.fixture(scope="module")
def queue(launch) -> Iterator[Queue]:
    pytest.importorskip("submitit", reason="submitit is not installed")
    try:
        with cluster() as environment:
            yield Queue(launch, environment)
    except Unavailable as error:
        pytest.skip(f"Slurm: {error}")


def test_a_preempted_job_is_queued_again_and_ends_with_the_same_parameters(
    queue: Queue, tiny, trained: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    # A checkpoint and a line at every step make the run long enough to be stopped in the middle.
    slow = ["--training.checkpoint-every", 1, "--training.log-every", 1]
    job, log = queue.submit(*tiny, "--workdir", run, *slow)
    queue.wait_for_line(log, "step 3/40")
    queue.ask("sbatch", "--partition=urgent", "--ntasks=2", f"--output={tmp_path}/urgent", "--wrap", "true")
    facts = queue.wait_for_state(job, log, "COMPLETED", "FAILED", "CANCELLED")
    said = log.read_text()
    assert (facts["JobState"], facts["Restarts"], facts["ExitCode"]) == ("COMPLETED", "1", "0:0"), said
    (step,) = map(int, re.findall(r"Stopped by SIGTERM at step (\d+) with a checkpoint", said))
    assert 3 <= step < 40
    assert f"Job {job} is queued again and goes on from the checkpoint." in said
    assert f"Going on from the checkpoint of step {step}." in said
    with Checkpoints(run) as ours, Checkpoints(trained) as theirs:
        assert ours.steps[-1] == theirs.steps[-1] == 40
        final = ours.params(40), theirs.params(40)
    assert jax.tree.all(jax.tree.map(np.array_equal, *final))
    assert [path.name for path in log.parent.glob("*_submitted.pkl")] == [f"{job}_submitted.pkl"]
    assert not list(run.rglob("*.pkl")), "a run directory holds no pickle"


def test_a_cancelled_job_of_two_processes_saves_and_does_not_come_back(queue: Queue, tiny, tmp_path: Path) -> None:
    run = tmp_path / "run"
    long = ["--training.num-steps", 100_000, "--training.log-every", 1]
    job, log = queue.submit(*tiny, "--workdir", run, *long, "--slurm.tasks-per-node", 2)
    queue.wait_for_line(log, "step 11/")
    queue.ask("scancel", job)
    facts = queue.wait_for_state(job, log, "CANCELLED", "COMPLETED", "FAILED")
    queue.wait_for_line(log, f"Job {job} is not queued again")
    time.sleep(3)  # in which it would be
    assert facts["JobState"] == queue.facts(job)["JobState"] == "CANCELLED"
    assert queue.facts(job)["Restarts"] == "0"
    assert "on 2 cpu devices" in log.read_text()
    (step,) = map(int, re.findall(r"Stopped by SIGTERM at step (\d+) with a checkpoint", log.read_text()))
    assert finished_steps(run)[-1] == step


def test_rows_of_a_sweep_are_jobs_one_of_which_is_stopped_and_comes_back(
    queue: Queue, small_corpus: Path, tmp_path: Path
) -> None:
    file = write_sweep(tmp_path / "s.py", small_corpus, {"base": {}, "no dropout": {"dropout": 0.0}}, steps=200)
    words, runs = ["sweep", file, "--workdir", tmp_path / "runs", "--launcher", "slurm", "--json"], tmp_path / "runs"
    first = queue.launch(*words, env=queue.environment)
    assert first.returncode == 0, first.stderr
    folders = [row["run"] for row in json.loads(first.stdout)["rows"]]
    assert all(row["state"] in ("queued", "running") for row in json.loads(first.stdout)["rows"])
    jobs = json.loads((runs / "jobs.json").read_text())
    logs = {folder: runs / ".slurm" / folder / f"{jobs[folder]}_0_log.err" for folder in folders}

    stopped = folders[1]
    queue.wait_for_line(logs[stopped], "step 12/200")
    queue.ask("scancel", "--signal=USR2", jobs[stopped])
    again = queue.launch(*words, env=queue.environment)
    assert json.loads((runs / "jobs.json").read_text()) == jobs, "what is queued is not queued twice"
    assert {row["state"] for row in json.loads(again.stdout)["rows"]} <= {"queued", "running", "done"}
    for folder in folders:
        facts = queue.wait_for_state(jobs[folder], logs[folder], "COMPLETED", "FAILED", "CANCELLED")
        restarts = "1" if folder == stopped else "0"
        assert (facts["JobState"], facts["Restarts"]) == ("COMPLETED", restarts), logs[folder].read_text()
    (step,) = re.findall(r"Stopped by SIGUSR2 at step (\d+) with a checkpoint", logs[stopped].read_text())
    assert f"Going on from the checkpoint of step {step}." in logs[stopped].read_text()

    last = queue.launch(*words, env=queue.environment)
    assert last.returncode == 0
    assert [row["state"] for row in json.loads(last.stdout)["rows"]] == ["done", "done"]
    assert all(row["bleu"] is not None for row in json.loads(last.stdout)["rows"])
    assert not list(runs.glob("*/*.pkl")), "a run directory holds no pickle"


def test_a_command_that_fails_is_a_failed_job_with_its_status(queue: Queue, tiny, tmp_path: Path) -> None:
    job, log = queue.submit(*tiny, "--workdir", tmp_path / "run", "--data.directory", tmp_path / "nowhere")
    facts = queue.wait_for_state(job, log, "FAILED", "COMPLETED", "CANCELLED")
    assert (facts["JobState"], facts["ExitCode"], facts["Restarts"]) == ("FAILED", "2:0", "0")
    said = log.read_text()
    assert "error: " in said and "nowhere" in said
    assert "Traceback" not in said


def test_a_job_that_slurm_refuses_is_one_sentence(queue: Queue, launch, tiny, tmp_path: Path) -> None:
    options = ["--launcher", "slurm", "--workdir", tmp_path / "run"]
    refused = launch("train", *tiny, *options, "--slurm.partition", "nope", env=queue.environment)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: Slurm does not take the job: ") and "partition" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_what_the_job_would_be_refused_for_is_told_at_once(launch, tiny, trained: Path) -> None:
    refused = launch("train", *tiny, "--workdir", trained, "--model.dropout", 0.3, "--launcher", "slurm")
    assert refused.returncode == 2
    assert "model.dropout=0.1 there, 0.3 now" in refused.stderr and refused.stderr.count("\n") == 1
    assert not (trained.parent / ".slurm").exists()
