"""A trace of a few steps, and a table of where their time went by the parts of the model."""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from t2t_jax.data.batching import Shape
from t2t_jax.files import write_atomically
from t2t_jax.progress import say

FOLDER, TABLE = "profile", "where_time_went.txt"
AFTER, STEPS = 10, 5  # steps of this call that go before, so that caches and clocks are as they stay; steps traced
LISTED = 20  # single instructions

# What an instruction belongs to, by the path that tracing gave it; the first that matches.
PARTS = {
    "self-attention": r"self_attention",
    "attention over the source": r"cross_attention|memory_keys_values",
    "feed-forward network": r"feed_forward",
    "layer normalisation": r"LayerNorm|_norm",
    "residual connections": r"residuals",
    "logits and loss": r"loss",
    "Adam": r"optimizer",
    "embedding": r"_embed|Positions|gather|scatter",
}
OTHER = "copies, and whatever has no name"


class Timed(NamedTuple):
    """An instruction that a device executed: nanoseconds, and which execution of the program it was in."""

    instruction: str
    nanoseconds: float
    begun: float
    execution: int


class StepProfile:
    """Traces steps 11 to 15 of a call of `train`, then writes and says where the time went."""

    def __init__(self, run: Path, text_of: Callable[[Shape], str]):
        """Write to RUN/profile; `text_of` gives the compiled step of a shape as HLO text."""
        self._folder, self._text_of = run / FOLDER, text_of
        self._begun, self._shapes = 0, list[Shape]()

    def before(self, shape: Shape, previous: Any) -> None:
        """A step on a batch of `shape` is about to begin; `previous` is a result of the one before."""
        self._begun += 1
        if self._begun == AFTER + 1:
            jax.block_until_ready(previous)
            jax.profiler.start_trace(str(self._folder))
        if AFTER < self._begun <= AFTER + STEPS:
            self._shapes.append(shape)

    def after(self, result: Any) -> None:
        """That step has been given to the devices, which will give `result`."""
        if self._begun != AFTER + STEPS:
            return
        jax.block_until_ready(result)
        jax.profiler.stop_trace()
        newest = max(self._folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime)
        paths = {shape: paths_of(self._text_of(shape)) for shape in set(self._shapes)}
        text = table(timed(jax.profiler.ProfileData.from_file(str(newest))), [paths[s] for s in self._shapes])
        write_atomically(self._folder / TABLE, text)
        say(f"{text}\nThe trace is in {self._folder}, for TensorBoard or ui.perfetto.dev; this table in {TABLE}.")


def paths_of(hlo: str) -> dict[str, str]:
    """From each instruction's name to the path of what it was traced from, e.g. jvp(decoder_0)/feed_forward/dot."""
    return {
        match[1]: match[2]
        for match in re.finditer(r'^\s*(?:ROOT )?%?([\w.\-]+) = .*?op_name="([^"]*)"', hlo, re.MULTILINE)
    }


def timed(trace: Any) -> list[Timed]:
    """The instructions that one device executed, out of a trace of JAX's profiler."""
    by_plane = {plane.name: found for plane in trace.planes if (found := _instructions(plane))}
    # Planes of devices come first. One that has no instructions may be there too: libtpu adds its own everywhere.
    devices = sorted(name for name in by_plane if name.startswith("/device:"))
    return [instruction for name in devices[:1] or by_plane for instruction in by_plane[name]]


def _instructions(plane: Any) -> list[Timed]:
    found = []
    for line in plane.lines:
        for event in line.events:
            stats = dict(event.stats)
            if "hlo_op" in stats:
                execution = int(stats.get("run_id", 0))
                found.append(Timed(str(stats["hlo_op"]), event.duration_ns, event.start_ns, execution))
    return found


def table(events: Iterable[Timed], paths: Sequence[Mapping[str, str]]) -> str:
    """Where the time went, in milliseconds a step; `paths` are those of each step's program."""
    events = sorted(events, key=lambda event: event.begun)
    order = {execution: number for number, execution in enumerate(dict.fromkeys(e.execution for e in events))}
    parts: dict[str, list[float]] = collections.defaultdict(lambda: [0.0, 0.0])
    single: dict[str, float] = collections.defaultdict(float)
    for event in events:
        program = paths[min(order[event.execution], len(paths) - 1)]
        path = program.get(event.instruction, "")
        milliseconds = event.nanoseconds / 1e6 / len(paths)
        backward = "transpose(" in path
        parts[part_of(path)][backward] += milliseconds
        single[f"{_readable(path) or OTHER}  ({event.instruction.rstrip('.0123456789')})"] += milliseconds
    total = sum(single.values())
    longest = sorted(single.items(), key=lambda item: -item[1])[:LISTED]
    rows = sorted(parts.items(), key=lambda row: -sum(row[1]))
    lines = [
        f"Where the time of {len(paths)} steps went, in ms a step. Instructions that ran side by side count both.",
        "",
        f"{'':34}{'forward':>10}{'backward':>10}{'share':>8}",
        *(f"{name:34}{there:>10.2f}{back:>10.2f}{(there + back) / total:>8.1%}" for name, (there, back) in rows),
        f"{'together':34}{sum(row[0] for row in parts.values()):>10.2f}{sum(row[1] for row in parts.values()):>10.2f}",
        "",
        "The instructions that took longest, all layers together:",
        *(f"{milliseconds:>10.2f}  {what[:140]}" for what, milliseconds in longest),
    ]
    return "\n".join(lines) + "\n"


def part_of(path: str) -> str:
    """Which part of the training step an instruction of this path is in."""
    return next((name for name, pattern in PARTS.items() if re.search(pattern, path)), OTHER)


def _readable(path: str) -> str:
    """The path without what every instruction has, and without the numbers of layers, which all do the same."""
    path = re.sub(r"^jit\(train_step\)/|while/body/|closed_call/", "", path)
    path = re.sub(r"transpose\(jvp\((.*?)\)\)", r"gradient of \1", path)
    return re.sub(r"(?<=coder_)\d+", "*", re.sub(r"jvp\((.*?)\)", r"\1", path))
