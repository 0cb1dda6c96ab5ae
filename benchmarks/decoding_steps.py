"""Steps of decoding by themselves: on the cache of a search that is half done, as the model makes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from t2t_jax.model import EncoderDecoder
from t2t_jax.training.state import abstract_params

STEPS = 8


class Sizes(NamedTuple):
    """Of a search: rows, hypotheses of each, source positions, positions that the cache has room for."""

    rows: int
    beam: int
    source: int
    length: int


def decoding_steps(net: EncoderDecoder, sizes: Sizes) -> tuple[Callable[[], object], Any]:
    """A function that takes `STEPS` steps in the middle of a cache, with random parameters, and that cache."""
    key = jax.random.key(0)
    params = jax.tree.map(lambda leaf: 0.05 * jax.random.normal(key, leaf.shape), abstract_params(net))
    variables, source = {"params": params}, jnp.full((sizes.rows, sizes.source), 5, jnp.int32)
    memory = net.apply(variables, source, deterministic=True, method="encode")
    cache = net.apply(variables, memory, source > 0, sizes.beam, sizes.length, method="start_cache")
    tokens = jnp.full((sizes.rows, sizes.beam), 5, jnp.int32)
    writers = jnp.broadcast_to(jnp.arange(sizes.beam)[:, None], (sizes.rows, sizes.beam, sizes.length))

    def take(variables: Any, cache: Any) -> jax.Array:
        def one(i: jax.Array, carried: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
            cache, total = carried
            logits, cache = net.apply(variables, tokens, sizes.length // 2 + i, writers, cache, method="decode_step")
            return cache, total + jnp.max(logits)

        return jax.lax.fori_loop(0, STEPS, one, (cache, jnp.zeros(())))[1]

    compiled = jax.jit(take).lower(variables, cache).compile()
    return lambda: jax.block_until_ready(compiled(variables, cache)), cache
