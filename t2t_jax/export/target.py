"""Where an export goes, and what it needs to be installed."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

from t2t_jax.errors import UserError


def require(package: str, purpose: str) -> None:
    """Raise `UserError`, with the command that installs it, if `package` is absent."""
    if importlib.util.find_spec(package) is None:
        raise UserError(f"{purpose} needs the package {package}: pip install '.[export]' in the folder of launch.py.")


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `path` when nothing went wrong; otherwise nothing of it stays.

    Raises:
      UserError: there is something at `path`, or it cannot be written.
    """
    target = path.absolute()
    if target.exists() or target.is_symlink():
        raise UserError(f"{str(path)!r} exists already; nothing is overwritten, so name another --output.")
    partial = target.with_name(f".{target.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        partial.rename(target)
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
