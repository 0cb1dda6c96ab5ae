"""A mixture of experts for the feed-forward network: Lepikhin et al., "GShard" (2020), Fedus et al., "Switch
transformers" (2021)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from flax import linen as nn

from t2t_jax import config
from t2t_jax.model.parameters import gather, parameter


class MixtureOfExperts(nn.Module):
    """Several feed-forward networks, of which a router picks the likeliest few for each position.

    y = sum over the picked of g_e FFN_e(x), where p = softmax(x W_r): with one pick g is its p, with more theirs
    divided by their sum. In training an expert has room, by each real position of a sentence, for `expert_capacity`
    times an even share of those so far, first come first served; who finds none gets 0 from it, and the residual goes
    by. So no position depends on later ones, not even on how many there are, or on other sentences, and the last are
    passed by no more often than the first. Otherwise all are served, by computing every expert for every position.
    """

    config: config.Model
    dtype: jnp.dtype
    expert: type[nn.Module]
    """What an expert is."""

    def setup(self) -> None:
        init = nn.initializers.xavier_uniform()
        axes = "embed", None
        self.router = gather(
            parameter(self, "router", init, axes, (self.config.d_model, self.config.experts or 1)), axes
        )
        self.experts = self.expert(self.config, self.dtype)

    def __call__(self, x: jax.Array, real: jax.Array | None = None, *, deterministic: bool) -> jax.Array:
        """x [B, n, D] to [B, n, D]; positions that are not `real` [B, n] take no room and count for no balance."""
        model = self.config
        p = jax.nn.softmax(jnp.einsum("bnd,de->bne", x.astype(jnp.float32), self.router), axis=-1)
        gates, picks = jax.lax.top_k(p, model.experts_per_token)
        if model.experts_per_token > 1:
            gates = gates / jnp.sum(gates, axis=-1, keepdims=True)
        picked = jax.nn.one_hot(picks, p.shape[-1])  # [B, n, picks, E]
        weights = jnp.einsum("bnp,bnpe->bne", gates, picked)
        if deterministic or real is None:
            everywhere = jnp.broadcast_to(x, (p.shape[-1], *x.shape))
            return jnp.einsum("ebnd,bne->bnd", self._each(everywhere), weights.astype(self.dtype))

        picked = picked * real[..., None, None]
        self.sow("balance", "loss", balance(p, picked, real))
        rooms = jnp.array([room(model, length) for length in range(x.shape[1] + 1)], jnp.float32)
        taken = places_taken(jnp.sum(picked, axis=2), rooms[jnp.cumsum(real, axis=1)])
        served = jnp.diff(taken, axis=1, prepend=0)
        place = taken.astype(jnp.int32) - 1
        slots = jax.nn.one_hot(place, room(model, x.shape[1])) * served[..., None]  # [B, n, E, room]
        sent = jnp.einsum("bner,bnd->ebrd", slots.astype(self.dtype), x)
        returned = (slots * weights[..., None]).astype(self.dtype)
        return jnp.einsum("bner,ebrd->bnd", returned, self._each(sent, deterministic=False))

    def _each(self, x: jax.Array, deterministic: bool = True) -> jax.Array:
        """What each expert makes of its own [E, B, …, D]; tokens go to where the expert is, and back."""
        side_by_side = nn.vmap(
            lambda expert, x: expert(x, deterministic=deterministic),
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            axis_size=self.config.experts,
            metadata_params={nn.PARTITION_NAME: "experts"},
        )
        there = nn.with_logical_constraint(x, ("experts", "batch of experts", None, None))
        made = side_by_side(self.experts, there)
        return nn.with_logical_constraint(made, ("experts", "batch of experts", None, None))


def room(model: config.Model, length: int) -> int:
    """Most positions of a sentence of `length` that one expert takes in training."""
    picks = model.experts_per_token * length
    return min(length, math.ceil(model.expert_capacity * picks / (model.experts or 1)))


def balance(p: jax.Array, picked: jax.Array, real: jax.Array) -> jax.Array:
    """E sum_e f_e P_e, Switch's equation 4: the share of picks that are e, times the mean of p_e; 1 if all are equal.

    p [B, n, E], picks [B, n, picks, E] of real positions [B, n] alone.
    """
    count = jnp.maximum(jnp.sum(real), 1)
    share = jnp.sum(picked, axis=(0, 1, 2)) / (count * picked.shape[2])
    return p.shape[-1] * jnp.sum(share * jnp.sum(p * real[..., None], axis=(0, 1)) / count)


def places_taken(asked: jax.Array, most: jax.Array) -> jax.Array:
    """How many places of each expert are taken after each position, [B, n, E].

    A position that asks (1 in `asked` [B, n, E], else 0) takes one unless `most` [B, n], which never falls, are taken:
    taken_t = min(taken_{t-1} + asked_t, most_t). Written out, that is the sum of all who asked, less the largest excess
    of such a sum over `most` so far.
    """
    asking = jnp.cumsum(asked, axis=1)
    return asking + jnp.minimum(0, jax.lax.cummin(most[..., None] - asking, axis=1))
