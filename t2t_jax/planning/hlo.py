"""HLO, the text of a compiled program, as instructions."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

BITS = {"pred": 8, "token": 0, "opaque": 0}

_SHAPE = re.compile(r"\b([a-z][a-z0-9]*)\[([\d,<=]*)\](?:\{([^}]*)\})?")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_OPCODE = re.compile(r"(?:^|\s)([a-z][a-z0-9\-]*)\(")
_NAME = re.compile(r"%([\w.\-]+)")


@dataclass(frozen=True)
class Array:
    """One array of a type: element type, dimensions, and whether it lies in the device's main memory."""

    dtype: str
    dimensions: tuple[int, ...]
    main_memory: bool = True

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.dimensions)

    @property
    def bytes(self) -> int:
        """Bytes, without the padding of tiles."""
        return -(-self.size * _bits(self.dtype) // 8)


@dataclass(frozen=True)
class Instruction:
    """One line: `name` = `result` `opcode`(`operands`), `attributes`."""

    name: str
    result: tuple[Array, ...]
    opcode: str
    operands: tuple[str, ...]
    attributes: str

    def called(self, attribute: str) -> str | None:
        """The computation that `attribute` (calls, body, to_apply) names."""
        match = re.search(rf"\b{attribute}=%?([\w.\-]+)", self.attributes)
        return match[1] if match else None


def parse_instruction(name: str, rest: str) -> Instruction | None:
    """The instruction after its name; None for a line that is none."""
    opcode = _OPCODE.search(rest)
    if opcode is None:
        return None
    end = _closing(rest, opcode.end() - 1)
    inside = rest[opcode.end() : end]
    # A parameter's number stands where others have operands; there is nothing else to say about it.
    attributes = inside if opcode[1] == "parameter" else rest[end + 1 :]
    result = _arrays(rest[: opcode.start()])
    return Instruction(name, result, opcode[1], tuple(_NAME.findall(inside)), attributes)


def _closing(text: str, start: int) -> int:
    """Place of the parenthesis that closes the one at `start`."""
    depth = 0
    for match in re.compile(r"[()]").finditer(text, start):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return match.start()
    return len(text)


def _arrays(text: str) -> tuple[Array, ...]:
    """All arrays of a type, tuples flattened."""
    found = []
    for dtype, dimensions, layout in _SHAPE.findall(text):
        space = re.search(r"S\((\d+)\)", layout)
        sizes = tuple(int(n.lstrip("<=")) for n in dimensions.split(",") if n)
        found.append(Array(dtype, sizes, main_memory=space is None or space[1] == "0"))
    return tuple(found)


def _bits(dtype: str) -> int:
    if dtype in BITS:
        return BITS[dtype]
    digits = re.search(r"\d+", dtype)
    return int(digits[0]) if digits else 0


def rounds_of(loop: Instruction) -> int | None:
    """How often a `while` runs its body; None where the text does not say."""
    known = re.search(r'known_trip_count"?[=:]\{"?n"?[=:]"?(\d+)', loop.attributes)
    return int(known[1]) if known else None


def first_group(attributes: str) -> tuple[int, ...]:
    """The first of a collective's groups of devices; empty when the text leaves it at "all".

    XLA writes them as lists {{0,1},{2,3}}, as an order of all devices [groups,members]<=[dims]T(axes), or as axes of a
    mesh mesh['a'=2,'b'=4] {'b'}.
    """
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", attributes):
        return tuple(int(n) for n in listed[1].split(","))
    if order := re.search(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", attributes):
        first = _iota(order[3], order[4]).reshape(int(order[1]), int(order[2]))[0]
        return tuple(int(n) for n in first)
    if mesh := re.search(r"replica_groups=mesh\[([^\]]*)\]([^{]*)\{([^}]*)\}", attributes):
        axes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", mesh[1])}
        devices = re.search(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", mesh[2])
        ids = _iota(devices[1], devices[2]) if devices else np.arange(math.prod(axes.values()))
        ids = ids.reshape([*axes.values()])
        taken = {
            name: (int(before or 1), int(size or axes[name])) for name, before, size in _MESH_AXIS.findall(mesh[3])
        }
        for place, (name, size) in enumerate(axes.items()):
            before, members = taken.get(name, (size, 1))  # an axis is split as before x members x after
            rows = np.arange(size).reshape(before, members, -1)
            ids = ids.take(rows[0, :, 0], axis=place)
        return tuple(int(n) for n in ids.ravel())
    return ()


_MESH_AXIS = re.compile(r"'([^']+)'(?::\((\d+)\)(\d+))?")


def _iota(dimensions: str, transposition: str | None) -> np.ndarray:
    sizes = [int(n) for n in dimensions.split(",")]
    ids = np.arange(math.prod(sizes)).reshape(sizes)
    return ids.transpose([int(n) for n in transposition.split(",")]).ravel() if transposition else ids.ravel()


def parse_computations(text: str) -> tuple[dict[str, dict[str, Instruction]], str]:
    """The instructions of each computation of a program by their names, and the name of the one that it begins with."""
    computations: dict[str, dict[str, Instruction]] = {}
    entry = ""
    current: dict[str, Instruction] = {}
    for line in text.splitlines():
        if header := _COMPUTATION.match(line):
            current = computations.setdefault(header[2], {})
            entry = header[2] if header[1] else entry
        elif (match := _INSTRUCTION.match(line)) and (instruction := parse_instruction(match[1], match[2])):
            current[instruction.name] = instruction
    return computations, entry
