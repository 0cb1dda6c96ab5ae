"""One writer a run directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from t2t_jax.errors import RunError

LOCK = "lock"


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Within it this process alone may write in `run`, which is made if need be, and unmade if nothing came of it.

    The kernel lets go of the lock when its owner dies, however it dies; the file only names the owner.

    Raises:
      RunError: another process is writing there, which is named; or the directory cannot be written.
    """
    try:
        made = [folder for folder in (run, *run.parents) if not folder.exists()]
        run.mkdir(parents=True, exist_ok=True)
        file = (run / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise RunError(f"The run directory {str(run)!r} cannot be written: {error.strerror or error}.") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "another process"
            raise RunError(
                f"{owner} is writing in {str(run)!r}; wait for it, stop it, or use another --workdir."
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
            if made and [path.name for path in run.iterdir()] == [LOCK]:
                (run / LOCK).unlink()
                with contextlib.suppress(OSError):  # something else has come into one of them
                    for folder in made:
                        folder.rmdir()


def owner(run: Path) -> str | None:
    """Who is writing in `run`, or None; what a killed process has left counts for nothing."""
    try:
        with (run / LOCK).open(encoding="utf-8") as file:
            name = file.read().strip()
            if not name:
                return None
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return name
    except OSError:
        return None
    return None
