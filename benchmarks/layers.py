"""The kinds of layer in the paper's Table 1, from [B, n, d] to [B, n, d]: each as small as a model would hold it.

    B rows    n sequence length    d width    k kernel width    r neighbourhood

Norms, residual sums, biases and further heads are left out of all alike. Weights are a dictionary of float32 arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

Weights = dict[str, jax.Array]


def random_weights(seed: int, **shapes: Sequence[int]) -> Weights:
    """Normal weights by name, each of variance one over its inputs, the product of all dimensions but the last."""
    keys = jax.random.split(jax.random.key(seed), len(shapes))
    return {
        name: jax.random.normal(key, shape) * math.prod(shape[:-1]) ** -0.5
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def attention_weights(d: int, seed: int = 0) -> Weights:
    """For both kinds of self-attention."""
    return random_weights(seed, query=(d, d), key=(d, d), value=(d, d), output=(d, d))


def self_attention(w: Weights, x: jax.Array) -> jax.Array:
    """Every position attends to every position, section 3.2: 4nd² + 2n²d multiplications."""
    queries, keys, values = x @ w["query"], x @ w["key"], x @ w["value"]
    scores = jnp.einsum("bqd,bsd->bqs", queries, keys) * x.shape[-1] ** -0.5
    return jnp.einsum("bqs,bsd->bqd", jax.nn.softmax(scores), values) @ w["output"]


def restricted_self_attention(w: Weights, x: jax.Array, r: int) -> jax.Array:
    """Every position attends to itself and r/2 positions on either side, end of section 4: 4nd² + 3nrd multiplications.

    Queries are taken in blocks of r/2, whose neighbours all lie in their own block, the one before and the one after.
    So 3/2 r scores are computed for a query, whatever n is.
    """
    rows, n, d = x.shape
    side = r // 2
    blocks = -(-n // side)
    place = jnp.arange(blocks * side)

    def in_blocks(projected: jax.Array) -> jax.Array:
        """[B, n, d] to [B, blocks, side, d], filled up at the end."""
        return jnp.pad(projected, ((0, 0), (0, blocks * side - n), (0, 0))).reshape(rows, blocks, side, d)

    def with_neighbours(blocked: jax.Array, axis: int) -> jax.Array:
        """[…, blocks, side, …] to […, blocks, 3 side, …]; the blocks beyond the ends are zero."""
        widths = [(1, 1) if i == axis else (0, 0) for i in range(blocked.ndim)]
        padded = jnp.pad(blocked, widths)
        near = (jax.lax.slice_in_dim(padded, i, i + blocks, axis=axis) for i in range(3))
        return jnp.concatenate(list(near), axis=axis + 1)

    queries, keys, values = (in_blocks(x @ w[name]) for name in ("query", "key", "value"))
    keys, values = with_neighbours(keys, 1), with_neighbours(values, 1)
    of_query = place.reshape(blocks, side, 1)
    of_key = of_query[:, :1] + jnp.arange(-side, 2 * side)  # [blocks, 1, 3 side]
    seen = (jnp.abs(of_query - of_key) <= side) & (of_key >= 0) & (of_key < n)
    scores = jnp.einsum("bcqd,bcsd->bcqs", queries, keys) * d**-0.5
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e9))
    heads = jnp.einsum("bcqs,bcsd->bcqd", weights, values)
    return heads.reshape(rows, blocks * side, d)[:, :n] @ w["output"]


def lstm_weights(d: int, seed: int = 0) -> Weights:
    """For the recurrent layer; the four gates side by side."""
    return random_weights(seed, input=(d, 4 * d), state=(d, 4 * d))


def lstm_cell(
    w: Weights, state: tuple[jax.Array, jax.Array], from_input: jax.Array
) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
    """One step from (hidden, cell), each [B, d], and the input's product [B, 4d]; the new state and its hidden part."""
    hidden, cell = state
    gates = from_input + hidden @ w["state"]
    enter, forget, leave, candidate = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
    hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
    return (hidden, cell), hidden


def recurrent(w: Weights, x: jax.Array) -> jax.Array:
    """A long short-term memory over the positions in order: 8nd² multiplications.

    Only the product with the state waits for the position before; that with the inputs is taken for all at once.
    """
    from_input = (x @ w["input"]).swapaxes(0, 1)
    nothing = jnp.zeros((x.shape[0], x.shape[2]))
    _, hidden = jax.lax.scan(lambda state, at: lstm_cell(w, state, at), (nothing, nothing), from_input)
    return hidden.swapaxes(0, 1)


def recurrence(w: Weights, x: jax.Array) -> jax.Array:
    """One sequential operation of `recurrent`, for paths: each position's state from the state of the one before.

    What x holds for a position is at once its input and the hidden state that the next position sees.
    """
    before = jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    return lstm_cell(w, (before, before), x @ w["input"])[1]


def convolution_weights(d: int, k: int, seed: int = 0) -> Weights:
    """For the convolution."""
    return random_weights(seed, kernel=(k, d, d))


def convolution(w: Weights, x: jax.Array) -> jax.Array:
    """Of odd width k around each position, with zeros beyond the ends: knd² multiplications."""
    side = len(w["kernel"]) // 2
    return _convolution(w, x, (side, side), 1)


def dilated_convolution(w: Weights, x: jax.Array, dilation: int) -> jax.Array:
    """Over each position and the k - 1 that lie one, two, … dilations before it, as in a decoder.

    A stack whose dilations grow by k looks back over k^layers positions. Around each position the same dilations would
    leave gaps: a signal that has to go too far and back again is lost beyond the ends.
    """
    return _convolution(w, x, (dilation * (len(w["kernel"]) - 1), 0), dilation)


def _convolution(w: Weights, x: jax.Array, zeros: tuple[int, int], dilation: int) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, w["kernel"], (1,), [zeros], rhs_dilation=(dilation,), dimension_numbers=("NWC", "WIO", "NWC")
    )


def separable_convolution_weights(d: int, k: int, seed: int = 0) -> Weights:
    """For the separable convolution."""
    return random_weights(seed, depth=(k, d), point=(d, d))


def separable_convolution(w: Weights, x: jax.Array) -> jax.Array:
    """Every unit by itself over k positions, then a product over units: knd + nd² multiplications.

    Written as a sum over shifted copies, since XLA's grouped convolutions are slow on a CPU.
    """
    k, n = len(w["depth"]), x.shape[1]
    padded = jnp.pad(x, ((0, 0), (k // 2, k // 2), (0, 0)))
    shifted = jnp.stack([padded[:, j : j + n] for j in range(k)])
    return jnp.einsum("kbnd,kd->bnd", shifted, w["depth"]) @ w["point"]
