"""Sampling from the model, token by token; pure, and independent of any model, like the search beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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


class State(NamedTuple):
    """Where the drawing stands between two positions, as `beam.State`."""

    running: jax.Array  # [B] bool
    limits: jax.Array  # [B]
    lines: jax.Array  # [B] uint32, what besides the seed decides a row's draws
    tokens: jax.Array  # [B, W, T], end of sentence included
    scores: jax.Array  # [B, W]
    ended: jax.Array  # [B, W]
    cache: Cache


@dataclass(frozen=True)
class Sampler:
    """Draws translations of every row; in parts, as `BeamSearch` searches."""

    settings: Sampling
    width: int
    """W, draws a row."""

    def start(self, cache: Cache, limits: jax.Array, length: int, lines: jax.Array) -> State:
        """Before the first token; `lines` [B] uint32 decides a row's draws, the rest is as for `BeamSearch.start`."""
        empty = jnp.full((len(limits), self.width, length), PAD_ID, jnp.int32)
        ended = jnp.broadcast_to((limits <= 0)[:, None], empty.shape[:2])
        return State(limits > 0, limits, lines, empty, jnp.zeros(empty.shape[:2]), ended, cache)

    def advance(self, step: Step, state: State, begin: int, end: int, prefix: jax.Array | None = None) -> State:
        """Draw the tokens of the positions from `begin` to before `end`, or fewer; as `BeamSearch.advance`."""
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(self.settings.seed), state.lines)
        own = jnp.broadcast_to(jnp.arange(self.width)[:, None], state.tokens.shape)  # every draw goes on from itself

        def goes_on(carry: tuple[jax.Array, State]) -> jax.Array:
            return (carry[0] < end) & jnp.any(carry[1].running)

        def draw(carry: tuple[jax.Array, State]) -> tuple[jax.Array, State]:
            index, state = carry
            before = jnp.take(state.tokens, jnp.maximum(index - 1, 0), axis=2)
            logits, cache = step(jnp.where(index == 0, BOS_ID, before), index, own, state.cache)
            log_p = jax.nn.log_softmax(logits, axis=-1)
            wanted = None if prefix is None else jnp.take(prefix, index, axis=1)
            narrowed = narrow(choosable(logits, wanted) / self.settings.temperature, self.settings)
            here = jax.vmap(lambda key: jax.random.split(jax.random.fold_in(key, index), self.width))(keys)
            tokens = jax.vmap(jax.vmap(jax.random.categorical))(here, narrowed).astype(jnp.int32)
            # At the limit only an end is taken.
            grows = ~state.ended & ((index < state.limits)[:, None] | (tokens == EOS_ID))
            grows &= state.running[:, None]
            tokens = jnp.where(grows, tokens, PAD_ID)
            gained = jnp.take_along_axis(log_p, tokens[..., None], axis=-1)[..., 0]
            ended = state.ended | (tokens == EOS_ID)
            state = state._replace(
                running=state.running & (index < state.limits) & ~jnp.all(ended, axis=1),
                tokens=state.tokens.at[:, :, index].set(tokens),
                scores=state.scores + jnp.where(grows, gained, 0.0),
                ended=ended,
                cache=cache,
            )
            return index + 1, state

        return jax.lax.while_loop(goes_on, draw, (jnp.asarray(begin), state))[1]

    def best(self, state: State) -> Hypotheses:
        """The draws in no order; their scores are log-probabilities under the model, at temperature 1 and uncut."""
        tokens = jnp.where(state.tokens == EOS_ID, PAD_ID, state.tokens)
        cut = ~state.ended & (state.limits > 0)[:, None]
        return Hypotheses(tokens, state.scores, jnp.sum(tokens != PAD_ID, axis=-1), cut)


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
