"""metrics.jsonl of a run, which its trackers are told as well."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from t2t_jax.files import read_json_lines, write_atomically
from t2t_jax.run_directory import METRICS
from t2t_jax.training.trackers import Entry, Tracker


class MetricsWriter:
    """Appends one JSON object a logged step, and hands the same numbers to the trackers."""

    def __init__(self, run: Path, resumed_at: int, trackers: Sequence[Tracker] = ()):
        """Lines past step `resumed_at` belong to steps that are about to be done again, and are dropped."""
        kept = [entry for entry in read(run) if entry["step"] <= resumed_at]
        write_atomically(run / METRICS, "".join(_line(entry) for entry in kept))
        self._file = (run / METRICS).open("a", encoding="utf-8")
        self._trackers = trackers

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._file.close()
        for tracker in self._trackers:
            tracker.close(whole=kind is None)

    def write(self, entry: Entry) -> None:
        """Record one logged step; `entry` has at least "step"."""
        self._file.write(_line(entry))
        self._file.flush()
        for tracker in self._trackers:
            tracker.write(entry)


def read(run: Path) -> list[Entry]:
    """The entries of metrics.jsonl in order; a last line that a crash cut short is left out."""
    return read_json_lines(run / METRICS)


def _line(entry: Entry) -> str:
    return json.dumps(entry, allow_nan=False) + "\n"
