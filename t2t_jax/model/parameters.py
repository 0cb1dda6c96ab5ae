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
    """Declare the float32 parameter `name` of `shape`; `axes` are logical names for `parallel.mesh.RULES`.

    Returns it as it is kept, which may be divided along "embed": whoever computes with it gathers it first.
    """
    return cast(jax.Array, module.param(name, nn.with_logical_partitioning(init, axes), shape))


def gather(kept: jax.Array, axes: tuple[str | None, ...]) -> jax.Array:
    """The parameter gathered along "embed", which divides only how parameters are kept.

    Left divided, it would divide the activations it meets instead of their rows, and the compiler would move those
    about.
    """
    return nn.with_logical_constraint(kept, tuple(None if axis == "embed" else axis for axis in axes))
