"""From the plan to padded arrays: Grain reads, pads and prefetches the batches in other threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import grain
import numpy as np

from t2t_jax import config
from t2t_jax.data.batching import Plan
from t2t_jax.data.store import Corpus
from t2t_jax.symbols import EOS_ID

RowsOf = Callable[[int], np.ndarray]
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
        kind=data.shapes,
    )


def make_batch(corpus: Corpus, plan: Plan, k: int, rows_of: RowsOf = np.arange) -> Batch:
    """Batch k of the plan, or those of its rows that `rows_of` chooses."""
    shape, indices = plan.slot(k)
    rows = rows_of(shape.rows)
    chosen = indices[rows[rows < len(indices)]]
    source = corpus.source.padded(chosen, len(rows), shape.source, EOS_ID)
    if corpus.masking is not None:
        return Batch(*corpus.masking(source, plan.seed, k, rows))
    return Batch(source, corpus.target.padded(chosen, len(rows), shape.target, EOS_ID))


def batches(corpus: Corpus, plan: Plan, start: int, stop: int, rows_of: RowsOf = np.arange) -> Iterator[Batch]:
    """Batches start, start + 1, … stop - 1, made ahead of need. Starting anywhere costs nothing.

    Args:
      corpus, plan: what the batches are made of.
      start, stop: the range of batches.
      rows_of: from the number of rows of a batch to the places of those to read, ascending; what lies beyond the rows
        that a batch has is dead. All of them by default.
    """
    if start >= stop:
        return iter(())
    dataset = grain.MapDataset.range(start, stop).map(lambda k: make_batch(corpus, plan, int(k), rows_of))
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=16)))
