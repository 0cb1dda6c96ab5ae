"""calls.jsonl of a run: which commands trained it, from which step, where and when."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from t2t_jax import machine
from t2t_jax.files import read_json_lines
from t2t_jax.run_directory import CALLS


def command() -> str:
    """The command line that this process is, as a person would type it."""
    program, *words = sys.argv
    ours = Path(program).name in ("launch.py", "__main__.py")
    return shlex.join([*(["python", "launch.py"] if ours else [program]), *words])


def record(run: Path, from_step: int) -> None:
    """Note that this process goes on training `run` after so many steps."""
    call = {"command": command(), "from_step": from_step, **machine.circumstances()}
    with (run / CALLS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(call, ensure_ascii=False) + "\n")


def read(run: Path) -> list[dict[str, Any]]:
    """The calls in order; none for a run that was imported or trained before there was such a file."""
    return read_json_lines(run / CALLS)
