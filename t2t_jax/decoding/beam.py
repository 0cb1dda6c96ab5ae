"""Beam search with length penalty and early stopping, section 6.1; pure, and independent of any model.

The search sees a function from tokens to logits and a cache. It is exact about its own rule: among the hypotheses that
it explores, it returns the best by log-probability over length penalty, and stopping early never changes which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from t2t_jax.symbols import BOS_ID, EOS_ID, PAD_ID

# Stands for minus infinity: lower than any score, and still a number when it is divided or added to.
NEVER = -1e9

# Most logits of which the largest is found first, when the largest of all are wanted.
BLOCK = 64

Cache = Any
Step = Callable[[jax.Array, jax.Array, jax.Array, Cache], tuple[jax.Array, Cache]]
"""(tokens [B, W] int32, index, writers [B, W, T], cache) -> (logits [B, W, Z] of what follows, cache).

The search never puts the cache in another order. Hypothesis w of row b writes its part for position `index`, and goes
on from what hypothesis writers[b, w, t] wrote for each position t before. Every cache leaf is [B, …].
"""


class Hypotheses(NamedTuple):
    """The best hypotheses of each row, best first."""

    tokens: jax.Array  # [B, N, T] int32, without end of sentence, padded with 0
    scores: jax.Array  # [B, N] log-probability over length penalty; NEVER where there is no hypothesis
    lengths: jax.Array  # [B, N] int32, tokens without end of sentence
    cut: jax.Array  # [B, N] bool: reached the row's limit without an end of sentence


class State(NamedTuple):
    """Where a search stands between two positions; each row's part is independent of the others'."""

    running: jax.Array  # [B] bool; a row that is not stays as it is
    limits: jax.Array  # [B] most tokens of a hypothesis, end of sentence not counted; a row of limit 0 is empty
    alive_tokens: jax.Array  # [B, W, T]
    alive_scores: jax.Array  # [B, W] log-probability, descending
    writers: jax.Array  # [B, W, T] which hypothesis was each one's past at each position
    finished_tokens: jax.Array  # [B, W, T], end of sentence included
    finished_scores: jax.Array  # [B, W] penalised, descending
    cache: Cache


def length_penalty(length: jax.Array | int, alpha: float, kind: str = "gnmt") -> jax.Array:
    """The divisor of a log-probability of `length` tokens, end of sentence included.

    "gnmt" is ((5 + |Y|) / 6)^alpha, the paper's; "length" is |Y|^alpha.
    """
    length = jnp.asarray(length, jnp.float32)
    return ((5 + length) / 6) ** alpha if kind == "gnmt" else length**alpha


@dataclass(frozen=True)
class BeamSearch:
    """Searches all rows at once, for as many positions at a time as one likes."""

    width: int
    """W, hypotheses kept a row."""
    alpha: float
    penalty: str = "gnmt"
    """With alpha, as for `length_penalty`."""
    n_best: int = 1
    """N <= W, hypotheses returned a row."""
    early_stopping: bool = True
    """Stop a row once no open hypothesis can still reach its best N."""

    def start(self, cache: Cache, limits: jax.Array, length: int) -> State:
        """Before the first token.

        Args:
          cache: the step's, leaves [B, …].
          limits: [B] int32, most tokens of each row's hypotheses; see `State`.
          length: T, a static bound; every limit is below it.
        """
        rows, width = limits.shape[0], self.width
        empty = jnp.full((rows, width, length), PAD_ID, jnp.int32)
        first = jnp.where(jnp.arange(width) == 0, 0.0, NEVER) * jnp.ones((rows, 1))
        never = jnp.full((rows, width), NEVER)
        return State(limits > 0, limits, empty, first, jnp.zeros_like(empty), empty, never, cache)

    def advance(self, step: Step, state: State, begin: int, end: int, prefix: jax.Array | None = None) -> State:
        """Choose the tokens of the positions from `begin` to before `end`, or fewer if no row needs them.

        Args:
          step: gives the logits of the next token.
          state: after the positions before `begin`.
          begin, end: static positions.
          prefix: [B, T] int32 that every hypothesis of a row begins with, padded with 0; it counts in the score.
        """

        def goes_on(carry: tuple[jax.Array, State]) -> jax.Array:
            return (carry[0] < end) & jnp.any(carry[1].running)

        def choose(carry: tuple[jax.Array, State]) -> tuple[jax.Array, State]:
            return carry[0] + 1, self._choose(step, carry[1], carry[0], prefix)

        return jax.lax.while_loop(goes_on, choose, (jnp.asarray(begin), state))[1]

    def best(self, state: State) -> Hypotheses:
        """The best N of each row.

        Finished ones come first; a row with fewer is filled up with ones that were cut, whose penalty counts the
        tokens they have.
        """
        limits, slot = state.limits, jnp.arange(self.n_best)
        count = jnp.sum(state.finished_scores > NEVER / 2, axis=1, keepdims=True)
        cut = slot >= count
        place = jnp.where(cut, slot - count, slot)
        finished, alive = _gather(state.finished_tokens, place), _gather(state.alive_tokens, place)
        tokens = jnp.where(cut[..., None], alive, finished)
        alive_scores = _gather(state.alive_scores, place)
        penalty = self._penalty(jnp.maximum(limits, 1))[:, None]
        open_scores = jnp.where(alive_scores > NEVER / 2, alive_scores / penalty, NEVER)
        scores = jnp.where(cut, open_scores, _gather(state.finished_scores, place))
        tokens = jnp.where((tokens == EOS_ID) | (scores <= NEVER / 2)[..., None], PAD_ID, tokens)
        return Hypotheses(tokens, scores, jnp.sum(tokens != PAD_ID, axis=-1), cut & (limits > 0)[:, None])

    def _penalty(self, length: jax.Array) -> jax.Array:
        return length_penalty(length, self.alpha, self.penalty)

    def _choose(self, step: Step, state: State, index: jax.Array, prefix: jax.Array | None) -> State:
        rows, beam = state.alive_scores.shape
        # Of 2W candidates at most W end (one a hypothesis), so W are left to go on. A single hypothesis is greedy
        # search: it takes what is likeliest, an end included.
        width = 2 * beam if beam > 1 else 1
        worst = self._penalty(state.limits + 1)  # the largest divisor a row can meet: its scores' best hope

        before = jnp.take(state.alive_tokens, jnp.maximum(index - 1, 0), axis=2)
        writers = state.writers.at[:, :, index].set(jnp.arange(beam))
        logits, cache = step(jnp.where(index == 0, BOS_ID, before), index, writers, state.cache)
        wanted = None if prefix is None else jnp.take(prefix, index, axis=1)
        values, tokens = likeliest(logits, wanted, min(width, logits.shape[-1]))
        scores = state.alive_scores[..., None] + values - jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        kept = scores.shape[2]
        scores, places = jax.lax.top_k(scores.reshape(rows, -1), min(width, beam * kept))
        parents, tokens = places // kept, jnp.take_along_axis(tokens.reshape(rows, -1), places, axis=1)
        candidates = _gather(state.alive_tokens, parents).at[:, :, index].set(tokens)
        ends = tokens == EOS_ID

        ended = jnp.where(ends & (scores > NEVER / 2), scores / self._penalty(index + 1), NEVER)
        all_scores = jnp.concatenate([state.finished_scores, ended], axis=1)
        finished_scores, order = jax.lax.top_k(all_scores, beam)
        finished_tokens = _gather(jnp.concatenate([state.finished_tokens, candidates], axis=1), order)

        open_scores, order = jax.lax.top_k(jnp.where(ends, NEVER, scores), beam)
        # At the limit only an end is allowed: what does not end there stays as it is.
        ended_now = jnp.any(ends[:, None] & (parents[:, None] == jnp.arange(beam)[:, None]), axis=2)
        stuck_scores, stuck = jax.lax.top_k(jnp.where(ended_now, NEVER, state.alive_scores), beam)
        grows = index < state.limits
        origin = jnp.where(grows[:, None], _gather(parents, order), stuck)
        stuck_tokens = _gather(state.alive_tokens, stuck)
        alive_tokens = jnp.where(grows[:, None, None], _gather(candidates, order), stuck_tokens)
        alive_scores = jnp.where(grows[:, None], open_scores, stuck_scores)

        running = (index < state.limits) & (alive_scores[:, 0] > NEVER / 2)
        if self.early_stopping:
            running &= finished_scores[:, self.n_best - 1] < alive_scores[:, 0] / worst

        def settled(old: jax.Array, new: jax.Array) -> jax.Array:
            """Nothing of a row changes once it has stopped: its result must not depend on its neighbours."""
            return jnp.where(state.running.reshape(-1, *[1] * (old.ndim - 1)), new, old)

        return State(
            running=state.running & running,
            limits=state.limits,
            alive_tokens=settled(state.alive_tokens, alive_tokens),
            alive_scores=settled(state.alive_scores, alive_scores),
            writers=_gather(writers, origin),
            finished_tokens=settled(state.finished_tokens, finished_tokens),
            finished_scores=settled(state.finished_scores, finished_scores),
            cache=cache,
        )


def likeliest(logits: jax.Array, wanted: jax.Array | None, count: int) -> tuple[jax.Array, jax.Array]:
    """`jax.lax.top_k` of the `choosable` logits [B, W, Z], without a pass over all of them but for maxima of blocks.

    The `count` largest lie in the blocks with the `count` largest maxima, once those blocks are looked at in any case
    whose maximum may not be choosable. Of equal logits the first are taken, by blocks as within them.
    """
    size = logits.shape[-1]
    block = max(n for n in range(1, BLOCK + 1) if size % n == 0)
    if size <= 2 * (count + 2) * block:
        return jax.lax.top_k(choosable(logits, wanted), count)
    blocks = jnp.arange(size // block)
    special = blocks <= BOS_ID // block
    if wanted is not None:
        special |= (blocks == (wanted // block)[:, None])[:, None]
    maxima = jnp.max(logits.reshape(*logits.shape[:2], -1, block), axis=-1)
    chosen = jax.lax.top_k(jnp.where(special, jnp.inf, maxima), count + 2)[1]
    tokens = (jnp.sort(chosen, axis=-1)[..., None] * block + jnp.arange(block)).reshape(*logits.shape[:2], -1)
    candidates = choosable(jnp.take_along_axis(logits, tokens, axis=-1), wanted, tokens)
    values, places = jax.lax.top_k(candidates, count)
    return values, jnp.take_along_axis(tokens, places, axis=-1)


def choosable(logits: jax.Array, wanted: jax.Array | None, tokens: jax.Array | None = None) -> jax.Array:
    """Logits [B, W, Z], with what may not be chosen made impossible.

    Args:
      logits: of all tokens, or of those that `tokens` [B, W, Z] names.
      wanted: [B], the one token that may be chosen; PAD_ID where any may.
      tokens: see `logits`.
    """
    tokens = jnp.arange(logits.shape[-1]) if tokens is None else tokens
    allowed = (tokens != PAD_ID) & (tokens != BOS_ID)
    if wanted is not None:
        given = wanted[:, None, None]
        allowed &= (given == PAD_ID) | (tokens == given)
    return jnp.where(allowed, logits, NEVER)


def _gather(leaf: jax.Array, places: jax.Array) -> jax.Array:
    """leaf [B, X, …] at places [B, Y] of each row: [B, Y, …]."""
    return jax.vmap(lambda row, order: row[order])(leaf, places)
