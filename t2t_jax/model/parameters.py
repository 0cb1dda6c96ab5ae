"""Parameters whose dimensions carry names, so that one table can say how they are divided over a mesh."""

from __future__ import annotations

from typing import cast

import jax
from flax import linen as nn


def parameter(
    module: nn.Module,
    name: str,
    init: nn.initializers.Initializer,
    axes: tuple[str | None, ...],
    shape: tuple[int, ...],
) -> jax.Array:
    """Declare the float32 parameter `name` of `shape`; `axes` are logical names for `parallel.mesh.RULES`."""
    return cast(jax.Array, module.param(name, nn.with_logical_partitioning(init, axes), shape))
