"""The batch shapes a plan is made for: those of prepared data, or assumed ones from a committed length histogram."""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from t2t_jax import config
from t2t_jax.data import pipeline, store
from t2t_jax.data import tokenizer as tokenizers
from t2t_jax.data.batching import Plan, Shape
from t2t_jax.errors import DataError

HISTOGRAM = "lengths.json"
# The counts are scaled to about that many pairs, so that the epoch has many batches of every shape.
PAIRS = 300_000


@dataclass(frozen=True)
class Workload:
    """What the batches of a run are like."""

    shapes: tuple[Shape, ...]
    batches: tuple[int, ...]  # of each shape, in one epoch
    source_tokens: float  # real tokens of a batch, mean over an epoch
    target_tokens: float
    vocabulary_size: int
    assumed: str | None  # where assumed lengths come from; None for prepared data

    @property
    def commonest(self) -> Shape:
        """The shape that most batches have."""
        return max(zip(self.batches, self.shapes, strict=True))[1]

    def share(self, shape: Shape) -> float:
        """Share of an epoch's batches that have `shape`."""
        return self.batches[self.shapes.index(shape)] / sum(self.batches)

    def largest(self, model: config.Model, parts: int) -> Shape:
        """The shape whose step needs the most memory when its rows are divided into `parts`.

        Judged by the activations of one part that grow with the shape: widths, attention weights, logits.
        """
        used = (shape for shape, count in zip(self.shapes, self.batches, strict=True) if count)
        vocabulary = model.padded_vocabulary(self.vocabulary_size)

        def numbers(shape: Shape) -> int:
            source, target, rows = shape
            width = model.d_model + model.d_ff + 3 * model.num_heads * model.key_width
            weights = source * source + target * target + target * source
            layers = model.num_layers * ((source + 2 * target) * width + model.num_heads * weights)
            return -(-rows // parts) * (layers + target * vocabulary)

        return max(used, key=numbers)


def workload(data: config.Data, seed: int, run: Path) -> Workload:
    """The workload of the data prepared in `data.store` or for `run`; where there is none, the assumed one.

    Raises:
      DataError: the data was prepared with other settings, or is damaged.
      ConfigError: the budgets don't hold the longest pair.
    """
    directory = Path(data.store) if data.store else run / "data"
    if not (directory / store.MANIFEST).is_file():
        return assume(data, seed)
    try:
        manifest = json.loads((directory / store.MANIFEST).read_text(encoding="utf-8"))
        settings = manifest["made_from"]["settings"]
        prepared = store.Store(directory, manifest, tokenizers.load(directory)).corpus()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"The prepared data in {str(directory)!r} is damaged ({error!r}); prepare it again.") from None
    other = [f"{name}={value!r}" for name, value in settings.items() if getattr(data, name, value) != value]
    if other:
        raise DataError(
            f"The data in {str(directory)!r} was prepared with {', '.join(other)}; use those settings, or another "
            "--workdir."
        )
    plan = pipeline.plan_for(data, prepared, seed)
    return from_plan(plan, prepared.lengths, manifest["vocabulary"])


def from_plan(
    plan: Plan, lengths: tuple[np.ndarray, np.ndarray], vocabulary_size: int, assumed: str | None = None
) -> Workload:
    """The workload of a batch plan over pairs of these lengths (two [N], end of sentence included)."""
    source, target = (float(side.sum(dtype=np.int64)) / plan.batches_per_epoch for side in lengths)
    return Workload(plan.shapes, plan.batches_per_shape, source, target, vocabulary_size, assumed)


def assume(data: config.Data, seed: int) -> Workload:
    """The workload of the committed histogram under the budgets of `data`, with all entries of its vocabulary in use.

    Pairs longer than `data.max_length` are left out, and one in 3,000 has that length on both sides: a real corpus has
    such pairs, and their batches need the most memory.

    Raises:
      ConfigError: the budgets hold no pair of that length.
    """
    pairs, origin = _histogram()
    kept = [(s, t, n) for s, t, n in pairs if max(s, t) <= data.max_length]
    kept.append((data.max_length, data.max_length, max(1, sum(n for *_, n in kept) // 3000)))
    scale = max(1, PAIRS // sum(n for *_, n in kept))
    source, target = (np.repeat([pair[side] for pair in kept], [scale * n for *_, n in kept]) for side in (0, 1))
    plan = Plan.build(
        source,
        target,
        source_budget=data.source_tokens_per_batch,
        target_budget=data.target_tokens_per_batch,
        max_shapes=data.max_shapes,
        seed=seed,
        kind=data.shapes,
    )
    return from_plan(plan, (source, target), data.vocabulary_size, origin)


@functools.cache
def _histogram() -> tuple[Sequence[tuple[int, int, int]], str]:
    """(source tokens, target tokens, pairs) with end of sentence, and where they come from."""
    content = json.loads((importlib.resources.files("t2t_jax.planning") / HISTOGRAM).read_text(encoding="utf-8"))
    return [tuple(row) for row in content["counts"]], content["origin"]
