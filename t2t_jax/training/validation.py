"""The loss on held-out text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from t2t_jax import config
from t2t_jax.data.batching import Plan, Shape
from t2t_jax.data.masking import of_task
from t2t_jax.data.pipeline import Batch, batches
from t2t_jax.data.store import Corpus, Ragged
from t2t_jax.data.tokenizer import Tokenizer
from t2t_jax.errors import DataError
from t2t_jax.model import SequenceModel
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.precompile import Precompiled
from t2t_jax.symbols import PAD_ID
from t2t_jax.training.loss import TokenLoss
from t2t_jax.training.lowering import abstract_batch
from t2t_jax.training.state import Params
from t2t_jax.training.step import make_batch_loss

MAX_SHAPES = 3  # validation is short: compiling another shape costs more than the padding it saves


@dataclass(frozen=True)
class HeldOutLoss:
    """Means over the real target tokens, end of sentence included, in nats."""

    smoothed: float
    plain: float
    tokens: int
    pairs: int
    """Pairs that were scored; empty ones and those beyond `data.max_length` were not."""

    @property
    def perplexity(self) -> float:
        """exp of the negative log-probability per target token, without smoothing."""
        return math.exp(min(self.plain, 700.0))


class HeldOut:
    """A fixed set of pairs and the compiled computation of its loss."""

    def __init__(
        self,
        source: Sequence[str],
        target: Sequence[str],
        tokenizer: Tokenizer,
        transformer: SequenceModel,
        experiment: config.Experiment,
        mesh: Mesh,
        abstract_params: Params,
        background: Executor,
    ):
        """Pairs with an empty side or more than `data.max_length` tokens are left out.

        Raises:
          DataError: no pair is left.
        """
        data, training = experiment.data, experiment.training
        encoded = tokenizer.encode(source, "source"), tokenizer.encode(target, "target")
        sides = [[np.asarray(ids, np.int32) for ids in side] for side in encoded]
        fits = [min(len(s), len(t)) > 0 and max(len(s), len(t)) < data.max_length for s, t in zip(*sides, strict=True)]
        if not any(fits):
            raise DataError(f"No held-out pair has 1 to {data.max_length - 1} tokens on both sides.")
        columns = []
        for side in sides:
            kept = [ids for ids, fit in zip(side, fits, strict=True) if fit]
            columns.append(Ragged(np.concatenate(kept), np.asarray([len(ids) for ids in kept], np.int32)))
        corpus = Corpus(columns[0], columns[1], of_task(data.task, tokenizer.size))
        plan = Plan.build(
            *corpus.lengths,
            source_budget=data.source_tokens_per_batch,
            target_budget=data.target_tokens_per_batch,
            max_shapes=min(MAX_SHAPES, data.max_shapes),
            seed=0,
        )
        self._pairs = len(corpus)
        self._rows = meshes.Rows(mesh)
        self._shapes = [plan.slot(k).shape for k in range(plan.batches_per_epoch)]
        self._batches = list(batches(corpus, plan, 0, plan.batches_per_epoch, self._rows.local))
        batch_loss = make_batch_loss(transformer, training.label_smoothing, training.label_smoothing_mass)
        step = jax.jit(
            lambda params, batch: batch_loss(params, batch, deterministic=True).of_tokens,
            out_shardings=meshes.on_every_device(mesh),
        )

        def compile_one(shape: Shape) -> jax.stages.Compiled:
            with meshes.tracing(mesh):
                return step.lower(abstract_params, abstract_batch(shape, mesh, meshes.row_parts(mesh))).compile()

        def right(params: Params, batch: Batch) -> jax.Array:
            logits: Any = transformer.apply({"params": params}, *batch, deterministic=True)
            real = batch.target != PAD_ID
            return jnp.stack([jnp.sum(real & (jnp.argmax(logits, axis=-1) == batch.target)), jnp.sum(real)])

        self._mesh, self._right = mesh, jax.jit(right, out_shardings=meshes.on_every_device(mesh))
        self._steps = Precompiled(compile_one, sorted(set(self._shapes)), background)

    def loss(self, params: Params) -> HeldOutLoss:
        """The loss under `params`."""
        sums: Iterable[TokenLoss] = [self._steps[shape](params, batch) for shape, batch in self._placed()]
        smoothed, plain, tokens = (sum(float(x) for x in column) for column in zip(*jax.device_get(sums), strict=True))
        return HeldOutLoss(smoothed / tokens, plain / tokens, int(tokens), self._pairs)

    def accuracy(self, params: Params) -> float:
        """Share of the real target tokens that are likeliest in their place."""
        with meshes.tracing(self._mesh):
            counts = [self._right(params, batch) for _, batch in self._placed()]
        found = np.sum(jax.device_get(counts), axis=0)
        return float(found[0] / found[1])

    def _placed(self) -> Iterator[tuple[Shape, Batch]]:
        for shape, batch in zip(self._shapes, self._batches, strict=True):
            yield shape, Batch(*(self._rows.place(side, shape.rows) for side in batch))
