"""Forced decoding: how likely a model finds given translations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from t2t_jax.data.store import Ragged
from t2t_jax.decoding.stages import mean_of
from t2t_jax.decoding.translator import MAX_ROWS, Translator
from t2t_jax.parallel import mesh as meshes
from t2t_jax.symbols import EOS_ID, PAD_ID

# Logits of all target positions are in memory at once, so fewer are computed together than in a search.
POSITIONS = 2048


class PairScore(NamedTuple):
    """How likely a translation is, given its source."""

    log_probability: float
    """Natural logarithm of the probability of the target's tokens and its end of sentence."""
    tokens: int
    """Target tokens with the end of sentence."""
    cut: bool
    """True when a side was too long to be read whole."""


class Scorer:
    """Scores pairs with the models of a translator."""

    def __init__(self, translator: Translator):
        self._translator = translator
        self._rows_on_mesh = meshes.Rows(translator.mesh)
        self._compiled: dict[int, jax.stages.Compiled] = {}

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[PairScore]:
        """The score of each pair; a blank line is the empty sentence. It depends on that pair alone."""
        tokenizer = self._translator.tokenizer
        sides = [tokenizer.encode(sources), tokenizer.encode(targets, "target")]
        waiting: dict[int, list[int]] = defaultdict(list)
        for place, pair in enumerate(zip(*sides, strict=True)):
            waiting[self._translator.padded_length(max(pair, key=len))].append(place)
        scores: list[Any] = [None] * len(sources)
        for length, places in waiting.items():
            rows = max(1, min(MAX_ROWS, POSITIONS // length))
            for start in range(0, len(places), rows):
                part = places[start : start + rows]
                chosen = [[side[i] for i in part] for side in sides]
                for place, score in zip(part, self._score(chosen, length, rows), strict=True):
                    scores[place] = score
        return scores

    def _score(self, sides: list[list[list[int]]], length: int, rows: int) -> list[PairScore]:
        batch = []
        for side in sides:
            read = [np.asarray(ids[: length - 1], np.int32) for ids in side]
            ragged = Ragged(np.concatenate(read), np.asarray([len(ids) for ids in read], np.int32))
            filled = len(self._rows_on_mesh.local(rows))
            batch.append(self._rows_on_mesh.place(ragged.padded(np.arange(len(read)), filled, length, EOS_ID), rows))
        params = [member.params for member in self._translator.members]
        if length not in self._compiled:
            self._compiled[length] = self._compile(params, batch)
        totals = np.asarray(self._compiled[length](params, *batch))
        return [
            PairScore(float(total), min(len(target), length - 1) + 1, max(len(source), len(target)) >= length)
            for total, source, target in zip(totals, *sides, strict=False)
        ]

    def _compile(self, params: Sequence[Any], batch: Sequence[jax.Array]) -> jax.stages.Compiled:
        transformers, mesh = [member.transformer for member in self._translator.members], self._translator.mesh

        def score(params: Sequence[Any], source: jax.Array, target: jax.Array) -> jax.Array:
            logits: list[Any] = [
                transformer.apply({"params": own}, source, target, deterministic=True)
                for transformer, own in zip(transformers, params, strict=True)
            ]
            log_p = jax.nn.log_softmax(mean_of(logits))
            gold = jnp.take_along_axis(log_p, target[..., None], axis=-1)[..., 0]
            return jnp.sum(jnp.where(target != PAD_ID, gold, 0.0), axis=1)

        whole, divided = meshes.on_every_device(mesh).spec, meshes.batch_sharding(mesh).spec
        alone = jax.shard_map(score, mesh=mesh, in_specs=(whole, divided, divided), out_specs=divided, check_vma=False)
        with jax.default_matmul_precision("highest"):
            return jax.jit(alone).lower(params, *batch).compile()
