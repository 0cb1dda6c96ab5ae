"""Plans: the real training step compiled for a mesh of accelerators that are not here, and what that says."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import jax
from jax.sharding import Mesh

from t2t_jax import config, model, progress
from t2t_jax.data.batching import Shape
from t2t_jax.errors import ConfigError, UserError
from t2t_jax.parallel import mesh as meshes
from t2t_jax.parallel.chips import GIB
from t2t_jax.planning.compiled_text import Collective, CompiledText, Products
from t2t_jax.planning.roofline import Roofline, roofline
from t2t_jax.planning.shapes import Workload
from t2t_jax.planning.topologies import Topology
from t2t_jax.training import optimizer, state
from t2t_jax.training.flops import step_flops
from t2t_jax.training.lowering import train_step_on

# Other meshes that are compiled in search of one that fits, at most.
ATTEMPTS = 4


@dataclass(frozen=True)
class Memory:
    """Bytes of one device."""

    arguments: int  # the state and the batch; the new state takes the old one's place
    temporaries: int
    program: int  # this shape's instructions; 0 where the compiler does not say

    @property
    def peak(self) -> int:
        """Bytes in use at once."""
        return self.arguments + self.temporaries + self.program


@dataclass(frozen=True)
class Compiled:
    """What the compiler made of one step."""

    memory: Memory
    flops: float | None  # of one device by the compiler's count, which takes a loop's body once
    optimal_seconds: float | None  # the compiler's own estimate
    text: CompiledText
    seconds: float  # that lowering and compiling took


@dataclass(frozen=True)
class StepPlan:
    """One batch shape on one mesh."""

    shape: Shape
    rows: int  # with dead ones
    model_flops: int  # of the global batch, forward and backward, without dead rows
    memory: Memory
    compiler_flops: float | None
    compiler_seconds: float | None
    attention: str
    custom_calls: dict[str, int]
    products: list[Products]
    collectives: list[Collective]
    memory_traffic: int  # bytes of one device
    loops: list[int | None]
    roofline: Roofline
    seconds_to_compile: float

    @property
    def dead(self) -> float:
        """Share of the rows that only fill up the mesh."""
        return 1 - self.shape.rows / self.rows

    @property
    def float32_share(self) -> float:
        """Share of the compiled products' FLOPs that have a float32 operand and so run below the bfloat16 rate."""
        wide = sum(product.flops for product in self.products if "f32" in (product.left, product.right))
        return wide / max(1, sum(product.flops for product in self.products))


class DoesNotFit(Exception):
    """The step needs `needed` bytes of a device, which are too many; None where the compiler does not say."""

    def __init__(self, needed: int | None):
        super().__init__(needed)
        self.needed = needed


class Planner:
    """Compiles an experiment's step for the devices of one topology."""

    def __init__(self, experiment: config.Experiment, topology: Topology, workload: Workload):
        """Get the devices ready.

        Raises:
          UserError: what compiles for them is not installed.
        """
        self.experiment = experiment
        self.topology = topology
        self.workload = workload
        self._devices = topology.devices()

    def mesh(self, sizes: config.Mesh) -> Mesh:
        """The devices as a mesh.

        Raises:
          ConfigError: they can't be laid out so.
        """
        return meshes.make_mesh(sizes, self._devices)

    def parts(self, sizes: config.Mesh, training: config.Training) -> int:
        """Parts that a batch's rows are divided into, by devices and in time."""
        return meshes.row_parts(self.mesh(sizes)) * training.accumulation

    def step(self, sizes: config.Mesh, shape: Shape, training: config.Training | None = None) -> StepPlan:
        """Compile the step of a batch of `shape` on the mesh of `sizes`.

        Raises:
          ConfigError: the model can't be divided so.
          DoesNotFit: the devices have too little memory.
        """
        training = training or self.experiment.training
        compiled = self._compile(sizes, shape, training)
        if compiled.memory.peak > self.topology.chip.memory:
            raise DoesNotFit(compiled.memory.peak)
        return read(compiled, self.experiment, self.topology, self.workload, self.parts(sizes, training), shape)

    def own_mesh(self) -> tuple[Mesh, dict[str, StepPlan]]:
        """The experiment's mesh, with the commonest shape and the one that needs the most memory, by title.

        Raises:
          UserError: a step does not fit; names a mesh or an accumulation that does.
        """
        experiment, workload = self.experiment, self.workload
        mesh = self.mesh(experiment.mesh)
        largest = workload.largest(experiment.model, self.parts(experiment.mesh, experiment.training))
        plans = {}
        for shape in dict.fromkeys((largest, workload.commonest)):
            try:
                plans[shape] = self.step(experiment.mesh, shape)
            except DoesNotFit as failure:
                raise self._refusal(shape, failure.needed) from None
        return mesh, {"commonest": plans[workload.commonest], "most memory": plans[largest]}

    def compare(self) -> dict[str, tuple[Mesh, StepPlan | DoesNotFit]]:
        """The three plain meshes at the commonest shape, by name."""
        plans: dict[str, tuple[Mesh, StepPlan | DoesNotFit]] = {}
        for name, sizes in compared(self.topology, self.experiment.model, self.workload.vocabulary_size).items():
            try:
                step: StepPlan | DoesNotFit = self.step(sizes, self.workload.commonest)
            except DoesNotFit as failure:
                step = failure
            plans[name] = self.mesh(sizes), step
        return plans

    def suggestion(self, shape: Shape, needed: int | None) -> str:
        """A sentence with the smallest change of mesh or accumulation that makes `shape` fit, found by compiling.

        Changes that an estimate rules out are not compiled: what `needed` holds beside the state shrinks with the rows
        that are computed at once and with the tensor axis.
        """
        now = self.experiment.training
        rows_now, state_now = self._rows_at_once(self.experiment.mesh, now, shape), self._state(self.experiment.mesh)
        tensor_now = self.mesh(self.experiment.mesh).shape["tensor"]
        tried = 0
        for sizes, accumulation in _changes(self.mesh(self.experiment.mesh).shape, now.accumulation):
            training = dataclasses.replace(now, accumulation=accumulation)
            try:
                if needed is not None:
                    share = self._rows_at_once(sizes, training, shape) / rows_now * tensor_now / sizes.tensor
                    if self._state(sizes) + share * (needed - state_now) > self.topology.chip.memory:
                        continue
                tried += 1
                if tried > ATTEMPTS:
                    break
                plan = self.step(sizes, shape, training)
            except (ConfigError, DoesNotFit):
                continue
            settings = f"--mesh.data {sizes.data} --mesh.fsdp {sizes.fsdp} --mesh.tensor {sizes.tensor}"
            if accumulation != now.accumulation:
                settings += f" --training.accumulation {accumulation}"
            return f"{settings} fits, with {plan.memory.peak / GIB:.2f} GiB."
        return "No change of mesh or accumulation that was tried fits; use more devices, or ones with more memory."

    def _rows_at_once(self, sizes: config.Mesh, training: config.Training, shape: Shape) -> int:
        """Rows of a batch that one device computes at once."""
        parts = self.parts(sizes, training)
        return meshes.padded_rows(shape.rows, parts) // parts

    def _refusal(self, shape: Shape, needed: int | None) -> UserError:
        chip, mesh = self.topology.chip, self.mesh(self.experiment.mesh)
        need = "more memory than there is" if needed is None else f"{needed / GIB:.2f} GiB a device"
        return UserError(
            f"A step of {shape} on the mesh {describe(mesh)} needs {need}; a program may use "
            f"{chip.memory / GIB:.2f} GiB of {chip.name}. {self.suggestion(shape, needed)}"
        )

    def _state(self, sizes: config.Mesh) -> int:
        """Bytes that the training state takes on one device."""
        experiment, mesh = self.experiment, self.mesh(sizes)
        transformer = model.build(experiment.model, self.workload.vocabulary_size)
        adam = optimizer.make_optimizer(experiment.optimizer, experiment.model.d_model)
        abstract, _ = state.abstract_state(transformer, adam, mesh)
        return sum(
            math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(abstract)
        )

    def _compile(self, sizes: config.Mesh, shape: Shape, training: config.Training) -> Compiled:
        experiment, mesh = self.experiment, self.mesh(sizes)
        transformer = model.build(experiment.model, self.workload.vocabulary_size, training=training)
        adam = optimizer.make_optimizer(experiment.optimizer, experiment.model.d_model)
        abstract, _ = state.abstract_state(transformer, adam, mesh)
        in_parts = f", accumulation {training.accumulation}" if training.accumulation > 1 else ""
        progress.say(f"Compiling {shape} for {self.topology.name}, {describe(mesh)}{in_parts} …")
        start = time.perf_counter()
        try:
            executable = train_step_on(mesh, transformer, adam, training, abstract)(shape).compile()
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise DoesNotFit(_needed(str(error))) from None
        seconds = time.perf_counter() - start
        return compiled_from(executable, mesh.size, seconds)


def compiled_from(executable: jax.stages.Compiled, devices: int, seconds: float) -> Compiled:
    """What an executable for `devices` devices tells about itself."""
    sizes, text = executable.memory_analysis(), executable.as_text()
    if sizes is None or text is None:
        raise RuntimeError("this version of XLA does not say what it compiled")
    written = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    memory = Memory(
        sizes.argument_size_in_bytes, sizes.temp_size_in_bytes + written, sizes.generated_code_size_in_bytes
    )
    costs = executable.cost_analysis() or {}  # XLA has none for GPUs that are not here
    estimate = costs.get("optimal_seconds", 0)  # negative where the compiler gives up on a part
    return Compiled(
        memory, costs.get("flops"), estimate if estimate > 0 else None, CompiledText(text, devices), seconds
    )


def read(
    compiled: Compiled,
    experiment: config.Experiment,
    topology: Topology,
    workload: Workload,
    parts: int,
    shape: Shape,
) -> StepPlan:
    """The plan of a compiled step."""
    flops = step_flops(experiment.model, workload.vocabulary_size, shape)
    rows, text = meshes.padded_rows(shape.rows, parts), compiled.text
    return StepPlan(
        shape=shape,
        rows=rows,
        model_flops=flops,
        memory=compiled.memory,
        compiler_flops=compiled.flops,
        compiler_seconds=compiled.optimal_seconds,
        attention=text.attention,
        custom_calls=text.custom_calls,
        products=text.products,
        collectives=text.collectives,
        memory_traffic=text.memory_traffic,
        loops=text.loops,
        roofline=roofline(topology, text.products, text.memory_traffic, text.collectives),
        seconds_to_compile=compiled.seconds,
    )


def compared(topology: Topology, settings: config.Model, vocabulary_size: int) -> dict[str, config.Mesh]:
    """The data-parallel, FSDP and tensor-parallel mesh of a topology, each as far as the model's sizes allow."""
    n = topology.size
    fsdp = math.gcd(n, settings.d_model)
    divided = (settings.num_heads, settings.d_ff, settings.padded_vocabulary(vocabulary_size))
    # Tensor parallelism talks in every layer, so it stays among neighbours.
    tensor = math.gcd(n, 8, *divided)
    return {
        "data-parallel": config.Mesh(n, 1, 1),
        "FSDP": config.Mesh(n // fsdp, fsdp, 1),
        "tensor-parallel": config.Mesh(n // tensor, 1, tensor),
    }


def describe(mesh: Mesh) -> str:
    """'data=4 fsdp=1 tensor=2'."""
    return " ".join(f"{axis}={size}" for axis, size in mesh.shape.items())


def _needed(message: str) -> int | None:
    """Bytes that the compiler says it would need: 'Used 20.1G of 15.75G hbm', '… required … (512.00G) exceeds …'."""
    found = re.search(r"Used ([\d.]+)([KMGT]) of|memory required.*?\(([\d.]+)([KMGT])\) exceeds", message)
    if found is None:
        return None
    number, unit = (found[1], found[2]) if found[1] else (found[3], found[4])
    return int(float(number) * 1024 ** ("KMGT".index(unit) + 1))


def _changes(mesh: Mapping[str, int], accumulation: int) -> Iterator[tuple[config.Mesh, int]]:
    """Other meshes of as many devices, and more accumulation, those that change least first."""
    devices, expert = math.prod(mesh.values()), mesh.get("expert", 1)
    doublings = range(devices.bit_length())
    choices = []
    for more_fsdp, more_parts, more_tensor in itertools.product(doublings, range(8), doublings):
        fsdp, tensor = mesh["fsdp"] * 2**more_fsdp, mesh["tensor"] * 2**more_tensor
        if devices % (fsdp * tensor * expert) or not more_fsdp + more_parts + more_tensor:
            continue
        choices.append((more_fsdp + more_parts + more_tensor, more_tensor, more_parts, fsdp, tensor))
    for _, _, more_parts, fsdp, tensor in sorted(choices):
        data = devices // (fsdp * tensor * expert)
        yield config.Mesh(data, fsdp, tensor, expert), accumulation * 2**more_parts
