"""The device mesh and the one table that says what is divided over which of its axes."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from t2t_jax import config
from t2t_jax.errors import ConfigError

AXES = ("data", "fsdp", "tensor")
EXPERT = "expert"  # a fourth, where there are experts to divide

# Logical axis -> mesh axes. Parameters use embed, heads, memory_heads, kv, mlp, experts and vocabulary; activations
# batch, length, activation, vocabulary, and where they are with their experts, experts and "batch of experts".
# "embed" divides a parameter where it is kept, not where it is used (model/parameters.py).
RULES = (
    ("batch", ("data", "fsdp", EXPERT)),
    ("batch of experts", ("data", "fsdp")),
    ("experts", EXPERT),
    ("vocabulary", "tensor"),
    ("heads", "tensor"),
    ("memory_heads", "tensor"),
    ("mlp", "tensor"),
    ("embed", "fsdp"),
    ("kv", None),
    ("length", None),
    ("activation", None),
)

# What decides the size of a parameter's dimension, in the words of the config.
FIELDS = {
    "embed": "d_model={}",
    "heads": "num_heads={}",
    "memory_heads": "num_kv_heads={}",
    "experts": "experts={}",
    "mlp": "d_ff={}",
    "vocabulary": "vocabulary_multiple's padded vocabulary of {}",
}


def make_mesh(sizes: config.Mesh, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh over `devices` (all there are by default).

    Raises:
      ConfigError: the axes don't multiply to the number of devices.
    """
    devices = list(jax.devices() if devices is None else devices)
    axes = AXES if sizes.expert == 1 else (*AXES, EXPERT)
    wanted = [getattr(sizes, axis) for axis in axes]
    known = math.prod(size for size in wanted if size != -1)
    if len(devices) % known or (-1 not in wanted and known != len(devices)):
        raise ConfigError(
            f"mesh: {', '.join(f'{axis}={size}' for axis, size in zip(axes, wanted, strict=True))} cannot be laid over "
            f"{len(devices)} device{'s' * (len(devices) != 1)}; the sizes must multiply to that number."
        )
    shape = [len(devices) // known if size == -1 else size for size in wanted]
    return Mesh(np.asarray(devices, dtype=object).reshape(shape), axes)


def rules(mesh: Mesh) -> list[tuple[str, tuple[str, ...] | str | None]]:
    """`RULES` as far as the mesh has their axes."""

    def present(axes: tuple[str, ...] | str | None) -> tuple[str, ...] | str | None:
        if isinstance(axes, tuple):
            return tuple(axis for axis in axes if axis in mesh.shape)
        return axes if axes in mesh.shape else None

    return [(name, present(axes)) for name, axes in RULES]


@contextlib.contextmanager
def tracing(mesh: Mesh) -> Iterator[None]:
    """For tracing: the model's sharding constraints refer to `mesh`, and float32 products are float32 products.

    Flax finds the mesh only where `jax.set_mesh` puts it, and else drops the constraints without a word.
    By default accelerators round the inputs of float32 products to fewer bits. Who wants that speed asks for bfloat16.
    """
    with jax.set_mesh(mesh), nn.logical_axis_rules(rules(mesh)), jax.default_matmul_precision("highest"):
        yield


def shardings(boxed: Any, mesh: Mesh) -> Any:
    """Shardings for a tree of abstract arrays that carry logical axis names; scalars and unnamed ones are replicated.

    Raises:
      ConfigError: a mesh axis does not divide the dimension that the rules give it.
    """
    specs = nn.get_partition_spec(boxed)
    tree = nn.logical_to_mesh_sharding(specs, mesh, rules(mesh))

    def check(leaf: Any, names: PartitionSpec, sharding: NamedSharding) -> None:
        for dimension, name, axes in zip(leaf.shape, names, sharding.spec, strict=False):
            parts = math.prod(mesh.shape[a] for a in ([axes] if isinstance(axes, str) else axes or ()))
            if dimension % parts:
                raise ConfigError(
                    f"mesh: {axes}={parts} does not divide model.{FIELDS[name].format(dimension)}; "
                    "choose a size that does."
                )

    jax.tree.map(check, nn.unbox(boxed), specs, tree)
    return tree


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows divided over all axes but tensor."""
    return NamedSharding(mesh, PartitionSpec(tuple(axis for axis in mesh.axis_names if axis != "tensor")))


def on_every_device(mesh: Mesh) -> NamedSharding:
    """For what is not divided: every device has all of it."""
    return NamedSharding(mesh, PartitionSpec())


def row_parts(mesh: Mesh) -> int:
    """How many parts the rows of a batch are divided into."""
    return mesh.size // mesh.shape["tensor"]


def padded_rows(rows: int, parts: int) -> int:
    """`rows`, or the next number that divides into `parts`."""
    return -(-rows // parts) * parts


class Rows:
    """How the rows of a batch lie on a mesh: in equal parts, dead rows at the end, some of them on each process."""

    def __init__(self, mesh: Mesh, parts: int | None = None):
        """The rows of a batch are filled up to a multiple of `parts`, as many as there are row parts by default."""
        self._sharding = batch_sharding(mesh)
        self._parts = parts or row_parts(mesh)
        self._local = functools.lru_cache(maxsize=None)(self._find_local)

    def local(self, rows: int) -> np.ndarray:
        """Of a batch of `rows`, the places of those on this process's devices: [n] ascending, dead ones included."""
        return self._local(rows)

    def place(self, array: np.ndarray, rows: int) -> jax.Array:
        """Lay this process's rows, [n, …], of a batch of `rows` on its devices; together they are the global array."""
        local, shape = self.local(rows), (padded_rows(rows, self._parts), *array.shape[1:])

        def part(index: Any) -> np.ndarray:
            start, stop, _ = index[0].indices(shape[0])
            first = int(np.searchsorted(local, start))
            return array[first : first + stop - start]

        return jax.make_array_from_callback(shape, self._sharding, part)

    def _find_local(self, rows: int) -> np.ndarray:
        filled = padded_rows(rows, self._parts)
        indices = self._sharding.addressable_devices_indices_map((filled,)).values()
        return np.unique(np.concatenate([np.arange(filled)[index] for index in indices]))


def lay_out(arrays: Any, shardings: Any) -> Any:
    """A tree of arrays that every process holds whole, laid out by a tree of shardings that may be of all processes."""

    def lay(array: Any, sharding: NamedSharding) -> jax.Array:
        host = np.asarray(array)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    return jax.tree.map(lay, arrays, shardings)
