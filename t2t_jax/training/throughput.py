"""How fast training goes, how close to the devices' peak, and how long it waits for data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from jax.sharding import Mesh

from t2t_jax import config
from t2t_jax.data.batching import Shape
from t2t_jax.parallel.chips import chip_of
from t2t_jax.training.flops import loops, step_flops
from t2t_jax.training.metrics import Entry

T = TypeVar("T")

HLO_NAMES = {"float32": "f32", "bfloat16": "bf16"}


class Interval(NamedTuple):
    """The steps that were begun since the last one was taken."""

    waited: float
    """Seconds in which the next batch was not ready."""
    flops: float
    """Of the model's products, counted from the batches' shapes."""
    compiled_flops: float | None
    """Of everything, by the compiler's count of its programs; None where it has none that can be believed."""
    memory: int | None
    """Bytes of one device that the largest step so far takes, by the compiler's account; None where it has none."""

    def rates(self, seconds: float, tokens: int, peak: float | None) -> Entry:
        """Per second, and what share was waited; `peak` is of all devices together, in FLOP/s."""
        rates: Entry = {
            "tokens_per_second": tokens / seconds,
            "seconds": seconds,
            "data_wait": self.waited / seconds,
            "flops_per_second": self.flops / seconds,
        }
        if self.compiled_flops is not None:
            rates["compiled_flops_per_second"] = self.compiled_flops / seconds
        if self.memory is not None:
            rates["memory_bytes"] = self.memory
        return rates | ({"utilisation": self.flops / seconds / peak} if peak is not None else {})


def totals(entries: Sequence[Entry]) -> dict[str, float | None]:
    """What a whole training took, from the entries of its log; None for what not all of them know.

    `seconds` of training steps; `flops` of the model's products, `compiled_flops` by the compiler's count, and
    `peak_flops`, what the devices could have computed in that time on paper: as the paper estimates training costs in
    its Table 2, time x devices x the rate of one. `memory_bytes` are those of the largest step on one device.
    """

    def total(of: Callable[[Entry], float]) -> float | None:
        try:
            return sum(of(entry) for entry in entries) if entries else None
        except KeyError:
            return None

    return {
        "seconds": total(lambda e: e["seconds"]),
        "flops": total(lambda e: e["seconds"] * e["flops_per_second"]),
        "compiled_flops": total(lambda e: e["seconds"] * e["compiled_flops_per_second"]),
        "peak_flops": total(lambda e: e["seconds"] * e["flops_per_second"] / e["utilisation"]),
        "memory_bytes": max((entry["memory_bytes"] for entry in entries if "memory_bytes" in entry), default=None),
    }


class Throughput:
    """Clocks of a training run, and what it computes."""

    def __init__(self, experiment: config.Experiment, vocabulary_size: int, mesh: Mesh):
        self._model, self._vocabulary_size = experiment.model, vocabulary_size
        chip, operand = chip_of(mesh.devices.flat[0].device_kind), HLO_NAMES[experiment.training.compute_dtype]
        self.peak = None if chip is None else mesh.size * chip.peak(operand, operand)
        """FLOP/s that the mesh has on paper for the run's products; None for devices without a data sheet, as CPUs."""
        self._devices, self._training = mesh.size, experiment.training
        self._per_shape: dict[Shape, tuple[int, float | None]] = {}
        self._memory: int | None = None
        self._begun, self._waited, self._flops = time.perf_counter(), 0.0, 0
        self._compiled: float | None = 0.0

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

    def count(self, shape: Shape, executable: Any) -> None:
        """A step on a batch of `shape` has begun, of which this is the compiled program."""
        if shape not in self._per_shape:
            ours = step_flops(self._model, self._vocabulary_size, shape)
            self._per_shape[shape] = ours, self._counted_by_compiler(shape, executable)
            self._memory = max(filter(None, (self._memory, held(executable))), default=None)
        ours, compiled = self._per_shape[shape]
        self._flops += ours
        self._compiled = None if compiled is None or self._compiled is None else self._compiled + compiled

    def _counted_by_compiler(self, shape: Shape, executable: Any) -> float | None:
        """FLOPs of all devices; none where there are loops of products, since the compiler counts their bodies once."""
        found = None if loops(self._model, self._training, shape) else executable.cost_analysis()
        flops = found.get("flops") if isinstance(found, dict) else None
        return self._devices * flops if flops else None

    def take(self) -> Interval:
        """End an interval, and begin the next with the step after this one."""
        interval = Interval(self._waited, self._flops, self._compiled, self._memory)
        self._waited, self._flops, self._compiled = 0.0, 0, 0.0
        return interval

    def lap(self) -> float:
        """Seconds since the last lap; to be called when an interval's last step has ended, not when it has begun.

        The host is steps ahead: the first ones after a pause take it no time at all.
        """
        now = time.perf_counter()
        seconds, self._begun = now - self._begun, now
        return seconds

    def restart(self) -> None:
        """Begin an interval now: validating and saving are no steps."""
        self.take()
        self.lap()


def held(executable: Any) -> int | None:
    """Bytes of one device while a program runs: arguments, temporaries, and results that take no argument's place."""
    sizes = executable.memory_analysis()
    if sizes is None:
        return None
    written = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    return int(sizes.argument_size_in_bytes + sizes.temp_size_in_bytes + written)
