"""What the Transformer displaced first: a recurrent encoder-decoder with additive attention.

Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and translate" (2015): an encoder
that reads in both directions, a decoder that weighs the encoder's outputs by its own state before each token. Further
layers are stacked as in Wu et al., "Google's neural machine translation system" (2016): each is added to what it reads,
and every layer of the decoder reads what the bottom one has found.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from t2t_jax import config
from t2t_jax.model.attention import MASKED
from t2t_jax.model.dropout import Dropout
from t2t_jax.model.encoder_decoder import EncoderDecoder
from t2t_jax.model.hypotheses import of_parents
from t2t_jax.model.linear import linear
from t2t_jax.model.parameters import parameter

# A state is [..., parts, U] in float32, of which the first part is what others see; U is a layer's units.
PARTS = {"lstm": 2, "gru": 1}
GATES = {"lstm": 4, "gru": 3}


def lstm(into: jax.Array, back: jax.Array, state: jax.Array) -> jax.Array:
    """c' = s(f + 1) c + s(i) tanh(g), h' = s(o) tanh(c'), for i, f, g, o of input and state [..., 4, U], s the sigmoid.

    The 1 lets a fresh layer remember (Jozefowicz et al., 2015).
    """
    enter, forget, new, out = jnp.moveaxis(into + back, -2, 0)
    cell = jax.nn.sigmoid(forget + 1) * state[..., 1, :] + jax.nn.sigmoid(enter) * jnp.tanh(new)
    return jnp.stack([jax.nn.sigmoid(out) * jnp.tanh(cell), cell], axis=-2)


def gru(into: jax.Array, back: jax.Array, state: jax.Array) -> jax.Array:
    """h' = (1 - z) tanh(n + r n_h) + z h, for r, z, n of the input and r, z, n_h of the state [..., 3, U].

    The reset gate r is applied after the product with the state, as cuDNN has it.
    """
    reset, keep = (jax.nn.sigmoid(into[..., i, :] + back[..., i, :]) for i in range(2))
    new = jnp.tanh(into[..., 2, :] + reset * back[..., 2, :])
    return ((1 - keep) * new + keep * state[..., 0, :])[..., None, :]


CELLS = {"lstm": lstm, "gru": gru}


class Recurrence(nn.Module):
    """One layer of a cell, a position at a time or all of them."""

    config: config.Model
    inputs: int
    units: int
    dtype: jnp.dtype

    def setup(self) -> None:
        xavier = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", in_axis=0, out_axis=2)
        axes, gates = ("embed", None, None), GATES[self.config.recurrent_cell]
        self.input = linear(self, "input", xavier, axes, (self.inputs, gates, self.units), self.dtype, bias="bias")
        self.state = linear(self, "state", xavier, axes, (self.units, gates, self.units), self.dtype)

    def start(self, rows: int) -> jax.Array:
        """The state [rows, parts, U] before the first position."""
        return jnp.zeros((rows, PARTS[self.config.recurrent_cell], self.units))

    def step(self, into: jax.Array, state: jax.Array) -> jax.Array:
        """The state [..., parts, U] after an input that has been through `input`, [..., gates, U]."""
        back = self.state(state[..., 0, :]).astype(jnp.float32)
        return CELLS[self.config.recurrent_cell](into.astype(jnp.float32), back, state)

    def __call__(self, x: jax.Array, real: jax.Array | None = None, *, reverse: bool = False) -> jax.Array:
        """Inputs [B, n, inputs] to what is seen of the states after each, [B, n, U]; padding passes a state on."""
        into = jnp.swapaxes(self.input(x), 0, 1)
        there = jnp.ones(into.shape[:2], bool) if real is None else real.T

        def one(state: jax.Array, given: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            into, there = given
            state = jnp.where(there[:, None, None], self.step(into, state), state)
            return state, state[:, 0].astype(self.dtype)

        _, seen = jax.lax.scan(one, self.start(len(x)), (into, there), reverse=reverse)
        return nn.with_logical_constraint(jnp.swapaxes(seen, 0, 1), ("batch", "length", "activation"))


class AdditiveAttention(nn.Module):
    """Scores v tanh(W s + U h) of a state s for each of the encoder's outputs h, and the mean of h that they weigh."""

    width: int
    dtype: jnp.dtype

    def setup(self) -> None:
        xavier = nn.initializers.xavier_uniform()
        shape = self.width, self.width
        self.query = linear(self, "query", xavier, ("embed", None), shape, self.dtype)
        self.key = linear(self, "key", xavier, ("embed", None), shape, self.dtype, bias="bias")
        self.score = parameter(self, "score", nn.initializers.normal(self.width**-0.5), (None,), (self.width,))

    def __call__(
        self, state: jax.Array, keys: jax.Array, memory: jax.Array, real: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """States [B, Q, D] over `key` of the memory [B, S, D], of which some is real [B, S]: [B, Q, D], [B, Q, S]."""
        inner = jnp.tanh(self.query(state)[:, :, None] + keys[:, None])
        scores = jnp.einsum("bqsd,d->bqs", inner, self.score.astype(self.dtype), preferred_element_type=jnp.float32)
        weights = jax.nn.softmax(jnp.where(real[:, None], scores, MASKED), axis=-1)
        return jnp.einsum("bqs,bsd->bqd", weights.astype(self.dtype), memory), weights


class RecurrentCache(NamedTuple):
    """What a decoding step reads."""

    states: tuple[jax.Array, ...]  # of each layer, [B, W, parts, D]
    keys: jax.Array  # [B, S, D]
    memory: jax.Array  # [B, S, D]
    real: jax.Array  # [B, S]

    def lengthened(self, size: int) -> RecurrentCache:
        """As `transformer.Cache.lengthened`: a state is as large as it is."""
        return self


class Recurrent(EncoderDecoder):
    """The recurrent model; every layer is d_model wide, in the encoder half of it in each direction."""

    def setup(self) -> None:
        super().setup()
        d_model, layers = self.config.d_model, range(self.config.num_layers)
        half = d_model, d_model // 2
        self.encoder = [[Recurrence(self.config, *half, self.dtype) for _ in range(2)] for _ in layers]
        self.decoder = [Recurrence(self.config, 2 * d_model, d_model, self.dtype) for _ in layers]
        self.attention = AdditiveAttention(d_model, self.dtype)
        xavier = nn.initializers.xavier_uniform()
        self.first = linear(self, "first", xavier, ("embed", None), (d_model, d_model), self.dtype, bias="first_bias")
        self.last = linear(self, "last", xavier, ("embed", None), (3 * d_model, d_model), self.dtype, bias="last_bias")
        self.dropout = Dropout(self.config.dropout)

    def alignment(self) -> tuple[str, ...]:
        """As for every `EncoderDecoder`."""
        return ("weights",)

    def _encode(self, rows: jax.Array, real: jax.Array, deterministic: bool) -> jax.Array:
        x = self._embed(rows, jnp.zeros(()), deterministic)
        for i, (forwards, backwards) in enumerate(self.encoder):
            y = jnp.concatenate([forwards(x, real), backwards(x, real, reverse=True)], axis=-1)
            x = self._dropped(y, deterministic) + (x if i else 0)
        return x

    def _decode(
        self, memory: jax.Array, real: jax.Array, rows: jax.Array, target_real: jax.Array, deterministic: bool
    ) -> jax.Array:
        e = self._embed(rows, jnp.zeros(()), deterministic)
        keys = self.attention.key(memory)

        @jax.checkpoint  # what is inside the scores, [B, S, D] at each position, is not kept
        def one(state: jax.Array, e: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
            state, context, weights = self._look(state[:, None], e[:, None], keys, memory, real)
            return state[:, 0], (state[:, 0, 0].astype(self.dtype), context[:, 0], weights[:, 0])

        _, found = jax.lax.scan(one, self._first_state(memory), jnp.swapaxes(e, 0, 1))
        x, context, weights = (jnp.swapaxes(a, 0, 1) for a in found)
        self.sow("intermediates", "weights", weights[:, None])
        for layer in self.decoder[1:]:
            y = layer(jnp.concatenate([self._dropped(x, deterministic), context], axis=-1))
            x = x + y
        return self._read_out(self._dropped(x, deterministic), context, e)

    def start_cache(self, memory: jax.Array, real: jax.Array, beam: int, length: int) -> RecurrentCache:
        """As for every `EncoderDecoder`."""
        states = [self._first_state(memory), *[layer.start(len(memory)) for layer in self.decoder[1:]]]
        each = tuple(jnp.repeat(state[:, None], beam, axis=1) for state in states)
        return RecurrentCache(each, self.attention.key(memory), memory, real)

    def decode_step(
        self, tokens: jax.Array, index: jax.Array, writers: jax.Array, cache: RecurrentCache
    ) -> tuple[jax.Array, RecurrentCache]:
        """As for every `EncoderDecoder`."""
        bottom, *others = of_parents(cache.states, index, writers)
        e = self._embed(self.embedding[tokens], jnp.zeros(()), deterministic=True)
        bottom, context, _ = self._look(bottom, e, cache.keys, cache.memory, cache.real)
        states, x = [bottom], bottom[..., 0, :].astype(self.dtype)
        for layer, state in zip(self.decoder[1:], others, strict=True):
            states.append(layer.step(layer.input(jnp.concatenate([x, context], axis=-1)), state))
            x = x + states[-1][..., 0, :].astype(self.dtype)
        return self._logits(self._read_out(x, context, e)), cache._replace(states=tuple(states))

    def _first_state(self, memory: jax.Array) -> jax.Array:
        """Of the bottom layer, from the encoder's output at the first position: [B, parts, D]."""
        state = self.decoder[0].start(len(memory))
        return state.at[:, 0].set(jnp.tanh(self.first(memory[:, 0]).astype(jnp.float32)))

    def _look(
        self, state: jax.Array, e: jax.Array, keys: jax.Array, memory: jax.Array, real: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The bottom layer at a position: states [B, Q, parts, D], inputs [B, Q, D] to states, context, weights."""
        context, weights = self.attention(state[..., 0, :], keys, memory, real)
        bottom = self.decoder[0]
        return bottom.step(bottom.input(jnp.concatenate([e, context], axis=-1)), state), context, weights

    def _read_out(self, x: jax.Array, context: jax.Array, e: jax.Array) -> jax.Array:
        """What the logits are made of: tanh of a projection of the top state, the context and the input; [..., D]."""
        y = jnp.tanh(self.last(jnp.concatenate([x, context, e], axis=-1)))
        return nn.with_logical_constraint(y, ("batch", "length", "activation"))

    def _dropped(self, x: jax.Array, deterministic: bool) -> jax.Array:
        return self.dropout(x, deterministic=deterministic)
