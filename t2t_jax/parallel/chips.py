"""What accelerators can do on paper, by name and by what JAX calls the device that is here."""

from __future__ import annotations

import re
from dataclasses import dataclass

GIB = 2**30
JAX_SHARE = 0.75  # of a GPU's memory, which JAX takes when it starts


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

# JAX's `device_kind` of these, as the drivers give it.
DEVICE_KINDS = {
    "v5e": r"TPU v5 lite|TPU v5e",
    "v5p": r"TPU v5p?",
    "v6e": r"TPU v6 lite|TPU v6e",
    "a100": r"NVIDIA A100.*80GB",
    "h100": r"NVIDIA H100 80GB.*",
    "h200": r"NVIDIA H200.*",
}


def chip_of(device_kind: str) -> Chip | None:
    """The chip behind JAX's `device_kind`; None for a CPU and for whatever is not in the table."""
    return next((CHIPS[name] for name, kind in DEVICE_KINDS.items() if re.fullmatch(kind, device_kind)), None)
