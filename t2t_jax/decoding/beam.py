"""Beam search with length penalty and early stopping, section 6.1; pure, and independent of any model.

The search sees a function from tokens to logits and a cache. It is exact about its own rule: among the hypotheses that
it explores, it returns the best by log-probability over length penalty, and stopping early never changes which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from t2t_jax.symbols import BOS_ID, EOS_ID, PAD_ID

# Stands for minus infinity: lower than any score, and still a number when it is divided or added to.
NEVER = -1e9

Cache = Any
Step = Callable[[jax.Array, jax.Array, Cache], tuple[jax.Array, Cache]]
"""(tokens [B, W] int32, index, cache) -> (logits [B, W, Z] of what follows, cache); every cache leaf is [B, W, …]."""


class Hypotheses(NamedTuple):
    """The best hypotheses of each row, best first."""

    tokens: jax.Array  # [B, N, T] int32, without end of sentence, padded with 0
    scores: jax.Array  # [B, N] log-probability over length penalty; NEVER where there is no hypothesis
    lengths: jax.Array  # [B, N] int32, tokens without end of sentence
    cut: jax.Array  # [B, N] bool: reached the row's limit without an end of sentence


class _State(NamedTuple):
    position: jax.Array  # that is being chosen
    alive_tokens: jax.Array  # [B, W, T]
    alive_scores: jax.Array  # [B, W] log-probability, descending
    finished_tokens: jax.Array  # [B, W, T], end of sentence included
    finished_scores: jax.Array  # [B, W] penalised, descending
    done: jax.Array  # [B]
    cache: Cache  # leaves [B, W, …]


def length_penalty(length: jax.Array | int, alpha: float, kind: str = "gnmt") -> jax.Array:
    """The divisor of a log-probability of `length` tokens, end of sentence included.

    "gnmt" is ((5 + |Y|) / 6)^alpha, the paper's; "length" is |Y|^alpha.
    """
    length = jnp.asarray(length, jnp.float32)
    return ((5 + length) / 6) ** alpha if kind == "gnmt" else length**alpha


def beam_search(
    step: Step,
    cache: Cache,
    limits: jax.Array,
    *,
    beam: int,
    length: int,
    alpha: float,
    penalty: str = "gnmt",
    n_best: int = 1,
    early_stopping: bool = True,
    prefix: jax.Array | None = None,
) -> Hypotheses:
    """Search every row at once.

    Args:
      step: gives the logits of the next token.
      cache: the step's state before the first token, leaves [B, W, …].
      limits: [B] int32, most tokens of each row's hypotheses, end of sentence not counted; a row of limit 0 is empty.
      beam: W.
      length: T, a static bound; every limit is below it.
      alpha, penalty: see `length_penalty`.
      n_best: N <= W, hypotheses returned a row.
      early_stopping: stop a row once no open hypothesis can still reach its best N.
      prefix: [B, T] int32 that every hypothesis of a row begins with, padded with 0; it counts in the score.

    Returns:
      The best N of each row. Finished ones come first; a row with fewer is filled up with ones that were cut, whose
      penalty counts the tokens they have.
    """
    rows = limits.shape[0]
    # Of 2W candidates at most W end (one a hypothesis), so W are left to go on. A single hypothesis is greedy search:
    # it takes what is likeliest, an end included.
    width = 2 * beam if beam > 1 else 1
    worst = length_penalty(limits + 1, alpha, penalty)  # the largest divisor a row can meet: its scores' best hope

    def search(state: _State) -> _State:
        index = state.position
        before = jnp.take(state.alive_tokens, jnp.maximum(index - 1, 0), axis=2)
        logits, cache = step(jnp.where(index == 0, BOS_ID, before), index, state.cache)
        values, tokens = jax.lax.top_k(choosable(logits, prefix, index), min(width, logits.shape[-1]))
        scores = state.alive_scores[..., None] + values - jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        kept = scores.shape[2]
        scores, places = jax.lax.top_k(scores.reshape(rows, -1), min(width, beam * kept))
        parents, tokens = places // kept, jnp.take_along_axis(tokens.reshape(rows, -1), places, axis=1)
        candidates = _gather(state.alive_tokens, parents).at[:, :, index].set(tokens)
        ends = tokens == EOS_ID

        ended = jnp.where(ends & (scores > NEVER / 2), scores / length_penalty(index + 1, alpha, penalty), NEVER)
        all_scores = jnp.concatenate([state.finished_scores, ended], axis=1)
        finished_scores, order = jax.lax.top_k(all_scores, beam)
        finished_tokens = _gather(jnp.concatenate([state.finished_tokens, candidates], axis=1), order)

        open_scores, order = jax.lax.top_k(jnp.where(ends, NEVER, scores), beam)
        # At the limit only an end is allowed: what does not end there stays as it is.
        ended_now = jnp.any(ends[:, None] & (parents[:, None] == jnp.arange(beam)[:, None]), axis=2)
        stuck_scores, stuck = jax.lax.top_k(jnp.where(ended_now, NEVER, state.alive_scores), beam)
        grows = index < limits
        origin = jnp.where(grows[:, None], jnp.take_along_axis(parents, order, axis=1), stuck)
        stuck_tokens = _gather(state.alive_tokens, stuck)
        alive_tokens = jnp.where(grows[:, None, None], _gather(candidates, order), stuck_tokens)
        alive_scores = jnp.where(grows[:, None], open_scores, stuck_scores)

        done = (index >= limits) | (alive_scores[:, 0] <= NEVER / 2)
        if early_stopping:
            done |= finished_scores[:, n_best - 1] >= alive_scores[:, 0] / worst

        def settled(old: jax.Array, new: jax.Array) -> jax.Array:
            """Nothing of a row changes once it is done: its result must not depend on its neighbours."""
            return jnp.where(state.done.reshape(-1, *[1] * (old.ndim - 1)), old, new)

        return _State(
            position=index + 1,
            alive_tokens=settled(state.alive_tokens, alive_tokens),
            alive_scores=settled(state.alive_scores, alive_scores),
            finished_tokens=settled(state.finished_tokens, finished_tokens),
            finished_scores=settled(state.finished_scores, finished_scores),
            done=state.done | done,
            cache=jax.tree.map(lambda leaf: _gather(leaf, origin), cache),
        )

    empty = jnp.full((rows, beam, length), PAD_ID, jnp.int32)
    start = jnp.where(jnp.arange(beam) == 0, 0.0, NEVER) * jnp.ones((rows, 1))
    never = jnp.full((rows, beam), NEVER)
    state = _State(jnp.zeros((), jnp.int32), empty, start, empty, never, limits <= 0, cache)
    state = jax.lax.while_loop(lambda s: ~jnp.all(s.done), search, state)
    return _best(state, limits, n_best, lambda n: length_penalty(n, alpha, penalty))


def _best(state: _State, limits: jax.Array, n_best: int, penalty: Callable[[jax.Array], jax.Array]) -> Hypotheses:
    """Finished hypotheses, then open ones as far as there are not enough."""
    count = jnp.sum(state.finished_scores > NEVER / 2, axis=1, keepdims=True)
    slot = jnp.arange(n_best)
    cut = slot >= count
    place = jnp.where(cut, slot - count, slot)
    finished, alive = _gather(state.finished_tokens, place), _gather(state.alive_tokens, place)
    tokens = jnp.where(cut[..., None], alive, finished)
    alive_scores = jnp.take_along_axis(state.alive_scores, place, axis=1)
    open_scores = jnp.where(alive_scores > NEVER / 2, alive_scores / penalty(jnp.maximum(limits, 1))[:, None], NEVER)
    scores = jnp.where(cut, open_scores, jnp.take_along_axis(state.finished_scores, place, axis=1))
    tokens = jnp.where((tokens == EOS_ID) | (scores <= NEVER / 2)[..., None], PAD_ID, tokens)
    return Hypotheses(tokens, scores, jnp.sum(tokens != PAD_ID, axis=-1), cut & (limits > 0)[:, None])


def _gather(leaf: jax.Array, beams: jax.Array) -> jax.Array:
    """leaf [B, W, …] at beams [B, V] of each row: [B, V, …]."""
    return jax.vmap(lambda row, order: row[order])(leaf, beams)


def choosable(logits: jax.Array, prefix: jax.Array | None, index: jax.Array) -> jax.Array:
    """Logits [B, W, Z] of position `index`, with what may not be chosen there made impossible."""
    tokens = jnp.arange(logits.shape[-1])
    allowed = (tokens != PAD_ID) & (tokens != BOS_ID)
    if prefix is not None:
        wanted = jnp.take(prefix, index, axis=1)[:, None, None]
        allowed &= (wanted == PAD_ID) | (tokens == wanted)
    return jnp.where(allowed, logits, NEVER)
