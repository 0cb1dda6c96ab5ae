"""Seals: the SHA-256 of every file of a checkpoint, written when all of them are on disk.

Orbax finishes a checkpoint by renaming its folder, but loads array data with a flipped bit without a word. A folder
without a seal was never finished; one whose files do not match its seal was damaged afterwards.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from t2t_jax.files import sha256, write_atomically

SEAL = "sha256.json"


def seal(folder: Path) -> None:
    """Record what `folder` holds; only a folder whose writing has finished may be sealed."""
    for path in _files(folder).values():
        with path.open("rb") as file:
            os.fsync(file.fileno())  # or the seal could outlive a power cut that its files do not
    digests = {name: sha256(path) for name, path in _files(folder).items()}
    write_atomically(folder / SEAL, json.dumps(digests, indent=1, sort_keys=True) + "\n")


def is_sealed(folder: Path) -> bool:
    """Whether writing `folder` was finished."""
    return (folder / SEAL).is_file()


def damage(folder: Path) -> str | None:
    """What is wrong with a sealed folder, in words, or None when every file is as it was written."""
    try:
        digests = json.loads((folder / SEAL).read_text(encoding="utf-8"))
        expected = {str(name): str(digest) for name, digest in digests.items()}
    except (OSError, ValueError, AttributeError):
        return f"{SEAL} is missing or damaged"
    present = _files(folder)
    for name in sorted(expected.keys() | present.keys()):
        if name not in present:
            return f"{name} is missing"
        if name not in expected:
            return f"{name} does not belong there"
        if sha256(present[name]) != expected[name]:
            return f"{name} has changed"
    return None


def _files(folder: Path) -> dict[str, Path]:
    """Every file but the seal, by its path below the folder."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != SEAL)
    return {str(path.relative_to(folder)): path for path in found if not path.name.startswith(f".{SEAL}")}
