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


def record(run: Path, from_step: int) -> None:
    """Note that this process goes on training `run` after so many steps."""
    program, *words = sys.argv
    named = ["python", "launch.py"] if Path(program).name == "launch.py" else [program]
    call = {"command": shlex.join([*named, *words]), "from_step": from_step, **machine.circumstances()}
    with (run / CALLS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(call, ensure_ascii=False) + "\n")


def read(run: Path) -> list[dict[str, Any]]:
    """The calls in order; none for a run that was imported or trained before there was such a file."""
    return read_json_lines(run / CALLS)
