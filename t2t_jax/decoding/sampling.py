"""Sampling from the model, token by token; pure, and independent of any model, like the search beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from t2t_jax.decoding.beam import NEVER, Cache, Hypotheses, Step, choosable
from t2t_jax.errors import ConfigError
from t2t_jax.symbols import BOS_ID, EOS_ID, PAD_ID


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn."""

    temperature: float = 1.0
    """Logits are divided by this first."""
    top_k: int | None = None
    """Draw among the likeliest so many."""
    top_p: float | None = None
    """Draw among the likeliest that together have this probability."""
    seed: int = 0
    """Decides the draws, with the line's tokens: equal lines get equal samples."""

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ConfigError(f"temperature={self.temperature} must be greater than 0.")
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"top_k={self.top_k} must be at least 1.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p={self.top_p} must be above 0 and at most 1.")


class _State(NamedTuple):
    position: jax.Array
    tokens: jax.Array  # [B, W, T], end of sentence included
    scores: jax.Array  # [B, W]
    ended: jax.Array  # [B, W]
    cache: Any


def sample(
    step: Step,
    cache: Cache,
    limits: jax.Array,
    keys: jax.Array,
    *,
    count: int,
    length: int,
    settings: Sampling,
    prefix: jax.Array | None = None,
) -> Hypotheses:
    """Draw `count` translations of every row.

    Args:
      step, cache, limits, length, prefix: as for `beam_search`, with W = `count`.
      keys: [B] random keys; a row's draws depend on its own alone.
      count: W, draws a row.
      settings: temperature and cuts.

    Returns:
      The draws in no order. Their scores are log-probabilities under the model itself, at temperature 1 and uncut.
    """
    rows = limits.shape[0]

    def draw(state: _State) -> _State:
        index = state.position
        before = jnp.take(state.tokens, jnp.maximum(index - 1, 0), axis=2)
        logits, cache = step(jnp.where(index == 0, BOS_ID, before), index, state.cache)
        log_p = jax.nn.log_softmax(logits, axis=-1)
        narrowed = narrow(choosable(logits, prefix, index) / settings.temperature, settings)
        here = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, index), count))(keys)
        tokens = jax.vmap(jax.vmap(jax.random.categorical))(here, narrowed).astype(jnp.int32)
        # At the limit only an end is taken.
        grows = ~state.ended & ((index < limits)[:, None] | ((index == limits)[:, None] & (tokens == EOS_ID)))
        tokens = jnp.where(grows, tokens, PAD_ID)
        gained = jnp.take_along_axis(log_p, tokens[..., None], axis=-1)[..., 0]
        return _State(
            index + 1,
            state.tokens.at[:, :, index].set(tokens),
            state.scores + jnp.where(grows, gained, 0.0),
            state.ended | (tokens == EOS_ID),
            cache,
        )

    def open_rows(state: _State) -> jax.Array:
        return jnp.any(~state.ended & (state.position <= limits)[:, None])

    start = _State(
        jnp.zeros((), jnp.int32),
        jnp.full((rows, count, length), PAD_ID, jnp.int32),
        jnp.zeros((rows, count)),
        jnp.broadcast_to((limits <= 0)[:, None], (rows, count)),
        cache,
    )
    end = jax.lax.while_loop(open_rows, draw, start)
    tokens = jnp.where(end.tokens == EOS_ID, PAD_ID, end.tokens)
    cut = ~end.ended & (limits > 0)[:, None]
    return Hypotheses(tokens, end.scores, jnp.sum(tokens != PAD_ID, axis=-1), cut)


def narrow(logits: jax.Array, settings: Sampling) -> jax.Array:
    """Logits [..., Z] with all but the likeliest, by `top_k` and by `top_p`, made impossible; equals stay together."""
    if settings.top_k is not None and settings.top_k < logits.shape[-1]:
        least = jax.lax.top_k(logits, settings.top_k)[0][..., -1:]
        logits = jnp.where(logits >= least, logits, NEVER)
    if settings.top_p is not None:
        ordered = jnp.sort(logits, axis=-1, descending=True)
        p = jax.nn.softmax(ordered, axis=-1)
        inside = jnp.cumsum(p, axis=-1) - p < settings.top_p  # what comes before does not reach it; never empty
        least = jnp.min(jnp.where(inside, ordered, jnp.inf), axis=-1, keepdims=True)
        logits = jnp.where(logits >= least, logits, NEVER)
    return logits
