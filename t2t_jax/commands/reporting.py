"""The verb that writes pages from what is there, and keeps figures for the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from t2t_jax import run_directory
from t2t_jax.command_line import DONE
from t2t_jax.errors import UserError
from t2t_jax.evaluation.report_page import write_page
from t2t_jax.options import Report
from t2t_jax.progress import say
from t2t_jax.run_lock import locked
from t2t_jax.sweeps import ledger, rows
from t2t_jax.sweeps import report as sweep_report


def report(targets: Sequence[Path], options: Report) -> int:
    """Render the pages of runs and sweeps again; keep a record; write the ledger."""
    if not targets and options.ledger is None:
        raise UserError("`report` needs runs or sweeps to render, or --ledger PAGE.")
    if options.record is not None and len(targets) != 1:
        raise UserError(f"--record keeps one run or sweep, not {len(targets)}.")
    for target in targets:
        if (target / rows.SWEEP).is_file():
            print(sweep_report.write(target, keep_in=options.record))
            continue
        run_directory.load_config(target)  # before a lock is put into what is no run
        with locked(target):
            print(write_page(target))
        if options.record is not None:
            ledger.keep(target, options.record)
    if options.record is not None:
        say(f"Kept in {options.record}; `report --ledger docs/reproduction.md` puts it into the ledger.")
    if options.ledger is not None:
        ledger.write(options.ledger, Path())
        print(options.ledger)
    return DONE
