"""Dropout, section 5.4, whose masks cost next to nothing and are kept nowhere."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

# Threefry-2x32's rotations and the constant of its key schedule: Salmon et al., "Parallel random numbers: as easy as
# 1, 2, 3" (2011), figure 4b and section 3.3.
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


class Dropout(nn.Module):
    """Zeros a share `rate` of the elements, drawn from the rng collection "dropout", and scales up the others."""

    rate: float

    @nn.compact
    def __call__(self, x: jax.Array, *, deterministic: bool) -> jax.Array:
        if deterministic or self.rate == 0:
            return x
        return drop(x, jax.random.key_data(self.make_rng("dropout")), self.rate)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def drop(x: jax.Array, key: jax.Array, rate: float) -> jax.Array:
    """x where `kept` of its shape says so, divided by 1 - rate; 0 elsewhere."""
    return jnp.where(kept(key, x.shape, rate), x / (1 - rate), jnp.zeros((), x.dtype))


def _forward(x: jax.Array, key: jax.Array, rate: float) -> tuple[jax.Array, jax.Array]:
    return drop(x, key, rate), key


def _backward(rate: float, key: jax.Array, gradient: jax.Array) -> tuple[jax.Array, None]:
    """Drawing the mask again is cheaper than keeping it until here."""
    return drop(gradient, key, rate), None


drop.defvjp(_forward, _backward)


def kept(key: jax.Array, shape: tuple[int, ...], rate: float) -> jax.Array:
    """Which elements stay: `jax.random.bernoulli(key, 1 - rate, shape)` to the bit, for the data [2] of a Threefry key.

    Element i depends on the key and i alone, so a mask is the same however it is divided over devices. JAX computes
    its own by loops over whole arrays on a CPU, which take a sixth of a training step; written out as here, the rounds
    melt into whatever uses the mask.

    Raises:
      ValueError: 2^32 elements or more.
    """
    if np.prod(shape, dtype=np.int64) >= 2**32:
        raise ValueError(f"a dropout mask of {shape} has more than 2^32 elements")
    index, stride = jnp.zeros(shape, jnp.uint32), 1
    for dimension in reversed(range(len(shape))):
        index += jax.lax.broadcasted_iota(jnp.uint32, shape, dimension) * np.uint32(stride)
        stride *= shape[dimension]
    high, low = threefry(key[0], key[1], jnp.zeros_like(index), index)
    # bernoulli draws 23 bits as a fraction and asks whether it is below 1 - rate as a float32.
    return (high ^ low) >> np.uint32(9) < np.uint32(np.ceil(np.float32(1 - rate) * 2.0**23))


def threefry(key0: jax.Array, key1: jax.Array, x0: jax.Array, x1: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Threefry-2x32 with 20 rounds: two words of the key and two of the counter to two random words, all uint32."""
    keys = key0, key1, key0 ^ key1 ^ PARITY
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x0 += x1
            x1 = x0 ^ (x1 << np.uint32(rotation) | x1 >> np.uint32(32 - rotation))
        x0, x1 = x0 + keys[(group + 1) % 3], x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1
