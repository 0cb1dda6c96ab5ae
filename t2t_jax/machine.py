"""What a number was measured on and with."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path
from typing import Any


def host() -> str:
    """This machine's processor, cores and memory in words."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # Linux alone has it
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores ({next(names, platform.machine())}), {memory:.0f} GiB"


def circumstances() -> dict[str, Any]:
    """Where, with what and on which day this process computes, for a record."""
    import jax  # not for whoever only asks for the host

    kind, count = jax.devices()[0].device_kind, jax.device_count()
    accelerators = "" if jax.devices()[0].platform == "cpu" else f"{count} x {kind} on "
    return {
        "machine": accelerators + host(),
        "devices": count,
        "versions": {"jax": jax.__version__, "python": platform.python_version()},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
