"""What a compiled program really does, read from its HLO text: collectives, products, kernels, memory traffic."""

from __future__ import annotations

import collections
import functools
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from t2t_jax.planning.hlo import Array, Computation, Instruction, first_group, parse_computations, rounds_of

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute", "all-to-all")
# Less common kinds; they are counted under their own names when they appear.
RARE_COLLECTIVES = ("ragged-all-to-all", "collective-broadcast")
# Reading or naming these moves nothing; what they hold is counted where it is used. Ends of asynchronous operations
# are counted at their beginnings.
FREE = frozenset(
    [
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "bitcast",
        "while",
        "conditional",
        "call",
        "after-all",
        "partition-id",
        "replica-id",
        "opt-barrier",
        "async-start",
        "async-update",
        "async-done",
        "copy-done",
        "slice-done",
        "all-reduce-done",
        "all-gather-done",
        "collective-permute-done",
        "send-done",
        "recv-done",
    ]
)
# Kernels that do all of attention in one, by a part of a custom call's name.
FUSED_ATTENTION = {
    "__cudnn$fmha": "cuDNN fused attention",
    "tpu_custom_call": "a Pallas kernel",
    "triton_kernel_call": "a Triton kernel",
}


@dataclass(frozen=True)
class Collective:
    """A kind of communication between devices, all of the same size and groups."""

    kind: str
    dtype: str  # "" when a call mixes several
    bytes: int  # of the whole array one device ends with, or for reduce-scatter begins with
    group: tuple[int, ...]  # positions in the mesh of the devices of one group
    count: int  # calls in one step

    @property
    def sent(self) -> float:
        """Bytes that each device sends in one call when the group is a ring."""
        n = len(self.group)
        if self.kind == "collective-permute":
            return self.bytes
        return (2 if self.kind == "all-reduce" else 1) * self.bytes * (n - 1) / n


@dataclass(frozen=True)
class Products:
    """Matrix products of one type."""

    left: str
    right: str
    result: str
    count: int
    flops: int  # on one device


class CompiledText:
    """The text of one device's program, as `jax.stages.Compiled.as_text` gives it."""

    def __init__(self, text: str, devices: int):
        """Parse the text of a program for `devices` devices."""
        self._devices = devices
        self._computations, self._entry = parse_computations(text)

    @functools.cached_property
    def collectives(self) -> list[Collective]:
        """Every kind of collective, the most bytes first. A group of one device sends nothing and is left out."""
        found: collections.Counter[tuple[str, str, int, tuple[int, ...]]] = collections.Counter()
        for times, place, instruction in self._walk(inside_fusions=True):
            kind = instruction.opcode.removesuffix("-start")
            # A TPU spreads a collective over the kernels that run meanwhile; it counts where it starts.
            if kind not in COLLECTIVES + RARE_COLLECTIVES or self._carries(place):
                continue
            group = self._group(instruction, kind)
            if len(group) < 2:
                continue
            # A TPU's all-reduce may round what it is given; its result says what is sent.
            home = self._computations[place]
            parts = instruction.result if instruction.opcode == "all-reduce" else _operands(instruction, home)
            if place.startswith("all-reduce-scatter"):  # how a TPU writes a reduce-scatter
                kind = "reduce-scatter"
            dtypes = {array.dtype for array in parts}
            size = sum(array.bytes for array in parts) * (len(group) if kind == "all-gather" else 1)
            found[kind, dtypes.pop() if len(dtypes) == 1 else "", size, group] += times
        made = (Collective(kind, dtype, size, group, n) for (kind, dtype, size, group), n in found.items())
        return sorted(made, key=lambda c: (-c.bytes * c.count, c.kind))

    @functools.cached_property
    def products(self) -> list[Products]:
        """Matrix products by the types of operands and result, the most frequent first."""
        counts: collections.Counter[tuple[str, str, str]] = collections.Counter()
        flops: collections.Counter[tuple[str, str, str]] = collections.Counter()
        for times, place, instruction in self._walk(inside_fusions=True):
            home = self._computations[place]
            gemm = instruction.opcode == "custom-call" and re.search(r'target="__cublas\$', instruction.attributes)
            if instruction.opcode not in ("dot", "convolution") and not gemm:
                continue
            left, right = (home[name].result[0] for name in instruction.operands[:2])
            result = instruction.result[0]
            types = (left.dtype, right.dtype, result.dtype)
            counts[types] += times
            count = _convolution_flops if instruction.opcode == "convolution" else _dot_flops
            flops[types] += times * count(instruction.attributes, left, right, result)
        return [Products(*types, n, flops[types]) for types, n in counts.most_common()]

    @functools.cached_property
    def custom_calls(self) -> dict[str, int]:
        """Kernels from outside XLA's own code generator, by name, with their calls in a step."""
        found: collections.Counter[str] = collections.Counter()
        for times, _, instruction in self._walk(inside_fusions=True):
            if target := re.search(r'custom_call_target="([^"]*)"', instruction.attributes):
                found[target[1]] += times
        return dict(found.most_common())

    @property
    def attention(self) -> str:
        """Which attention the program holds."""
        found = [(what, n) for part, what in FUSED_ATTENTION.items() if (n := self._calls_like(part))]
        if found:
            return ", ".join(f"{what} ({n} calls)" for what, n in found)
        return "XLA's own: products and softmax, no fused kernel"

    @functools.cached_property
    def memory_traffic(self) -> int:
        """Bytes that one device's kernels read from and write to its main memory in a step.

        Operands and results of every kernel; of an array that a kernel only looks rows up in, those rows.
        """
        total = 0
        for times, place, instruction in self._walk(inside_fusions=False):
            total += times * self._traffic(instruction, self._computations[place])
        return total

    @functools.cached_property
    def loops(self) -> list[int | None]:
        """Rounds of every loop the program has; None where the text does not say."""
        walk = self._walk(inside_fusions=False)
        return [self._rounds(instruction, place) for _, place, instruction in walk if instruction.opcode == "while"]

    def _rounds(self, loop: Instruction, place: str) -> int | None:
        return rounds_of(loop, self._computations[place], self._computations)

    def _calls_like(self, part: str) -> int:
        return sum(n for target, n in self.custom_calls.items() if part in target)

    def _carries(self, computation: str) -> bool:
        """Whether a fusion holds a collective only because it goes on or ends there."""
        return computation.startswith("async_collective_fusion") or "AsyncCollectiveDone" in self._targets(computation)

    def _walk(self, *, inside_fusions: bool) -> Iterator[tuple[int, str, Instruction]]:
        """How often an instruction runs in a step, the computation it stands in, and the instruction."""

        def walk(name: str, times: int) -> Iterator[tuple[int, str, Instruction]]:
            for instruction in self._computations[name].values():
                yield times, name, instruction
                if instruction.opcode == "while":
                    told = self._rounds(instruction, name)
                    rounds = times if told is None else times * told
                    inner = [(instruction.called("body"), rounds), (instruction.called("condition"), rounds)]
                elif instruction.opcode == "fusion":
                    inner = [(instruction.called("calls"), times)] if inside_fusions else []
                elif instruction.opcode in ("call", "async-start"):
                    inner = [(instruction.called("calls") or instruction.called("to_apply"), times)]
                elif instruction.opcode == "conditional":  # any of its branches may run: count them all
                    branches = re.search(r"branch_computations=\{([^}]*)\}", instruction.attributes)
                    names = re.findall(r"%([\w.\-]+)", branches[1]) if branches else []
                    names += [instruction.called(f"{value}_computation") for value in ("true", "false")]
                    inner = [(branch, times) for branch in names]
                else:
                    continue
                for called, rounds in inner:
                    if called is not None and called in self._computations:
                        yield from walk(called, rounds)

        yield from walk(self._entry, 1)

    def _group(self, instruction: Instruction, kind: str) -> tuple[int, ...]:
        if kind == "collective-permute":
            pairs = re.search(r"source_target_pairs=\{(.*?)\}\}", instruction.attributes)
            steps = re.findall(r"(\d+),(\d+)", pairs[1]) if pairs else []
            apart = [(int(a), int(b)) for a, b in steps if a != b]
            return max(apart, key=lambda step: abs(step[0] - step[1])) if apart else ()
        return first_group(instruction.attributes) or tuple(range(self._devices))

    def _traffic(self, instruction: Instruction, home: Computation) -> int:
        opcode = instruction.opcode
        if opcode in FREE:
            return 0
        if opcode in ("copy-start", "slice-start"):  # between memories: ((source), destination, …)
            moved = min(instruction.result[:2], key=lambda array: array.bytes)
            return moved.bytes * sum(array.main_memory for array in instruction.result[:2])
        written = [] if opcode.endswith("-start") else list(instruction.result)
        operands = [home[name].result for name in instruction.operands if name in home]
        read = list(itertools.chain.from_iterable(operands))
        if opcode in ("gather", "dynamic-slice", "slice"):
            read = [*written, *read[1:]]
        elif opcode == "dynamic-update-slice":
            read, written = read[1:], read[1:2]
        elif opcode == "fusion" and (called := instruction.called("calls")):
            targets = self._targets(called)
            if "AsyncCollectiveDone" in targets:
                return 0
            if "AsyncCollectiveStart" in targets:  # its results are what it reads and what it will have written
                return sum(array.bytes for array in written if array.main_memory)
            looked_up = self._looked_up(called)
            # What a kernel only carries on of a collective that runs meanwhile is not its own.
            own, made = (
                _own_range(instruction.attributes, "operand"),
                _own_range(instruction.attributes, "output_tuple"),
            )
            read = [
                array
                for index, arrays in enumerate(operands)
                for array in ([looked_up[index]] if index in looked_up else arrays)
                if index in own
            ]
            written = [array for index, array in enumerate(written) if index in made]
        elif opcode.endswith("-start"):
            written = read
        return sum(array.bytes for array in (*read, *written) if array.main_memory)

    def _targets(self, computation: str) -> set[str]:
        """Custom calls in a fusion."""
        home = self._computations.get(computation, {})
        calls = (i.attributes for i in home.values() if i.opcode == "custom-call")
        return {found[1] for text in calls if (found := re.search(r'custom_call_target="([^"]*)"', text))}

    def _looked_up(self, computation: str) -> dict[int, Array]:
        """Parameters of a fusion that only rows are read of, with what is read, by number."""
        home = self._computations.get(computation, {})
        users: dict[str, list[Instruction]] = collections.defaultdict(list)
        for instruction in home.values():
            for name in instruction.operands:
                users[name].append(instruction)
        found = {}
        for instruction in home.values():
            if instruction.opcode != "parameter" or not instruction.result:
                continue
            uses = users[instruction.name]
            if uses and all(
                use.opcode in ("gather", "dynamic-slice", "slice") and use.operands[0] == instruction.name
                for use in uses
            ):
                rows = Array(instruction.result[0].dtype, (sum(use.result[0].size for use in uses),))
                number = int(instruction.attributes)
                found[number] = rows if instruction.result[0].main_memory else Array("token", ())
        return found


def _own_range(attributes: str, what: str) -> range:
    """Numbers of the operands or results that are a fusion's own, all unless a TPU's text says otherwise."""
    start, end = (re.search(rf'"{what}_original_{side}":"(\d+)"', attributes) for side in ("start", "end"))
    return range(int(start[1]), int(end[1]) + 1) if start and end else range(10**6)


def _dot_flops(attributes: str, left: Array, right: Array, result: Array) -> int:
    """Two for each multiplication and addition; cuBLAS calls name the contracted dimensions as dots do, in JSON."""
    del right
    contracted = re.search(r'lhs_contracting_dim(?:ension)?s"?[=:][{\[]([\d,"]*)[}\]]', attributes)
    axes = [int(axis) for axis in re.findall(r"\d+", contracted[1])] if contracted else []
    return 2 * result.size * math.prod(left.dimensions[axis] for axis in axes)


def _convolution_flops(attributes: str, left: Array, right: Array, result: Array) -> int:
    """Likewise; TPUs have products written as convolutions whose window slides over what is padding or one element."""
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", attributes)
    if labels is None:
        return 0
    sizes = [
        dict(zip(names, array.dimensions, strict=True))
        for names, array in zip(labels.groups(), (left, right, result), strict=True)
    ]
    window = dict(re.findall(r"(\w+)=([\dx_\-]+)", (re.search(r"window=\{([^}]*)\}", attributes) or [""])[0]))
    positions = 1
    for place, axis in enumerate(sorted(name for name in sizes[2] if name.isdigit())):
        stride, dilation, spread = (_window(window, name, place, 1) for name in ("stride", "rhs_dilate", "lhs_dilate"))
        low = int(window["pad"].split("x")[place].split("_")[0]) if "pad" in window else 0
        taps = np.arange(sizes[1][axis])[None, :] * dilation
        at = np.arange(sizes[2][axis])[:, None] * stride - low + taps
        positions *= int(np.sum((at >= 0) & (at <= (sizes[0][axis] - 1) * spread) & (at % spread == 0)))
    batches = _window(dict(re.findall(r"(batch_group_count)=(\d+)", attributes)), "batch_group_count", 0, 1)
    return 2 * positions * sizes[1]["i"] * sizes[2]["f"] * sizes[0]["b"] // batches


def _window(window: dict[str, str], name: str, place: int, default: int) -> int:
    return int(window[name].split("x")[place]) if name in window else default


def _operands(instruction: Instruction, home: Computation) -> tuple[Array, ...]:
    return tuple(array for name in instruction.operands if name in home for array in home[name].result)


def by_kind(collectives: Sequence[Collective]) -> dict[str, tuple[int, int]]:
    """Calls and bytes in a step, by HLO name, kinds in the order of `COLLECTIVES`."""
    totals = dict.fromkeys(COLLECTIVES, (0, 0))
    for collective in collectives:
        calls, size = totals.get(collective.kind, (0, 0))
        totals[collective.kind] = (calls + collective.count, size + collective.count * collective.bytes)
    return {kind: total for kind, total in totals.items() if total[0]}
