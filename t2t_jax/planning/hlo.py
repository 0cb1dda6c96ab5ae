"""HLO, the text of a compiled program, as instructions."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

BITS = {"pred": 8, "token": 0, "opaque": 0}

_SHAPE = re.compile(r"\b([a-z][a-z0-9]*)\[([\d,<=]*)\](?:\{([^}]*)\})?")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
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
    root: bool = False
    """Whether its result is that of the computation."""

    def called(self, attribute: str) -> str | None:
        """The computation that `attribute` (calls, body, to_apply) names."""
        match = re.search(rf"\b{attribute}=%?([\w.\-]+)", self.attributes)
        return match[1] if match else None


Computation = dict[str, Instruction]
"""Instructions by their names."""


def parse_instruction(root: str | None, name: str, rest: str) -> Instruction | None:
    """The instruction of a line in its three parts: ROOT or None, its name, the rest; None if there is none."""
    opcode = _OPCODE.search(rest)
    if opcode is None:
        return None
    end = _closing(rest, opcode.end() - 1)
    inside = rest[opcode.end() : end]
    # A parameter's number and a constant's value stand where others have operands; there is nothing else to say.
    attributes = inside if opcode[1] in ("parameter", "constant") else rest[end + 1 :]
    result = _arrays(rest[: opcode.start()])
    return Instruction(name, result, opcode[1], tuple(_NAME.findall(inside)), attributes, root is not None)


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


def rounds_of(loop: Instruction, home: Computation, computations: dict[str, Computation]) -> int | None:
    """How often a `while` that stands in `home` runs its body; None where the text does not say.

    Either the compiler has noted it, or the loop counts from one constant to another in steps of a third.
    """
    if known := re.search(r'known_trip_count"?[=:]\{"?n"?[=:]"?(\d+)', loop.attributes):
        return int(known[1])
    condition, body = (computations.get(loop.called(part) or "", {}) for part in ("condition", "body"))
    test, carried, begin = _root(condition), _root(body), home.get(loop.operands[0])
    if test is None or carried is None or begin is None or "direction=LT" not in test.attributes:
        return None
    counter = _place(condition, test.operands[0])
    if counter is None or {carried.opcode, begin.opcode} != {"tuple"}:
        return None
    following = body[carried.operands[counter]]
    if following.opcode != "add" or _place(body, following.operands[0]) != counter:
        return None
    start, step = _constant(home, begin.operands[counter]), _constant(body, following.operands[1])
    end = _constant(condition, test.operands[1])
    if start is None or end is None or step is None or step <= 0:
        return None
    return max(0, -(-(end - start) // step))


def _root(computation: Computation) -> Instruction | None:
    return next((instruction for instruction in computation.values() if instruction.root), None)


def _place(home: Computation, name: str) -> int | None:
    """Which element of the computation's parameter `name` is; None if it is something else."""
    found = home.get(name)
    index = re.search(r"index=(\d+)", found.attributes) if found and found.opcode == "get-tuple-element" else None
    return int(index[1]) if index else None


def _constant(home: Computation, name: str) -> int | None:
    """The integer that `name` is, be it a copy; None if it is something else."""
    found = home.get(name)
    while found is not None and found.opcode in ("copy", "copy-start", "copy-done", "bitcast"):
        found = home.get(found.operands[0])
    value = re.fullmatch(r"-?\d+", found.attributes) if found and found.opcode == "constant" else None
    return int(value[0]) if value else None


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


def parse_computations(text: str) -> tuple[dict[str, Computation], str]:
    """The instructions of each computation of a program by their names, and the name of the one that it begins with."""
    computations: dict[str, Computation] = {}
    entry = ""
    current: Computation = {}
    for line in text.splitlines():
        if header := _COMPUTATION.match(line):
            current = computations.setdefault(header[2], {})
            entry = header[2] if header[1] else entry
        elif (match := _INSTRUCTION.match(line)) and (instruction := parse_instruction(*match.groups())):
            current[instruction.name] = instruction
    return computations, entry
