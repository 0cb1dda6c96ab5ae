"""From the plan to padded arrays: Grain reads, pads and prefetches the batches in other threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import grain

from t2t_jax import config
from t2t_jax.data.batching import Plan
from t2t_jax.data.store import Corpus
from t2t_jax.symbols import EOS_ID, PAD_ID

Array = Any  # a NumPy array until it is laid on devices, then a jax.Array


class Batch(NamedTuple):
    """Token ids, each row ended by EOS and padded with 0. A dead row, there only to fill a shape, is all padding."""

    source: Array  # [B, S] int32
    target: Array  # [B, T] int32


def plan_for(data: config.Data, corpus: Corpus, seed: int) -> Plan:
    """The batch plan of a training run."""
    return Plan.build(
        *corpus.lengths,
        source_budget=data.source_tokens_per_batch,
        target_budget=data.target_tokens_per_batch,
        max_shapes=data.max_shapes,
        seed=seed,
    )


def make_batch(corpus: Corpus, plan: Plan, k: int) -> Batch:
    """Batch k of the plan."""
    shape, indices = plan.slot(k)
    return Batch(
        corpus.source.padded(indices, shape.rows, shape.source, EOS_ID),
        corpus.target.padded(indices, shape.rows, shape.target, EOS_ID),
    )


def batches(corpus: Corpus, plan: Plan, start: int, stop: int) -> Iterator[Batch]:
    """Batches start, start + 1, … stop - 1, made ahead of need. Starting anywhere costs nothing."""
    if start >= stop:
        return iter(())
    dataset = grain.MapDataset.range(start, stop).map(lambda k: make_batch(corpus, plan, int(k)))
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=16)))


def real_tokens(batch: Batch) -> tuple[int, int]:
    """Tokens that are not padding, by side."""
    return int((batch.source != PAD_ID).sum()), int((batch.target != PAD_ID).sum())
