"""Accelerators by name: what they can do on paper, and devices that XLA compiles for though none is here."""

from __future__ import annotations

import collections
import math
import os
import re
from dataclasses import dataclass

import jax
from jax.experimental import topologies

from t2t_jax.errors import UserError, suggestion
from t2t_jax.parallel.platform import installed

GIB = 2**30
JAX_SHARE = 0.75  # of a GPU's memory, which JAX takes when it starts
EXAMPLES = ("v5e:2x4", "v5e:16x16", "v5p:2x2x2", "v6e:2x4", "a100:8", "h100:8", "h100:16x8", "h200:8")
SLICES = ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")  # of v5e and v6e, of hosts with 2x2 chips
PACKAGES = {
    "tpu": ("libtpu", "tpu"),
    "cuda": ("JAX's CUDA plugin", "gpu"),
}


@dataclass(frozen=True)
class Architecture:
    """What XLA wants to know of a GPU to choose kernels for it, from CUDA's tables."""

    compute_capability: int  # major version
    multiprocessors: int
    float32_units: int  # of a multiprocessor
    clock: float  # GHz
    cache: int  # KiB of second-level cache
    shared_memory: int  # KiB of a multiprocessor


AMPERE = Architecture(8, 108, 64, 1.41, 40 * 1024, 164)
HOPPER = Architecture(9, 132, 128, 1.98, 50 * 1024, 228)


@dataclass(frozen=True)
class Chip:
    """One device's peaks, from its maker's data sheet. Rates are per second."""

    name: str
    platform: str  # "tpu" or "cuda"
    bfloat16: float  # FLOP of dense matrix products
    float32: float
    memory: float  # bytes a program may use
    bandwidth: float  # bytes between device memory and the chip
    links: float  # bytes out to the devices beside it: all ICI links, or NVLink in one direction
    network: float | None = None  # bytes out to another host, where that is another way
    architecture: Architecture | None = None  # of a GPU

    def peak(self, left: str, right: str) -> float:
        """FLOP/s of products whose operands are of these types, in HLO's names.

        A TPU multiplies bfloat16. The products that training asks for ("highest") take a float32 operand apart into
        three: six passes for two such operands, three for one.
        """
        wide = (left, right).count("f32")
        if not wide:
            return self.bfloat16
        return self.bfloat16 / (3 * wide) if self.platform == "tpu" else self.float32


def _tpu(name: str, tera: float, memory: float, bandwidth: float, gigabits: float) -> Chip:
    return Chip(name, "tpu", tera * 1e12, tera * 1e12 / 6, memory * GIB, bandwidth * 1e9, gigabits / 8 * 1e9)


def _gpu(
    name: str,
    tera: float,
    tera_float32: float,
    memory: float,
    bandwidth: float,
    *,
    nvlink: float,
    adapter: float,
    architecture: Architecture,
) -> Chip:
    return Chip(
        name,
        "cuda",
        bfloat16=tera * 1e12,
        float32=tera_float32 * 1e12,
        memory=JAX_SHARE * memory * GIB,
        bandwidth=bandwidth * 1e9,
        links=nvlink / 2 * 1e9,
        network=adapter / 8 * 1e9,
        architecture=architecture,
    )


# TPUs: Google Cloud's "System architecture" pages: peak bf16 compute, HBM bandwidth, interchip interconnect bandwidth
# (1,600, 4,800 and 3,584 Gbit/s a chip). Memory is what libtpu lets a program have of the 16, 95 and 32 GB.
# GPUs: NVIDIA's data sheets of the SXM cards of 80 GB (A100), 80 GB (H100) and 141 GB (H200): dense rates, float32
# without TF32, memory bandwidth in GB/s, NVLink in GB/s both ways together. Memory is JAX's share of what the driver
# leaves (79.2 and 139.8 GiB). One network adapter a GPU, as in DGX A100 (200 Gbit/s), H100 and H200 (400 Gbit/s).
CHIPS = {
    "v5e": _tpu("TPU v5e", 197, 15.75, 819, 1600),
    "v5p": _tpu("TPU v5p", 459, 95.74, 2765, 4800),
    "v6e": _tpu("TPU v6e", 918, 31.25, 1640, 3584),
    "a100": _gpu("NVIDIA A100 80GB", 312, 19.5, 79.2, 2039, nvlink=600, adapter=200, architecture=AMPERE),
    "h100": _gpu("NVIDIA H100 80GB", 989, 67, 79.2, 3350, nvlink=900, adapter=400, architecture=HOPPER),
    "h200": _gpu("NVIDIA H200 141GB", 989, 67, 139.8, 4800, nvlink=900, adapter=400, architecture=HOPPER),
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
