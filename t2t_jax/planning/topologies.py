"""Accelerators by name: how many in which grid, and devices that XLA compiles for though none is here."""

from __future__ import annotations

import collections
import math
import os
import re
from dataclasses import dataclass

import jax
from jax.experimental import topologies

from t2t_jax.errors import UserError, suggestion
from t2t_jax.parallel.chips import CHIPS, JAX_SHARE, Chip
from t2t_jax.parallel.platform import installed

EXAMPLES = ("v5e:2x4", "v5e:16x16", "v5p:2x2x2", "v6e:2x4", "a100:8", "h100:8", "h100:16x8", "h200:8")
SLICES = ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")  # of v5e and v6e, of hosts with 2x2 chips
PACKAGES = {
    "tpu": ("libtpu", "tpu"),
    "cuda": ("JAX's CUDA plugin", "gpu"),
}


@dataclass(frozen=True)
class Topology:
    """`size` chips of one kind; every `per_host` of them share a host."""

    name: str
    chip: Chip
    size: int
    per_host: int

    def devices(self) -> list[jax.Device]:
        """Devices to compile for; nothing can run on them.

        Raises:
          UserError: the package that compiles for them is not installed, or refuses.
        """
        platform = self.chip.platform
        package, extra = PACKAGES[platform]
        if not installed(platform):
            raise UserError(
                f"Compiling for {self.chip.name} needs {package}, which is not installed: pip install '.[{extra}]' "
                "(no such device is needed)."
            )
        options: dict[str, str] = {}
        if platform == "tpu":
            _quiet_libtpu()
        else:
            grid = f"1x{self.size // self.per_host}x{self.per_host}"
            options = {"topology": grid, "target_config": _gpu_description(self.chip)}
        try:
            return list(topologies.get_topology_desc(platform=platform, topology_name=self.name, **options).devices)
        except RuntimeError as error:  # of XLA or the plugin, which tell what they miss in the first line
            reason = (str(error).strip() or repr(error)).split("\n")[0]
            raise UserError(f"The installed {package} cannot compile for {self.name!r}: {reason}") from None

    def bandwidth(self, group: tuple[int, ...]) -> float:
        """Bytes a second that each device of a ring over `group` (positions of devices) can send.

        Within a host, or between TPUs, that is the links' rate. Over hosts, the members in one host share its network
        adapters, of which each brings one.
        """
        if self.chip.network is None or len({position // self.per_host for position in group}) == 1:
            return self.chip.links
        together = max(collections.Counter(position // self.per_host for position in group).values())
        return min(self.chip.links, together * self.chip.network)


def parse(name: str | None) -> Topology:
    """The topology that a name such as "v5e:2x4" (grid of chips), "h100:8" or "h100:16x8" (hosts x GPUs) stands for.

    Raises:
      UserError: no name, an unknown kind, or a grid that the kind cannot have; says which there are.
    """
    known = f"Known are, for example, {', '.join(EXAMPLES)}."
    if name is None:
        raise UserError(f"`plan` needs --topology, the accelerators to compile for. {known}")
    kind, _, grid = name.partition(":")
    if kind not in CHIPS:
        raise UserError(f"There is no topology {name!r}.{suggestion(name, EXAMPLES)} {known}")
    chip = CHIPS[kind]
    numbers = [int(n) for n in grid.split("x")] if re.fullmatch(r"[1-9]\d{0,3}(x[1-9]\d{0,3})*", grid) else []
    if chip.platform == "tpu":
        if kind == "v5p":
            possible = len(numbers) == 3 and not numbers[0] % 2 and not numbers[1] % 2
            what = "two even numbers and a third, such as 2x2x2"
        else:
            possible, what = grid in SLICES, ", ".join(SLICES)
        if not possible:
            raise UserError(f"{name!r} is no grid of {chip.name} chips: {what}. {known}")
        return Topology(name, chip, math.prod(numbers), per_host=4)
    if not 1 <= len(numbers) <= 2 or numbers[-1] > 8:
        raise UserError(f"{name!r} is no number of GPUs: at most 8, or hosts x GPUs in each, at most 8. {known}")
    return Topology(name, chip, math.prod(numbers), per_host=numbers[-1])


def _quiet_libtpu() -> None:
    """libtpu looks for a TPU even to compile for one, asks a cloud's server about it, and locks out other processes."""
    for name, value in (
        ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
        ("TPU_SKIP_MDS_QUERY", "1"),
        ("TPU_ACCELERATOR_TYPE", "v5litepod-8"),
        ("TPU_WORKER_HOSTNAMES", "localhost"),
        ("TPU_MIN_LOG_LEVEL", "3"),
        ("TPU_STDERR_LOG_LEVEL", "3"),
    ):
        os.environ.setdefault(name, value)


def _gpu_description(chip: Chip) -> str:
    """What XLA would ask the driver about the GPU, as its text proto."""
    gpu = chip.architecture
    assert gpu is not None, chip.name
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: {48 * 1024}
  shared_memory_per_core: {gpu.shared_memory * 1024}
  threads_per_core_limit: 2048
  core_count: {gpu.multiprocessors}
  fpus_per_core: {gpu.float32_units}
  block_dim_limit_x: {2**31 - 1}
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {int(chip.bandwidth)}
  l2_cache_size: {gpu.cache * 1024}
  clock_rate_ghz: {gpu.clock}
  device_memory_size: {int(chip.memory / JAX_SHARE)}
  shared_memory_per_block_optin: {(gpu.shared_memory - 1) * 1024}
  cuda_compute_capability {{ major: {gpu.compute_capability} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "{chip.name}"
"""
