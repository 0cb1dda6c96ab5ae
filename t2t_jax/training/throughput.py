"""How fast training goes, how close to the devices' peak, and how long it waits for data."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from jax.sharding import Mesh

from t2t_jax import config
from t2t_jax.data.batching import Shape
from t2t_jax.parallel.chips import chip_of
from t2t_jax.training.flops import step_flops
from t2t_jax.training.metrics import Entry

T = TypeVar("T")

HLO_NAMES = {"float32": "f32", "bfloat16": "bf16"}


class Interval(NamedTuple):
    """What was done since the last one ended."""

    seconds: float
    waited: float
    """Of these, those in which the next batch was not ready."""
    flops: float

    def rates(self, tokens: int, peak: float | None) -> Entry:
        """Per second, and what share was waited; `peak` is of all devices together, in FLOP/s."""
        rates: Entry = {
            "tokens_per_second": tokens / self.seconds,
            "seconds": self.seconds,
            "data_wait": self.waited / self.seconds,
            "flops_per_second": self.flops / self.seconds,
        }
        return rates | ({"utilisation": self.flops / self.seconds / peak} if peak is not None else {})


class Throughput:
    """Clocks of a training run; FLOPs are those of its model's products, counted from the batches' shapes."""

    def __init__(self, experiment: config.Experiment, vocabulary_size: int, mesh: Mesh):
        self._model, self._vocabulary_size = experiment.model, vocabulary_size
        chip, operand = chip_of(mesh.devices.flat[0].device_kind), HLO_NAMES[experiment.training.compute_dtype]
        self.peak = None if chip is None else mesh.size * chip.peak(operand, operand)
        """FLOP/s that the mesh has on paper for the run's products; None for devices without a data sheet, as CPUs."""
        self._begun, self._waited, self._flops = time.perf_counter(), 0.0, 0
        self._per_shape: dict[Shape, int] = {}

    def waiting_for(self, batches: Iterable[T]) -> Iterator[T]:
        """The same batches; how long each is waited for counts."""
        iterator = iter(batches)
        while True:
            begun = time.perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self._waited += time.perf_counter() - begun
            yield batch

    def count(self, shape: Shape) -> None:
        """A step on a batch of `shape` has begun."""
        if shape not in self._per_shape:
            self._per_shape[shape] = step_flops(self._model, self._vocabulary_size, shape)
        self._flops += self._per_shape[shape]

    def take(self) -> Interval:
        """End an interval and begin the next."""
        interval = Interval(time.perf_counter() - self._begun, self._waited, self._flops)
        self.restart()
        return interval

    def restart(self) -> None:
        """Begin an interval, forgetting what was not taken: validating and saving are no steps."""
        self._begun, self._waited, self._flops = time.perf_counter(), 0.0, 0
