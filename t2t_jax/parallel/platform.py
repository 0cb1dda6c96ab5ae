"""Which kind of device JAX may look for, decided before it looks."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import jax

# Where the kernel shows devices: TPUs up to v4 as accel*, later ones through VFIO; NVIDIA's GPUs, also under WSL.
NODES = {"tpu": ("accel*", "vfio/[0-9]*"), "cuda": ("nvidia[0-9]*", "dxg")}
PACKAGES = {"tpu": ("libtpu",), "cuda": ("jax_cuda12_plugin", "jax_cuda13_plugin")}


def choose_platform() -> None:
    """Keep JAX away from accelerators whose package is installed but which are not there.

    The packages are installed on machines without such a device in order to compile for one. JAX would then try them at
    its first use of a device, and they write errors to standard error. What the user set in JAX_PLATFORMS stands. To be
    called before that first use; later it has no effect.
    """
    if jax.config.jax_platforms:  # type: ignore[attr-defined]  # made for each flag when JAX starts
        return
    platforms = _platforms(Path("/dev"))
    if platforms is not None:
        jax.config.update("jax_platforms", platforms)


def installed(platform: str) -> bool:
    """Whether the package that drives, and compiles for, "tpu" or "cuda" is installed."""
    return any(importlib.util.find_spec(package) is not None for package in PACKAGES[platform])


def _platforms(devices: Path) -> str | None:
    """The platforms to allow, best first, or None where every installed one has its device."""
    packages = [platform for platform in NODES if installed(platform)]
    present = [platform for platform in packages if any(any(devices.glob(node)) for node in NODES[platform])]
    return None if present == packages else ",".join([*present, "cpu"])
