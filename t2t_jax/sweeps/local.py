"""Rows trained on this machine: each in a process of its own, so many at a time, all asked to stop when this one is."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from t2t_jax import run_directory
from t2t_jax.data import store
from t2t_jax.errors import UserError, exit_status
from t2t_jax.launcher import SOURCE
from t2t_jax.progress import say
from t2t_jax.sweeps import rows
from t2t_jax.sweeps.rows import Row, Sweep
from t2t_jax.training import loop
from t2t_jax.training.interruption import SIGNALS

INTERVAL = 0.3  # seconds between two looks at the processes
DONE, STOPPED = 0, 75  # exit statuses of a row's process


def prepare_data(sweep: Sweep, wanted: Sequence[Row]) -> list[Row]:
    """Prepare the data of rows, once for all that share it; those whose data cannot be had fail, the others return.

    Raises:
      UserError: no row of the sweep has begun, and there is data for none.
    """
    sharing: dict[str, list[Row]] = {}
    for row in wanted:
        sharing.setdefault(str(rows.experiment_to_run(row).data.store), []).append(row)
    settings = {
        place: loop.data_settings(rows.experiment_to_run(first), first.directory)
        for place, (first, *_) in sharing.items()
    }
    mistakes: dict[str, UserError] = {}
    origins: dict[str, dict[str, Any]] = {}
    for place, data in settings.items():
        try:
            origins[place] = store.origin(data)
        except UserError as error:
            mistakes[place] = error
    for place, made_from in origins.items():
        try:
            store.prepare(settings[place], sharing[place][0].directory, made_from)
        except UserError as error:
            mistakes[place] = error
    if mistakes and len(mistakes) == len(sharing) and len(wanted) == len(sweep.rows):
        raise next(iter(mistakes.values()))
    for place, mistake in mistakes.items():
        for row in sharing[place]:
            rows.record_failure(row, str(mistake), exit_status(mistake))
    return [row for place, alike in sharing.items() if place not in mistakes for row in alike]


@dataclass(frozen=True)
class Child:
    """A row's process."""

    row: Row
    process: subprocess.Popen[bytes]


def train(wanted: Sequence[Row], jobs: int, show: Callable[[Sequence[Row]], None]) -> bool:
    """Train rows, `jobs` at a time; whether all were, rather than some left because a signal came.

    On the first signal the rows that are being trained save a checkpoint, and no other is begun; a second Ctrl-C ends
    them at once. A row that fails is left with its reason, and the others go on.

    Args:
      wanted: rows whose data is prepared.
      jobs: most processes at a time.
      show: called now and then with the rows that are being trained.
    """
    waiting, children = deque(wanted), list[Child]()
    with _stop_requests() as requested:
        told = False
        try:
            while children or (waiting and not requested):
                while waiting and len(children) < jobs and not requested:
                    children.append(_begin(waiting.popleft()))
                if requested and not told:
                    told = True
                    say(f"{requested[0].name}: rows save a checkpoint and stop; the same command goes on.")
                    for child in children:
                        child.process.send_signal(signal.SIGTERM)
                for child in [child for child in children if child.process.poll() is not None]:
                    children.remove(child)
                    _settle(child, bool(requested))
                show([child.row for child in children])
                time.sleep(INTERVAL)
        finally:
            for child in children:
                child.process.kill()
                child.process.wait()
    return not requested


def _begin(row: Row) -> Child:
    """Start a row's process; what it says goes to its log."""
    row.directory.mkdir(parents=True, exist_ok=True)
    sweep, folder = row.directory.parent, row.directory.name
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH", "")]))
    with (row.directory / run_directory.LOG).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "t2t_jax", "train-row", str(sweep), folder],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # a Ctrl-C is for us, who pass it on once
        )
    return Child(row, process)


def _settle(child: Child, requested: bool) -> None:
    """See to it that a row whose process has ended without success says why."""
    row, status = child.row, child.process.returncode
    if status == STOPPED or (requested and status == -signal.SIGTERM):  # the latter while there was nothing to save
        return
    if status == DONE and rows.read_report(row) is not None:
        return
    if rows.read_failure(row) is None:
        rows.record_failure(row, _last_words(row.directory / run_directory.LOG, status), status or 1)


def _last_words(log: Path, status: int) -> str:
    """Why a process ended that could not say so."""
    if status < 0:
        name = signal.Signals(-status).name
        hint = ", as Linux does when memory runs out" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{hint}"
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:500] if lines else f"its process ended with status {status} and without a word"


@contextlib.contextmanager
def _stop_requests() -> Iterator[list[signal.Signals]]:
    """Within it the first signal that asks to stop goes into the list; a Ctrl-C after it interrupts at once."""
    received: list[signal.Signals] = []

    def note(number: int, frame: FrameType | None) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not received:
            received.append(signal.Signals(number))

    previous = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
