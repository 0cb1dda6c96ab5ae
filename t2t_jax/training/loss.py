"""Label-smoothed cross-entropy, section 5.4."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from t2t_jax.symbols import PAD_ID


class TokenLoss(NamedTuple):
    """Sums over the real target tokens of a batch, in nats; divide by `tokens` for the mean."""

    smoothed: jax.Array  # what training minimises
    plain: jax.Array  # negative log-probability of the gold tokens: exp(plain / tokens) is the perplexity
    tokens: jax.Array  # int32


def cross_entropy(
    logits: jax.Array, targets: jax.Array, vocabulary_size: int, smoothing: float, mass: str = "vocabulary"
) -> TokenLoss:
    """Cross-entropy against (1 - eps) one-hot + eps * uniform.

    Args:
      logits: [B, T, Z], float32; columns from `vocabulary_size` on are the masked filling and left out.
      targets: [B, T]; padding does not count.
      smoothing: eps.
      mass: "vocabulary" spreads eps over all entries, the gold one included (the paper); "others" over all but it.
    """
    real = targets != PAD_ID
    log_normalizer = jax.nn.logsumexp(logits, axis=-1)
    gold = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    plain = log_normalizer - gold
    # The uniform part needs only the sum of the logits: sum_z log p_z = sum_z logit_z - Z * log_normalizer.
    entries = jnp.arange(logits.shape[-1]) < vocabulary_size
    total = jnp.sum(jnp.where(entries, logits, 0), axis=-1)
    everywhere = vocabulary_size * log_normalizer - total
    if mass == "vocabulary":
        smoothed = (1 - smoothing) * plain + smoothing / vocabulary_size * everywhere
    else:
        smoothed = (1 - smoothing) * plain + smoothing / (vocabulary_size - 1) * (everywhere - plain)
    zero = jnp.zeros((), logits.dtype)
    return TokenLoss(
        jnp.sum(jnp.where(real, smoothed, zero)),
        jnp.sum(jnp.where(real, plain, zero)),
        jnp.sum(real, dtype=jnp.int32),
    )
