"""The device mesh and the one table that says what is divided over which of its axes."""

from __future__ import annotations

import contextlib
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

# Logical axis -> mesh axes. Parameters use embed, heads, kv, mlp and vocabulary; activations batch, length, activation
# and vocabulary. "embed" divides a parameter where it is kept, not where it is used (model/parameters.py).
RULES = (
    ("batch", ("data", "fsdp")),
    ("vocabulary", "tensor"),
    ("heads", "tensor"),
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
    "mlp": "d_ff={}",
    "vocabulary": "vocabulary_multiple's padded vocabulary of {}",
}


def make_mesh(sizes: config.Mesh, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh over `devices` (all there are by default).

    Raises:
      ConfigError: the axes don't multiply to the number of devices.
    """
    devices = list(jax.devices() if devices is None else devices)
    wanted = [sizes.data, sizes.fsdp, sizes.tensor]
    known = math.prod(size for size in wanted if size != -1)
    if len(devices) % known or (-1 not in wanted and known != len(devices)):
        raise ConfigError(
            f"mesh: data={sizes.data}, fsdp={sizes.fsdp}, tensor={sizes.tensor} cannot be laid over {len(devices)} "
            f"device{'s' * (len(devices) != 1)}; the sizes must multiply to that number."
        )
    shape = [len(devices) // known if size == -1 else size for size in wanted]
    return Mesh(np.asarray(devices, dtype=object).reshape(shape), AXES)


@contextlib.contextmanager
def tracing(mesh: Mesh) -> Iterator[None]:
    """For tracing: the model's sharding constraints refer to `mesh`, and float32 products are float32 products.

    Flax finds the mesh only where `jax.set_mesh` puts it, and else drops the constraints without a word.
    By default accelerators round the inputs of float32 products to fewer bits. Who wants that speed asks for bfloat16.
    """
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES), jax.default_matmul_precision("highest"):
        yield


def shardings(boxed: Any, mesh: Mesh) -> Any:
    """Shardings for a tree of abstract arrays that carry logical axis names; scalars and unnamed ones are replicated.

    Raises:
      ConfigError: a mesh axis does not divide the dimension that the rules give it.
    """
    specs = nn.get_partition_spec(boxed)
    tree = nn.logical_to_mesh_sharding(specs, mesh, list(RULES))

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
    """Rows divided over the data and fsdp axes."""
    return NamedSharding(mesh, PartitionSpec(("data", "fsdp")))


def row_parts(mesh: Mesh) -> int:
    """How many parts the rows of a batch are divided into."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def padded_rows(rows: int, parts: int) -> int:
    """`rows`, or the next number that divides into `parts`."""
    return -(-rows // parts) * parts


def place(array: np.ndarray, mesh: Mesh, parts: int) -> jax.Array:
    """Lay [B, …] on the mesh, with dead rows of padding up to a multiple of `parts`; each process gives its rows."""
    rows = padded_rows(len(array), parts)
    if rows > len(array):
        array = np.pad(array, [(0, rows - len(array))] + [(0, 0)] * (array.ndim - 1))
    return jax.make_array_from_callback(array.shape, batch_sharding(mesh), lambda index: array[index])
