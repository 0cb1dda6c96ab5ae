"""Forced decoding: how likely a model finds given translations, and where it looks as it writes them."""

from __future__ import annotations

import functools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from t2t_jax.decoding.stages import mean_of
from t2t_jax.decoding.translator import MAX_ROWS, Translator
from t2t_jax.parallel import mesh as meshes
from t2t_jax.symbols import EOS_ID, PAD_ID

# Logits of all target positions are in memory at once, so fewer are computed together than in a search.
POSITIONS = 2048

Compute = Callable[[Sequence[Any], jax.Array, jax.Array], jax.Array]
"""(parameters of each model, source [B, S], target [B, T]) -> something of each row, [B, …]."""


class PairScore(NamedTuple):
    """How likely a translation is, given its source."""

    log_probability: float
    """Natural logarithm of the probability of the target's tokens and its end of sentence."""
    tokens: int
    """Target tokens with the end of sentence."""
    cut: bool
    """True when a side was too long to be read whole."""


class Scorer:
    """Reads pairs with the models of a translator."""

    def __init__(self, translator: Translator):
        self._translator = translator
        self._rows_on_mesh = meshes.Rows(translator.mesh)
        self._compiled: dict[tuple[Compute, int, int], jax.stages.Compiled] = {}

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore]:
        """The score of each pair; a blank line is the empty sentence. It depends on that pair alone."""
        tokenizer = self._translator.tokenizer
        pairs = list(zip(tokenizer.encode(sources), tokenizer.encode(targets, "target"), strict=True))
        lengths = [(self._translator.padded_length(max(pair, key=len)),) * 2 for pair in pairs]
        scores: list[Any] = [None] * len(pairs)
        for place, total in self._compute(self._log_probabilities, pairs, lengths):
            longest, length = max(map(len, pairs[place])), lengths[place][0]
            scores[place] = PairScore(float(total), min(len(pairs[place][1]), length - 1) + 1, longest >= length)
        return scores

    def attention(
        self, sources: Sequence[str], translations: Sequence[Sequence[int]]
    ) -> Iterator[tuple[int, np.ndarray]]:
        """(index of the pair, [H, T, S]) of every pair as they come, the longest sources first.

        These are the weights over the source of the (first) model's last decoder layer, both sides with the end of
        sentence, for source lines and the ids of their translations.
        """
        pairs = list(zip(self._translator.tokenizer.encode(sources), translations, strict=True))
        padded = [self._translator.padded_length(source) for source, _ in pairs]
        lengths = [(length, self._translator.target_length(length)) for length in padded]
        for place, weights in self._compute(self._weights, pairs, lengths):
            source, target = (min(len(ids) + 1, n) for ids, n in zip(pairs[place], lengths[place], strict=True))
            yield place, weights[:, :target, :source]

    def _log_probabilities(self, params: Sequence[Any], source: jax.Array, target: jax.Array) -> jax.Array:
        logits: list[Any] = [
            member.transformer.apply({"params": own}, source, target, deterministic=True)
            for member, own in zip(self._translator.members, params, strict=True)
        ]
        gold = jnp.take_along_axis(jax.nn.log_softmax(mean_of(logits)), target[..., None], axis=-1)[..., 0]
        return jnp.sum(jnp.where(target != PAD_ID, gold, 0.0), axis=1)

    def _weights(self, params: Sequence[Any], source: jax.Array, target: jax.Array) -> jax.Array:
        transformer = self._translator.transformer
        variables = {"params": params[0]}
        _, kept = transformer.apply(variables, source, target, deterministic=True, mutable=["intermediates"])
        return functools.reduce(operator.getitem, transformer.alignment() or (), kept["intermediates"])[0]

    def _compute(
        self, compute: Compute, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], lengths: list[tuple[int, int]]
    ) -> Iterator[tuple[int, np.ndarray]]:
        """(place, `compute` of it) of every pair; sides that are too long for their padded lengths are cut."""
        waiting: dict[tuple[int, int], list[int]] = defaultdict(list)
        for place in sorted(range(len(pairs)), key=lambda i: lengths[i], reverse=True):
            waiting[lengths[place]].append(place)
        params = [member.params for member in self._translator.members]
        for padded, places in waiting.items():
            rows = max(1, min(MAX_ROWS, POSITIONS // max(padded)))
            for start in range(0, len(places), rows):
                part = places[start : start + rows]
                batch = [
                    self._placed([pairs[i][side] for i in part], length, rows) for side, length in enumerate(padded)
                ]
                key = compute, *padded
                if key not in self._compiled:
                    self._compiled[key] = self._compile(compute, params, batch)
                yield from zip(part, np.asarray(self._compiled[key](params, *batch)), strict=False)

    def _placed(self, sentences: Sequence[Sequence[int]], length: int, rows: int) -> jax.Array:
        filled = np.full((len(self._rows_on_mesh.local(rows)), length), PAD_ID, np.int32)
        for row, ids in zip(filled, sentences, strict=False):
            read = ids[: length - 1]
            row[: len(read) + 1] = [*read, EOS_ID]
        return self._rows_on_mesh.place(filled, rows)

    def _compile(self, compute: Compute, params: Sequence[Any], batch: Sequence[jax.Array]) -> jax.stages.Compiled:
        mesh = self._translator.mesh
        whole, divided = meshes.on_every_device(mesh).spec, meshes.batch_sharding(mesh).spec
        alone = jax.shard_map(
            compute, mesh=mesh, in_specs=(whole, divided, divided), out_specs=divided, check_vma=False
        )
        with jax.default_matmul_precision("highest"):
            return jax.jit(alone).lower(params, *batch).compile()
