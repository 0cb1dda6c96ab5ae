"""The report of a sweep: table.md, table.csv, report.html and plots/, made from the directories of its runs alone."""

from __future__ import annotations

import csv
import functools
import html
import importlib.resources
import io
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from t2t_jax import run_directory
from t2t_jax.errors import RunError
from t2t_jax.evaluation import plots
from t2t_jax.evaluation.comparison import Comparison
from t2t_jax.files import write_atomically
from t2t_jax.sweeps import grids, ledger, palette, pictures, rows, table
from t2t_jax.sweeps.grids import Grid
from t2t_jax.sweeps.table import Figure, Result, Table, bleu, chrf, figure, perplexity, score

MARKDOWN, CSV, PLOTS = "table.md", "table.csv", "plots"
ROWS = "rows"  # of what is kept: the records of the runs


def write(directory: Path, keep_in: Path | None = None) -> Path:
    """Write the report of the sweep in `directory` there; returns the page's path.

    With `keep_in`, the report is also kept in that folder, with the record of each run that is done; no checkpoints and
    no text.

    Raises:
      RunError: no sweep, damaged files in it, the report cannot be written, `keep_in` holds something else, or as
        `ledger.keep`.
    """
    try:
        found = table.collect(rows.load(directory))
        page = _write(found, directory)
    except OSError as error:
        raise RunError(f"The report in {str(directory)!r} cannot be written: {error.strerror or error}.") from None
    if keep_in is not None:
        _keep(found, keep_in)
    return page


def _write(found: Table, directory: Path) -> Path:
    drawn, tables = pictures.pictures(found), grids.grids(found)
    folder = directory / PLOTS
    folder.mkdir(exist_ok=True)
    for left in {path.name for path in folder.glob("*.png")} - {f"{picture.name}.png" for picture in drawn}:
        (folder / left).unlink(missing_ok=True)
    for picture in drawn:
        picture.save(folder)
    write_atomically(directory / CSV, _csv(found))
    write_atomically(directory / MARKDOWN, _markdown(found, tables, drawn))
    write_atomically(directory / run_directory.PAGE, _page(found, tables, drawn))
    return directory / run_directory.PAGE


def _keep(found: Table, folder: Path) -> None:
    sweep = found.sweep
    with ledger.keeping(folder):
        for record in (folder / ROWS).glob(f"*/{run_directory.REPORT}"):  # of rows that are no more
            shutil.rmtree(record.parent)
        for run in (run for result in found.results for run in result.runs):
            if run.state.kind == "done":
                ledger.keep(run.row.directory, folder / ROWS / run.row.directory.name, sweep.command)
        _write(table.without_places(found), folder)


def _csv(found: Table) -> str:
    """A line for each row; nothing in it that the same seeds would not give again."""
    split, measure = found.split, found.measure
    splits, protocols = found.splits_and_protocols

    def cell(of: Figure, result: Result, shown: str = ".2f") -> list[str]:
        spread = result.spread(of)
        if spread is None:
            return ["", ""]
        return [format(spread.mean, shown), "" if spread.deviation is None else format(spread.deviation, shown)]

    header = ["row", "config_hash", "state", "seeds_done", "steps", "parameters"]
    header += ["perplexity", "perplexity_sd", "perplexity_comparable", measure.key, f"{measure.key}_sd"]
    header += ["bleu_difference", "difference_low", "difference_high", "p_bootstrap", "p_randomization", "p_holm"]
    header += ["paper_perplexity", "paper_bleu", "training_flops"]
    header += [f"{name}_perplexity" for name in splits]
    if measure.protocol:
        others = [(f"{name}_bleu_{p}", bleu(name, p)) for name in splits for p in protocols]
        others += [(f"{name}_chrf", chrf(name)) for name in splits]
    else:
        others = [(f"{name}_{measure.key}", score(name, measure)) for name in splits]
    header += [name for name, _ in others]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    for result in found.results:
        first = result.reports[0] if result.reports else {}
        versus, paper = result.versus, result.paper
        compared = [""] * 6
        if isinstance(versus, Comparison):
            numbers = versus.difference, *versus.difference_interval
            compared = [f"{value:.2f}" for value in numbers]
            ps = versus.p_bootstrap, versus.p_randomization, found.adjusted[result.name]
            compared += [f"{p:.4f}" for p in ps]
        writer.writerow(
            [
                _no_formula(result.name),
                result.runs[0].row.config_hash,
                _no_formula(result.status),
                len(result.reports),
                first.get("steps", ""),
                first.get("parameters", ""),
                *cell(perplexity(split), result),
                "yes" if result.comparable else "no",
                *cell(score(split, measure), result),
                *compared,
                *([f"{paper.perplexity:.2f}", f"{paper.bleu:.1f}"] if paper else ["", ""]),
                cell(figure("training_flops"), result, ".4e")[0],
                *(cell(perplexity(name), result)[0] for name in splits),
                *(cell(of, result)[0] for _, of in others),
            ]
        )
    return buffer.getvalue()


def _no_formula(text: str) -> str:
    """Text that a spreadsheet takes for text."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _markdown(found: Table, tables: Sequence[Grid], drawn: Sequence[pictures.Picture]) -> str:
    parts = [f"# {_cell(found.sweep.name)}", "", _cell(found.progress), ""]
    parts += [f"- {label}: {value if label == 'Command' else _cell(value)}" for label, value in _facts(found, "`{}`")]
    for grid in tables:
        parts += ["", f"## {_cell(grid.title)}", "", _cell(grid.says), ""]
        align = ["---" if place in grid.words else "---:" for place in range(len(grid.columns))]
        lines = (map(_cell, line) for line in (grid.columns, *grid.lines))
        header, *body = (f"| {' | '.join(line)} |" for line in lines)
        parts += [header, f"| {' | '.join(align)} |", *body]
    for picture in drawn:
        parts += ["", f"![{_cell(picture.caption)}]({PLOTS}/{picture.name}.png)"]
    return "\n".join(parts) + "\n"


def _cell(text: str) -> str:
    """Text as Markdown shows it, whatever it holds."""
    plain = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\|`*\[\]~])", r"\\\1", plain)


def _page(found: Table, tables: Sequence[Grid], drawn: Sequence[pictures.Picture]) -> str:
    variables = {
        name: {plots.CSS_COLOURS[colour][4:-1]: value for colour, value in colours.items() if colour != plots.INK}
        for name, colours in (("light", palette.LIGHT), ("dark", palette.DARK))
    }
    text = _template().render(
        name=found.sweep.name,
        progress=found.progress,
        whole=all(result.status == "done" for result in found.results),
        facts=_facts(found, "{}"),
        grids=tables,
        pictures=[(picture, Markup(picture.svg())) for picture in drawn],
        colours=variables,
        legend=palette.legend(found),
    )
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _facts(found: Table, command: str) -> list[tuple[str, str]]:
    """What was run, where and when, of the runs that are done."""
    reports = found.reports
    facts = [("Command", command.format(ledger.without_places(found.sweep.command)))] if found.sweep.command else []
    for label, key in (("Machine", "machine"), ("Date", "date")):
        if values := sorted({str(report.get(key)) for report in reports}):
            facts.append((label, ", ".join(values)))
    versions = {f"{name} {version}" for report in reports for name, version in report.get("versions", {}).items()}
    if versions:
        facts.append(("Versions", ", ".join(sorted(versions))))
    return facts


@functools.cache
def _template() -> jinja2.Template:
    source = importlib.resources.files("t2t_jax.sweeps").joinpath("sweep.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(source)
