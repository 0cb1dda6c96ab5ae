"""Several processes as one run: where each learns its place, and how the end of one becomes the end of all."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from t2t_jax.errors import ConfigError, exit_status, in_one_line
from t2t_jax.parallel.channel import Channel, Loss, gather_at
from t2t_jax.progress import console

VARIABLES = {
    "coordinator": "T2T_JAX_COORDINATOR",
    "num_processes": "T2T_JAX_NUM_PROCESSES",
    "process_id": "T2T_JAX_PROCESS_ID",
}
PATIENCE = 300  # seconds to wait for processes that start later
GRACE = 3  # seconds in which the channel notices whatever a collective or a barrier can fail for
FROZEN = 45  # seconds until JAX gives up a process that lives but does not move


@dataclass(frozen=True)
class Processes:
    """This process among several. Slurm's environment or T2T_JAX_COORDINATOR, …_NUM_PROCESSES, …_PROCESS_ID also do."""

    coordinator: str | None = None
    """Of a run of several processes: HOST:PORT of process 0, the same for all. Slurm's environment says it too."""
    num_processes: int | None = None
    """How many processes there are."""
    process_id: int | None = None
    """Which of them this one is, from 0."""


@dataclass(frozen=True)
class Place:
    """One process of a run of `count`, and where process 0 is."""

    host: str
    port: int
    count: int
    number: int


def find_place(given: Processes, environment: Mapping[str, str]) -> Place | None:
    """This process's place by options, else by T2T_JAX_… variables, else by Slurm; None when it is on its own.

    Raises:
      ConfigError: only a part of the three was given, or one cannot be.
    """
    values = {name: getattr(given, name) for name in VARIABLES}
    for name, variable in VARIABLES.items():
        if values[name] is None:
            values[name] = environment.get(variable)
    missing = [name for name, value in values.items() if value is None]
    if len(missing) == len(values):
        return _place_in_slurm(environment)
    if missing:
        options = ", ".join(f"--{name.replace('_', '-')} (or {VARIABLES[name]})" for name in missing)
        raise ConfigError(f"A run of several processes also needs {options}.")
    host, _, port = str(values["coordinator"]).rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise ConfigError(f"coordinator={values['coordinator']!r} must be HOST:PORT of process 0.")
    try:
        count, number = int(values["num_processes"]), int(values["process_id"])
    except ValueError:
        raise ConfigError(
            f"num_processes={values['num_processes']!r} and process_id={values['process_id']!r} must be numbers."
        ) from None
    if not 0 <= number < count:
        raise ConfigError(f"process_id={number} must lie between 0 and num_processes - 1 = {count - 1}.")
    return Place(host.strip("[]"), int(port), count, number)


def _place_in_slurm(environment: Mapping[str, str]) -> Place | None:
    """Every task of a step that srun started is a process. A batch script itself is not in such a step."""
    if int(environment.get("SLURM_STEP_NUM_TASKS", "1")) == 1:
        return None
    job, step = (int(environment.get(name, "0")) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
    return Place(
        host=_first_host(environment["SLURM_STEP_NODELIST"]),
        port=61_440 + (job + step) % 4_096,  # above what Linux gives to outgoing connections
        count=int(environment["SLURM_STEP_NUM_TASKS"]),
        number=int(environment["SLURM_PROCID"]),
    )


def _first_host(nodes: str) -> str:
    """The first of Slurm's node list: 'gpu[07-09,12],x1' gives 'gpu07'."""
    match = re.match(r"([^,\[]+)(?:\[(\d+)[^\]]*\]([^,\[]*))?", nodes)
    if match is None:
        raise ConfigError(f"SLURM_STEP_NODELIST={nodes!r} names no node.")
    return "".join(part or "" for part in match.groups())


@contextlib.contextmanager
def connected(given: Processes) -> Iterator[Channel]:
    """Within it this process takes part in the run, and JAX sees the devices of all processes.

    A process that fails tells the others why; they say so and end as well, wherever they are, with its exit status.

    Raises:
      ConfigError, RunError: the place is not clear, or the others cannot be met.
    """
    place = find_place(given, os.environ)
    if place is None or place.count == 1:
        yield Channel.alone()
        return
    console.quiet = place.number > 0
    _keep_output_for_results()
    channel = gather_at((place.host, place.port), place.number, place.count, PATIENCE, _end_with)
    try:
        _connect_jax(channel, place.host)
        yield channel
        channel.exchange()
    except BaseException as error:
        time.sleep(GRACE)  # it may only follow from another process's end, of which the channel is about to tell
        status = exit_status(error)
        channel.fail(in_one_line(error), status)
        atexit.register(_leave, status)  # JAX would wait at its exit for processes that are not going to come
        raise
    import jax

    jax.distributed.shutdown()
    channel.close()


def _connect_jax(channel: Channel, host: str) -> None:
    import jax

    if channel.first:
        with socket.create_server(("", 0)) as server:
            port = server.getsockname()[1]
        channel.exchange(port)
    else:
        port = channel.exchange()[0]
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM from us
    jax.distributed.initialize(
        coordinator_address=f"{host}:{port}",
        num_processes=channel.count,
        process_id=channel.number,
        cluster_detection_method="deactivate",
        heartbeat_timeout_seconds=FROZEN,
    )


def _keep_output_for_results() -> None:
    """Gloo, which does JAX's collectives between CPUs, tells file descriptor 1 about each connection it makes."""
    sys.stdout.flush()
    results = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout = os.fdopen(results, "w", encoding="utf-8", errors="replace")


def _end_with(loss: Loss) -> None:
    """End this process because another one has ended; called beside a main thread that may be waiting for it."""
    what = f": {loss.reason}" if loss.reason else " without a word"
    print(f"error: process {loss.process} ended{what}", file=sys.stderr)
    print("This process ends with it; the same command goes on from the last checkpoint.", file=sys.stderr)
    _leave(loss.status)


def _leave(status: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
