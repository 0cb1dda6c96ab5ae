"""The command of a benchmark that draws a page: what all of them take, and what becomes of what they found."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from t2t_jax.files import write_atomically


def parser(description: str | None, name: str) -> argparse.ArgumentParser:
    """With --output (NAME.html by default), --rounds and --json."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--output", type=_writable, default=Path(f"{name}.html"), help=f"the page ({name}.html)")
    made.add_argument("--rounds", type=at_least_one, default=5, help="turns of what is timed; the median counts (5)")
    made.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    return made


def at_least_one(text: str) -> int:
    """For argparse: a positive whole number."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def deliver(
    found: dict[str, Any],
    options: argparse.Namespace,
    table: Callable[[dict[str, Any]], str],
    html: Callable[[dict[str, Any]], str],
) -> None:
    """Write the page, print the numbers."""
    write_atomically(options.output, html(found))
    print(json.dumps(found, indent=2) if options.json else f"{table(found)}\n\nDrawn in {options.output}")


def _writable(text: str) -> Path:
    """For argparse: the path of a page to be written, complained about before anything is measured."""
    path = Path(text)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} is not a file in a folder that can be written to")
    return path
