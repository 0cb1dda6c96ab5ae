"""Several processes of one run on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2]


class Group:
    """`count` processes of launch.py, or of another program, with their output in files; none outlives the block."""

    def __init__(
        self,
        count: int,
        *arguments: object,
        program: Sequence[str] = ("launch.py",),
        each: Mapping[int, Sequence[object]] | None = None,
        virtual_devices: int = 1,
    ):
        """Start them with the same `arguments`, those that `each` adds for single ones, and so many devices each."""
        self._folder = tempfile.TemporaryDirectory()
        with socket.create_server(("", 0)) as server:
            coordinator = f"127.0.0.1:{server.getsockname()[1]}"
        self.processes = []
        for number in range(count):
            environment = os.environ | {
                "T2T_JAX_COORDINATOR": coordinator,
                "T2T_JAX_NUM_PROCESSES": str(count),
                "T2T_JAX_PROCESS_ID": str(number),
                "XLA_FLAGS": f"--xla_force_host_platform_device_count={virtual_devices}",
            }
            words = [*program, *arguments, *(each or {}).get(number, [])]
            with self._file(number, "out").open("wb") as out, self._file(number, "log").open("wb") as log:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, *map(str, words)],
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=log,
                        cwd=ROOT,
                        env=environment,
                    )
                )

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self._folder.cleanup()

    def wait(self, seconds: float = 300) -> list[int]:
        """The exit statuses; a process that has not ended by then is an error."""
        deadline = time.monotonic() + seconds
        return [process.wait(max(0.0, deadline - time.monotonic())) for process in self.processes]

    def wait_for_line(self, beginning: str) -> None:
        """Until process 0 has logged a line that begins so."""
        while f"\n{beginning}" not in "\n" + self.log(0):
            assert all(process.poll() is None for process in self.processes), self.log(0)
            time.sleep(0.02)

    def output(self, number: int) -> str:
        """What one has written to standard output."""
        return self._file(number, "out").read_text(encoding="utf-8")

    def log(self, number: int) -> str:
        """What one has written to standard error."""
        return self._file(number, "log").read_text(encoding="utf-8")

    def _file(self, number: int, kind: str) -> Path:
        return Path(self._folder.name) / f"{number}.{kind}"
