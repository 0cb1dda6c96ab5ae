"""metrics.jsonl and TensorBoard events of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from t2t_jax.files import write_atomically
from t2t_jax.run_directory import METRICS

Entry = dict[str, float | int]


class MetricsWriter:
    """Appends one JSON object a logged step, and the same numbers as TensorBoard scalars."""

    def __init__(self, run: Path, resumed_at: int):
        """Lines past step `resumed_at` belong to steps that are about to be done again, and are dropped."""
        from tensorboardX import SummaryWriter  # takes a second to import, which `--help` should not

        kept = [entry for entry in read(run) if entry["step"] <= resumed_at]
        write_atomically(run / METRICS, "".join(_line(entry) for entry in kept))
        self._file = (run / METRICS).open("a", encoding="utf-8")
        self._events = SummaryWriter(str(run), purge_step=resumed_at + 1, write_to_disk=True)

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._events.close()

    def write(self, entry: Entry) -> None:
        """Record one logged step; `entry` has at least "step"."""
        self._file.write(_line(entry))
        self._file.flush()
        for name, value in entry.items():
            if name != "step":
                self._events.add_scalar(name, value, int(entry["step"]))


def read(run: Path) -> list[Entry]:
    """The entries of metrics.jsonl in order; a last line that a crash cut short is left out."""
    path = run / METRICS
    if not path.is_file():
        return []
    entries: list[Any] = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            entries.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return entries


def _line(entry: Entry) -> str:
    return json.dumps(entry, allow_nan=False) + "\n"
