"""Files that are whole or absent, and what they hold."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from t2t_jax.errors import DataError


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file that is whole or absent, whatever happens in between; text as UTF-8, its line ends as they are."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def read_json_lines(path: Path) -> list[Any]:
    """The JSON values of a file's lines, none without a file; a last line that a crash cut short is left out."""
    if not path.is_file():
        return []
    values = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            values.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return values


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from None
