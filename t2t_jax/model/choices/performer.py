"""Attention linear in length by random features: Choromanski et al., "Rethinking attention with Performers" (2021)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from t2t_jax.model.attention import Past
from t2t_jax.model.choices.varied import VariedAttention
from t2t_jax.model.hypotheses import of_parents

BLOCK = 128  # positions between which a decoder's running sums are kept in training
LEAST = 1e-18  # of weights that are divided by; the gradient divides by their square, which is still a float32


class RunningSums(NamedTuple):
    """All that a decoder keeps of each hypothesis's past, however long it is."""

    values: jax.Array  # [B, W, H, M, V] in float32: the sum of phi(k) v^T
    features: jax.Array  # [B, W, H, M]: the sum of phi(k)

    def length(self, writers: jax.Array) -> int:
        """As `LayerCache.length`: as long as the search likes."""
        return writers.shape[2]

    def lengthened(self, size: int) -> RunningSums:
        """As `LayerCache.lengthened`."""
        return self


class PerformerAttention(VariedAttention):
    """FAVOR+: exp(q k / sqrt(d_k)) is the mean of phi(q) phi(k), so sums over keys can come before queries."""

    def heads(
        self, queries: jax.Array, keys: jax.Array, values: jax.Array, real: jax.Array | None, *, deterministic: bool
    ) -> jax.Array:
        """As `VariedAttention.heads`, with sums in float32."""
        queries, keys = self._features(queries, of_queries=True), self._features(keys)
        if real is not None:
            keys = jnp.where(real[..., None, None], keys, 0)
        if self.role == "decoder":
            return causal(queries, keys, values.astype(jnp.float32)).astype(self.dtype)
        sums = jnp.einsum("bshm,bshv->bhmv", keys, values, preferred_element_type=jnp.float32)
        return quotient("bqhm,bhmv->bqhv", queries, sums, jnp.sum(keys, axis=1)).astype(self.dtype)

    def empty_cache(self, rows: int, beam: int, length: int) -> RunningSums:  # type: ignore[override]
        """As the paper's attention has one."""
        sums = jnp.zeros((rows, beam, self.memory_heads, self.choices.performer_features, self.d_v))
        return RunningSums(sums, sums[..., 0])

    def step(self, x: jax.Array, past: Past, cache: RunningSums) -> tuple[jax.Array, RunningSums]:  # type: ignore[override]
        """As the paper's attention has one; the hypotheses go on from their parents' sums."""
        keys, values = self.keys_values(x)
        before, keys = of_parents(cache, past.at, past.writers), self._features(keys)
        grown = RunningSums(
            before.values + keys[..., None] * values[..., None, :].astype(jnp.float32), before.features + keys
        )
        queries = self._features(self.query(x), of_queries=True)
        for_heads = [jnp.repeat(leaf, self.group, axis=2) for leaf in grown]
        return self.output(quotient("bqhm,bqhmv->bqhv", queries, *for_heads).astype(self.dtype)), grown

    def _features(self, x: jax.Array, *, of_queries: bool = False) -> jax.Array:
        omega = directions(self.d_k, self.choices.performer_features, self.choices.performer_seed)
        return positive_features(x, omega, of_queries)


def directions(width: int, count: int, seed: int) -> np.ndarray:
    """`count` random vectors [M, K] that are orthogonal within each K of them and as long as Gaussian ones.

    From the generator whose numbers NumPy promises never to change.
    """
    rng = np.random.RandomState(seed)

    def rotation() -> np.ndarray:
        """Any is as likely as any other, once the signs that the decomposition chose are taken out."""
        orthogonal, triangular = np.linalg.qr(rng.standard_normal((width, width)))
        return orthogonal * np.sign(np.diag(triangular))

    blocks = [rotation() for _ in range(-(-count // width))]
    lengths = np.linalg.norm(rng.standard_normal((count, width)), axis=1, keepdims=True)
    return (np.concatenate(blocks)[:count] * lengths).astype(np.float32)


def positive_features(x: jax.Array, omega: np.ndarray, of_queries: bool = False) -> jax.Array:
    """phi(x) = exp(omega x' - |x'|^2 / 2) / sqrt(M) for x' = x / K^(1/4): [..., K] to [..., M] in float32.

    A query's are scaled so that the largest is 1 / sqrt(M), which cancels out. Keys need no such scaling, since the
    exponent is at most |omega|^2 / 2, and can have none that depends on keys to come.
    """
    x = x.astype(jnp.float32) * x.shape[-1] ** -0.25
    exponent = jnp.einsum("...k,mk->...m", x, omega) - jnp.sum(jnp.square(x), axis=-1, keepdims=True) / 2
    if of_queries:
        exponent = exponent - jax.lax.stop_gradient(jnp.max(exponent, axis=-1, keepdims=True))
    return jnp.exp(exponent) * len(omega) ** -0.5


def quotient(product: str, queries: jax.Array, sums: jax.Array, features: jax.Array) -> jax.Array:
    """The sums that queries' features weigh, by `product`, over those of the weights.

    It is 0 where there is no key, or only keys so large and so far from the query that float32 has no such weight.
    """
    weights = jnp.einsum(product, queries, features[..., None])
    return jnp.einsum(product, queries, sums) / jnp.maximum(weights, LEAST)


def causal(queries: jax.Array, keys: jax.Array, values: jax.Array, block: int = BLOCK) -> jax.Array:
    """What each query [B, n, H, M] finds among the keys [B, n, H, M] up to its own, and their values [B, n, H, V].

    Within a block all pairs are compared; what came before it is a running sum, so memory is linear in n.
    """
    rows, length, heads, count = queries.shape
    block = min(block, length)
    blocks = -(-length // block)

    def in_blocks(x: jax.Array) -> jax.Array:
        filled = jnp.pad(x, [(0, 0), (0, blocks * block - length), (0, 0), (0, 0)])
        return jnp.moveaxis(filled.reshape(rows, blocks, block, *x.shape[2:]), 1, 0)

    ones = jnp.concatenate([values, jnp.ones_like(values[..., :1])], axis=-1)  # the last column sums the weights
    past = jnp.tril(jnp.ones((block, block)))

    @jax.checkpoint
    def one(before: jax.Array, here: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        queries, keys, values = here
        weights = jnp.einsum("bqhm,bshm->bhqs", queries, keys) * past
        found = jnp.einsum("bhqs,bshv->bqhv", weights, values) + jnp.einsum("bqhm,bhmv->bqhv", queries, before)
        return before + jnp.einsum("bshm,bshv->bhmv", keys, values), found

    start = jnp.zeros((rows, heads, count, ones.shape[-1]))
    _, found = jax.lax.scan(one, start, tuple(map(in_blocks, (queries, keys, ones))))
    found = jnp.moveaxis(found, 0, 1).reshape(rows, blocks * block, heads, -1)[:, :length]
    return found[..., :-1] / jnp.maximum(found[..., -1:], LEAST)
