"""Contestants that take turns: each is a process of its own that rests while another computes.

The process first writes a JSON object, `ready`, then reads requests, one a line, and answers each with a JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


class Contestant:
    """One of them, as the referee sees it."""

    def __init__(self, name: str, module: Sequence[str], python: str = sys.executable, **environment: str):
        """Start `python -m module…` with these variables added to its environment, and wait until it is warm.

        Raises:
          ContestantEnded: it ended instead, for instance because a package is absent.
        """
        self.name = name
        self._process = subprocess.Popen(
            [python, "-m", *module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | environment,
        )
        self.ready = self._answer()

    def ask(self, request: Mapping[str, Any] | int) -> Any:
        """Its answer to a request."""
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._answer()

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ContestantEnded(f"{self.name} ended with status {self._process.wait()}.")
        return json.loads(line)


class ContestantEnded(Exception):
    """A contestant's process is gone; it has said why on standard error."""
