"""Rows as Slurm jobs: which are submitted, and what the queue says of those that were."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence

from t2t_jax.errors import RunError
from t2t_jax.files import write_atomically
from t2t_jax.launcher import Slurm, job_folder, submit
from t2t_jax.progress import say
from t2t_jax.sweeps import rows
from t2t_jax.sweeps.rows import Row, State, Sweep

JOBS = "jobs.json"  # in the sweep's directory: the newest job of each run by the name of its folder
OVER = {"FAILED": 1, "OUT_OF_MEMORY": 1, "NODE_FAIL": 1, "BOOT_FAIL": 1, "DEADLINE": 1}  # with no one left to say why


def submit_rows(sweep: Sweep, wanted: Sequence[Row], settings: Slurm) -> None:
    """Queue a job for each row; it requeues itself when it is stopped, and goes on from its checkpoint.

    Raises:
      UserError: submitit or Slurm is not here, or Slurm refuses what a job asks for; jobs before it stay queued.
    """
    jobs = _read_jobs(sweep)
    for row in wanted:
        words = ["train-row", str(sweep.directory), row.directory.name]
        job = submit(words, f"{sweep.name}.{row.directory.name}", job_folder(row.directory, settings), settings)
        jobs[row.directory.name] = job.job
        write_atomically(sweep.directory / JOBS, json.dumps(jobs, indent=1) + "\n")
        say(f"{row.directory.name}: job {job.job}, log {job.errors}")


def in_queue(sweep: Sweep) -> dict[Row, State]:
    """Rows that have a job which has not ended, and how far they are.

    A row whose job Slurm has ended with a failure, memory run out for example, has failed, and is recorded as such.

    Raises:
      RunError: there are such jobs, but Slurm does not say whether they wait.
    """
    jobs = _read_jobs(sweep)
    if not jobs or shutil.which("squeue") is None:
        return {}
    lines = _asked("squeue", "--noheader", "--format=%A %T", f"--user={os.getuid()}")
    if lines is None:  # which is not an empty queue: rows would be submitted twice
        raise RunError("Slurm does not say which of the sweep's jobs are in its queue; give the command again later.")
    queued = dict(line.split() for line in lines)
    found = {}
    for row in sweep.rows:
        job = jobs.get(row.directory.name)
        if job is None:
            continue
        state = rows.state(row)
        if job in queued:
            told = f"job {job}, {queued[job].lower()}"
            found[row] = State("running" if queued[job] == "RUNNING" else "queued", state.step, told)
        elif state.kind not in ("done", "failed") and (ended := _end_of(job)) in OVER:
            rows.record_failure(row, f"Slurm says of job {job}: {ended}", OVER[ended])
    return found


def _end_of(job: str) -> str:
    """The state of a job that has left the queue, as far as Slurm still knows it."""
    for line in _asked("scontrol", "--oneliner", "show", "job", job) or ():
        if match := re.search(r"\bJobState=(\w+)", line):
            return match[1]
    told = _asked("sacct", "--noheader", "--allocations", "--parsable2", "--format=State", f"--jobs={job}")
    return told[-1].split()[0] if told else ""


def _asked(*command: str) -> list[str] | None:
    """The lines that a command of Slurm prints; None when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.splitlines() if done.returncode == 0 else None


def _read_jobs(sweep: Sweep) -> dict[str, str]:
    path = sweep.directory / JOBS
    if not path.is_file():
        return {}
    try:
        jobs = json.loads(path.read_text(encoding="utf-8"))
        return {str(folder): str(job) for folder, job in jobs.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise RunError(
            f"{str(path)!r} is damaged ({error!r}); delete it once none of the sweep's jobs is left."
        ) from None
