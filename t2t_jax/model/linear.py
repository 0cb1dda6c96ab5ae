"""Products with weight matrices, in the compute type forwards, with float32 gradients of the weights."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from t2t_jax.model.parameters import gather, parameter


class _Use(NamedTuple):
    """How a weight is multiplied: its logical axes, how many of them, from the first on, are the input's, the type."""

    axes: tuple[str | None, ...]
    inputs: int
    dtype: jnp.dtype


class Linear(NamedTuple):
    """x W + b as a function of x: [..., *inputs] to [..., *outputs] for W [*inputs, *outputs]."""

    kernel: jax.Array
    bias: jax.Array | None
    use: _Use

    def __call__(self, x: jax.Array) -> jax.Array:
        inputs, outputs = self.kernel.shape[: self.use.inputs], self.kernel.shape[self.use.inputs :]
        rows = x.shape[: x.ndim - len(inputs)]
        y = _product(x.astype(self.use.dtype).reshape(-1, math.prod(inputs)), self.kernel, self.bias, self.use)
        return y.reshape(*rows, *outputs)


def linear(
    module: nn.Module,
    name: str,
    init: nn.initializers.Initializer,
    axes: tuple[str | None, ...],
    shape: tuple[int, ...],
    dtype: jnp.dtype,
    inputs: int = 1,
    bias: str | None = None,
) -> Linear:
    """Declare the float32 parameter `name` of `shape`, and `bias` if it is named; returns the function of them.

    Args:
      module: that owns them.
      name, init, axes, shape: see `parameter`; the first `inputs` dimensions are summed over.
      dtype: of the products and of the result.
      inputs: see `shape`.
      bias: the name of what is added, zero at first.
    """
    kernel = parameter(module, name, init, axes, shape)
    added = None
    if bias is not None:  # is never divided along "embed": it is too small to be worth a gathering
        outputs = tuple(None if axis == "embed" else axis for axis in axes[inputs:])
        added = parameter(module, bias, nn.initializers.zeros, outputs, shape[inputs:])
    return Linear(kernel, added, _Use(axes, inputs, dtype))


# Autodiff alone would give a weight's gradient in the compute type, and so have devices add up bfloat16. Products of
# more than two dimensions would make XLA write out transposed copies on a CPU.


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _product(x: jax.Array, kernel: jax.Array, bias: jax.Array | None, use: _Use) -> jax.Array:
    """x [N, I], kernel [*inputs, *outputs] and bias [*outputs] in float32 to [N, O]."""
    return _forward(x, kernel, bias, use)[0]


def _forward(x: jax.Array, kernel: jax.Array, bias: jax.Array | None, use: _Use) -> tuple[jax.Array, tuple]:
    gathered = gather(kernel.astype(use.dtype), use.axes)
    y = x @ gathered.reshape(x.shape[1], -1)
    if bias is not None:
        y = y + bias.reshape(-1).astype(use.dtype)
    return y, (x, gathered, bias)


def _backward(use: _Use, kept: tuple, gradient: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    x, gathered, bias = kept
    to_x = gradient @ gathered.reshape(x.shape[1], -1).T
    to_kernel = jnp.matmul(x.T, gradient, preferred_element_type=jnp.float32).reshape(gathered.shape)
    to_bias = None if bias is None else jnp.sum(gradient, axis=0, dtype=jnp.float32).reshape(bias.shape)
    return to_x, to_kernel, to_bias


_product.defvjp(_forward, _backward)
