"""Label-smoothed cross-entropy, section 5.4, together with the projection to the vocabulary that it is taken over."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from t2t_jax.model import Unprojected
from t2t_jax.model.attention import MASKED
from t2t_jax.symbols import PAD_ID


class TokenLoss(NamedTuple):
    """Sums over the real target tokens of a batch, in nats; divide by `tokens` for the mean."""

    smoothed: jax.Array  # what training minimises
    plain: jax.Array  # negative log-probability of the gold tokens: exp(plain / tokens) is the perplexity
    tokens: jax.Array  # int32


class _Shares(NamedTuple):
    """The smoothed loss of a token is gold * plain - everywhere * sum_z log p_z."""

    gold: jax.Array | float
    everywhere: jax.Array | float


def cross_entropy(
    unprojected: Unprojected, targets: jax.Array, vocabulary_size: int, smoothing: float, mass: str = "vocabulary"
) -> TokenLoss:
    """Cross-entropy against (1 - eps) one-hot + eps * uniform. Only `smoothed` has a gradient.

    Args:
      unprojected: the decoder's output [B, T, D], the table's rows of the targets, and what makes logits [B, T, Z];
        columns from `vocabulary_size` on are filling and have no probability.
      targets: [B, T]; padding does not count.
      smoothing: eps.
      mass: "vocabulary" spreads eps over all entries, the gold one included (the paper); "others" over all but it.
    """
    everywhere = smoothing / (vocabulary_size if mass == "vocabulary" else vocabulary_size - 1)
    gold = 1 - smoothing - (everywhere if mass == "others" else 0.0)
    x, rows, table, bias = unprojected
    flat = Unprojected(x.reshape(-1, x.shape[-1]), rows.reshape(-1, x.shape[-1]), table, bias)
    return _cross_entropy(flat, targets.reshape(-1), _Shares(gold, everywhere), vocabulary_size)


# Two sums over the vocabulary need no pass over the logits: the gold logit is a product of two rows, the sum of all
# logits one with the table's sum. So the logits are read for the softmax alone, whose exponentials, not yet divided by
# their sum, are all that the gradient's two products need. They are taken at once, so that nothing of the size
# tokens x vocabulary is kept while the layers below are differentiated.


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _cross_entropy(unprojected: Unprojected, targets: jax.Array, shares: _Shares, size: int) -> TokenLoss:
    """The sums for x and gold rows [N, D], targets [N] and a vocabulary of `size`."""
    return _softmax(unprojected, targets, shares, size)[0]


class _Softmax(NamedTuple):
    """What is left to make gradients of."""

    weights: jax.Array  # [N, Z] in float32: exp(logit - largest logit)
    scale: jax.Array  # [N, 1]: what makes probabilities of them; 0 for padding
    real: jax.Array  # [N, 1]: 1 for real tokens, 0 for padding


def _softmax(unprojected: Unprojected, targets: jax.Array, shares: _Shares, size: int) -> tuple[TokenLoss, _Softmax]:
    x, gold_rows, table, bias = unprojected
    table, gold_rows = table.astype(x.dtype), gold_rows.astype(x.dtype).astype(jnp.float32)
    filling = jnp.arange(table.shape[0]) >= size
    logits = jnp.matmul(x, table.T, preferred_element_type=jnp.float32)
    if bias is not None:
        logits = logits + bias
    if size < table.shape[0]:
        logits = jnp.where(filling, MASKED, logits)
    largest = jnp.max(logits, axis=-1, keepdims=True)
    weights = jnp.exp(logits - largest)
    sums = jnp.sum(weights, axis=-1, keepdims=True)
    gold = jnp.sum(x * gold_rows, axis=-1, keepdims=True)
    everything = jnp.sum(x * jnp.sum(table, axis=0, dtype=jnp.float32), axis=-1, keepdims=True)
    if bias is not None:
        gold += bias[targets][:, None]
        everything += jnp.sum(jnp.where(filling, 0, bias))
    log_normalizer = largest + jnp.log(sums)
    plain = log_normalizer - gold
    smoothed = shares.gold * plain + shares.everywhere * (size * log_normalizer - everything)
    real = (targets != PAD_ID)[:, None]
    loss = TokenLoss(
        jnp.sum(jnp.where(real, smoothed, 0)), jnp.sum(jnp.where(real, plain, 0)), jnp.sum(real, dtype=jnp.int32)
    )
    return loss, _Softmax(weights, real / sums, real.astype(jnp.float32))


def _forward(unprojected: Unprojected, targets: jax.Array, shares: _Shares, size: int) -> tuple[TokenLoss, Unprojected]:
    """The loss, and the gradient of `smoothed`, which for each logit is its probability less its target share."""
    loss, (weights, scale, real) = _softmax(unprojected, targets, shares, size)
    x, gold_rows, table, bias = unprojected
    weights, rows = weights.astype(x.dtype), x.astype(jnp.float32)
    in_vocabulary = jnp.arange(table.shape[0]) < size

    share = shares.everywhere * jnp.sum(table.astype(x.dtype), axis=0, dtype=jnp.float32)
    to_x = scale * jnp.matmul(weights, table.astype(x.dtype), preferred_element_type=jnp.float32)
    to_x = (to_x - real * (shares.gold * gold_rows + share)).astype(x.dtype)

    scaled = (scale * rows).astype(x.dtype)
    to_table = jnp.matmul(weights.T, scaled, preferred_element_type=jnp.float32)
    to_table -= shares.everywhere * jnp.where(in_vocabulary[:, None], jnp.sum(real * rows, axis=0), 0)
    to_gold = -shares.gold * real * rows

    to_bias = None
    if bias is not None:
        to_bias = jnp.sum(scale * weights, axis=0) - shares.everywhere * jnp.where(in_vocabulary, jnp.sum(real), 0)
        to_bias = to_bias.at[targets].add(-shares.gold * real[:, 0])
    return loss, Unprojected(to_x, to_gold, to_table, to_bias)


def _backward(size: int, gradient: Unprojected, above: TokenLoss) -> tuple[Unprojected, None, None]:
    def scaled(leaf: jax.Array) -> jax.Array:
        return (above.smoothed * leaf).astype(leaf.dtype)

    return jax.tree.map(scaled, gradient), None, None


_cross_entropy.defvjp(_forward, _backward)
