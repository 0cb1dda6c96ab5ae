"""A command line handed to Slurm: what to ask for, how it is submitted, and what the job does with it."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_jax.errors import ConfigError, UserError

SOURCE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Slurm:
    """What a job asks Slurm for; none of it changes the run."""

    partition: str | None = None
    """Partition to queue in; the cluster's default by default."""
    account: str | None = None
    """Account to charge."""
    nodes: int = 1
    """Machines."""
    tasks_per_node: int = 1
    """Processes on each; one drives all devices of its machine."""
    gpus_per_node: int | None = None
    """GPUs on each machine."""
    cpus_per_task: int | None = None
    """CPU cores for each process."""
    time: int = 1440
    """Minutes until the job is stopped; what is not finished by then is saved, queued again and goes on."""
    notice: int = 120
    """Seconds before the end of its time at which the run is told to save."""
    additional: tuple[str, ...] = ()
    """Further options of sbatch: mem=64G qos=long exclusive …"""
    folder: Path | None = None
    """Where the job's files and logs go; .slurm/NAME beside the run directory by default."""

    def __post_init__(self) -> None:
        for name, least in (("nodes", 1), ("tasks_per_node", 1), ("gpus_per_node", 0), ("cpus_per_task", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"slurm.{name}={value} must be at least {least}.")
        if not 0 < self.notice < 60 * self.time:
            raise ConfigError(
                f"slurm.notice={self.notice} seconds must be more than 0 and less than slurm.time={self.time} minutes."
            )
        for option in self.additional:
            if not option[:1].isalpha():
                raise ConfigError(f"slurm.additional={option!r} is no option of sbatch; write mem=64G or exclusive.")

    def parameters(self, name: str) -> dict[str, Any]:
        """The arguments of submitit's `update_parameters` for a job called `name`."""
        srun = ["--kill-on-bad-exit=1"]  # a process that is alone with its failure must not leave others waiting
        if self.cpus_per_task is not None:  # since Slurm 22.05 a step no longer takes this from its job
            srun.append(f"--cpus-per-task={self.cpus_per_task}")
        pairs = (option.partition("=") for option in self.additional)
        return {
            "job_name": name,
            "partition": self.partition,
            "account": self.account,
            "nodes": self.nodes,
            "ntasks_per_node": self.tasks_per_node,
            "gpus_per_node": self.gpus_per_node,
            "cpus_per_task": self.cpus_per_task,
            "time": self.time,
            "signal_delay_s": self.notice,
            "setup": [f"export PYTHONPATH={shlex.quote(str(SOURCE))}${{PYTHONPATH:+:$PYTHONPATH}}"],
            "srun_args": srun,
            "wckey": None,  # submitit's own default is one that no cluster knows
            "additional_parameters": {"requeue": True} | {key: value if is_ else True for key, is_, value in pairs},
        }


@dataclass(frozen=True)
class Submitted:
    """A job in the queue."""

    job: str
    output: Path
    """Standard output of its first process."""
    errors: Path
    """Its log: standard error of its first process."""


def submit(words: Sequence[str], name: str, folder: Path, settings: Slurm) -> Submitted:
    """Queue `launch.py WORDS` as a job called `name` whose files lie in `folder`.

    The job must be runnable as it is: the words hold nothing that would submit again. Relative paths in them are seen
    from the present working directory, there too.

    Raises:
      UserError: submitit or Slurm is not here, the folder cannot be written, or Slurm refuses what the job asks for.
    """
    if importlib.util.find_spec("submitit") is None:
        raise UserError("Slurm jobs are submitted with submitit, which is not installed: pip install 'submitit>=1.5'.")
    for tool in ("sbatch", "srun"):
        if shutil.which(tool) is None:
            raise UserError(f"Slurm is not here ({tool} is not on PATH); submit from a node of the cluster.")
    from submitit import SlurmExecutor
    from submitit.core.utils import FailedJobError, FailedSubmissionError
    from submitit.helpers import clean_env

    cluster = {name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ}
    before = set(folder.glob("*"))
    try:
        executor = SlurmExecutor(folder=folder)
        executor.update_parameters(**settings.parameters(name))
        # What a job that this may run in was given is not for the new one. And submitit prints what its exceptions say.
        with clean_env(), contextlib.redirect_stderr(io.StringIO()):
            os.environ.update(cluster)
            job = executor.submit(Command(list(words)))
    except (FailedJobError, FailedSubmissionError) as error:
        for left in set(folder.glob("*")) - before:  # the files of a job that is none
            left.unlink()
        said = [line.removeprefix("sbatch: ") for line in str(error).splitlines() if line.startswith("sbatch: ")]
        reason = said[-1].removeprefix("error: ").removeprefix("fatal: ") if said else str(error)
        raise UserError(f"Slurm does not take the job: {reason.rstrip('.')}.") from None
    except OSError as error:
        raise UserError(f"The job's folder {str(folder)!r} cannot be written: {error.strerror or error}.") from None
    return Submitted(job.job_id, job.paths.stdout, job.paths.stderr)


class Command:
    """A command line of launch.py as a job: all that goes into the pickle that submitit makes.

    Three things can stop it before its end. A signal during training is noted by training itself, whose handlers go in
    after submitit's; it saves and the command ends with status 75, whereupon the job is queued again. A signal at
    another time reaches submitit, which queues it again at once: there is nothing to save. And Slurm may requeue
    by itself. Each time the same command goes on from what the run directory holds.
    """

    def __init__(self, words: list[str]) -> None:
        self.words = words

    def __call__(self) -> None:
        from t2t_jax.command_line import DONE, STOPPED, main

        sys.argv = ["launch.py", *self.words]  # what this process stands for, which a run records
        status = main(self.words)
        if status == STOPPED:
            if os.environ["SLURM_PROCID"] != "0":  # one asks for all; its siblings have ended well
                raise SystemExit(DONE)
            requeue(os.environ["SLURM_JOB_ID"])
        if status != DONE:
            raise SystemExit(status)

    def checkpoint(self) -> Any:
        """What submitit is to run when it queues the job again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def requeue(job: str) -> None:
    """Queue the job again that this process is a part of, unless it was stopped because it was cancelled.

    A job that Slurm has ended already, by scancel or to requeue it itself, no longer counts as running.
    """
    state = subprocess.run(["squeue", "--noheader", "--format=%T", f"--jobs={job}"], capture_output=True, text=True)
    if state.stdout.strip() != "RUNNING":
        print(f"Job {job} is not queued again: it is {state.stdout.strip() or 'gone'}.", file=sys.stderr)
        return
    print(f"Job {job} is queued again and goes on from the checkpoint.", file=sys.stderr, flush=True)
    asked = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True)
    if asked.returncode:
        print(f"Slurm does not queue it again: {asked.stderr.strip()}", file=sys.stderr)


def job_folder(run: Path, settings: Slurm) -> Path:
    """Where a job that writes `run` keeps its own files: never inside, since a run directory holds no pickle.

    Raises:
      UserError: the settings ask for a folder inside the run directory.
    """
    run = run.resolve()
    folder = (settings.folder or run.parent / ".slurm" / run.name).resolve()
    if folder.is_relative_to(run):
        raise UserError(f"slurm.folder={str(folder)!r} is inside the run directory {str(run)!r}; put it elsewhere.")
    return folder
