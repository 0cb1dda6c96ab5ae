"""A sweep while it runs: a table in the terminal, or a line for each change of a row's state where there is none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from rich.live import Live
from rich.table import Table
from rich.text import Text

from t2t_jax import run_directory
from t2t_jax.progress import console, say
from t2t_jax.sweeps import rows
from t2t_jax.sweeps.rows import Row, State, Sweep

WIDEST = 40  # characters of a state and its reason, which the table at the end has in full
TAIL = 8192  # bytes, in which the last two lines of metrics.jsonl are


@dataclass(frozen=True)
class Speed:
    """The newest logged step of a run."""

    step: int
    loss: float
    tokens_per_second: float
    seconds_per_step: float


def title(row: Row, sweep: Sweep) -> str:
    """The row's name, with its seed where the row has several."""
    several = sum(other.name == row.name for other in sweep.rows) > 1
    return f"{row.name} (seed {row.seed})" if several else row.name


class LiveTable:
    """Shows a sweep between its beginning and its end; `states` is what is known at the beginning."""

    def __init__(self, sweep: Sweep, states: dict[Row, State]):
        self._sweep = sweep
        self._states = dict(states)
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> LiveTable:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, running: Sequence[Row]) -> None:
        """The rows that are trained now; what has become of those that were is looked up."""
        for row in self._sweep.rows:
            known = self._states[row]
            if row in running:
                self._change(row, State("running", known.step))
            elif known.kind == "running" and known.reason is None:  # ours, and it has ended
                self._change(row, rows.state(row))
        if self._live is not None:
            self._live.update(self._table(running), refresh=True)

    def _change(self, row: Row, new: State) -> None:
        changed = self._states[row].kind != new.kind
        self._states[row] = new
        if changed and self._live is None:
            reason = f": {new.reason}" if new.reason else ""
            at = f" at step {new.step:,}" if new.step and new.kind != "done" else ""
            say(f"{title(row, self._sweep)}  {new.kind}{at}{reason}")

    def _table(self, running: Sequence[Row]) -> Table:
        counts = {kind: sum(state.kind == kind for state in self._states.values()) for kind in rows.KINDS}
        table = Table(title=f"{self._sweep.name}: {', '.join(f'{n} {kind}' for kind, n in counts.items() if n)}")
        table.add_column("row", no_wrap=True)
        table.add_column("state", no_wrap=True, max_width=WIDEST)
        for name in ("step", "loss", "tokens/s", "left"):
            table.add_column(name, no_wrap=True, justify="right")
        fits = len(self._sweep.rows) + 6 < console.height
        for row in self._sweep.rows:
            state, steps = self._states[row], row.experiment.training.num_steps
            if not (fits or row in running or state.kind == "failed"):
                continue
            cells = [title(row, self._sweep), f"{state.kind}: {state.reason}" if state.reason else state.kind]
            if row in running and (speed := latest(row)) is not None:
                left = (steps - speed.step) * speed.seconds_per_step
                cells += [f"{speed.step:,}/{steps:,}", f"{speed.loss:.3f}", f"{speed.tokens_per_second:,.0f}"]
                cells.append(duration(left) if left > 0 else "scoring")
            elif state.step:
                cells.append(f"{state.step:,}/{steps:,}")
            table.add_row(*map(Text, cells))  # as it is: brackets in a reason are no markup
        return table


def latest(row: Row) -> Speed | None:
    """The newest logged step; None before the first."""
    try:
        with (row.directory / run_directory.METRICS).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            entries = [json.loads(line) for line in file.read().split(b"\n")[-3:] if line.endswith(b"}")]
        last, before = entries[-1], entries[-2]["step"] if len(entries) > 1 else 0
        return Speed(
            last["step"], last["loss"], last["tokens_per_second"], last["seconds"] / max(last["step"] - before, 1)
        )
    except (OSError, ValueError, IndexError, KeyError):
        return None


def duration(seconds: float) -> str:
    """In the unit a person would take."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} d"
