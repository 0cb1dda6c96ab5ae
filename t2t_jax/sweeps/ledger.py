"""The ledger of what has been reproduced: the paper's tables beside ours, from the reports that results/ keeps.

A record is a folder in results/ with a run's report.json and config.json. A number is ours only if the run's config,
but for the seed, is that of the experiment that stands for it, and it was finished and decoded as that one says.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import re
import shlex
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_jax import config_fields, run_directory, trajectory
from t2t_jax.config import Experiment
from t2t_jax.errors import RunError
from t2t_jax.evaluation.bleu import PAPER
from t2t_jax.evaluation.measures import measure_of
from t2t_jax.experiment_file import load_experiment, load_sweep
from t2t_jax.files import write_atomically
from t2t_jax.sweeps.paper_numbers import HARDWARE, PAIRS, PUBLISHED, TABLE_2, TABLE_3, TABLE_4

RESULTS = "results"
NOT_RUN = "not run"
TABLE_3_FILE = "experiments/table3.py"


@dataclass(frozen=True)
class Record:
    """What is kept of a run."""

    folder: Path
    experiment: Experiment
    report: Mapping[str, Any]


def keep(run: Path, folder: Path, command: str | None = None) -> None:
    """Put the record of a run into `folder`: figures and settings, no text, and no path of this machine.

    Args:
      run: an evaluated run.
      folder: made if need be; what an earlier record left there is replaced.
      command: that which trained the run, if it was not the run's own.

    Raises:
      RunError: no run, no report of its present config, nothing is known of the training, or the folder holds
        something else or cannot be written.
    """
    experiment = run_directory.load_config(run)
    report = _read(run / run_directory.REPORT)
    if report.get("config_hash") != trajectory.config_hash(experiment):
        raise RunError(f"The report of {str(run)!r} is of another config; `evaluate` renews it.")
    if report.get("command") is None:
        raise RunError(f"{str(run)!r} has no {run_directory.CALLS}, so nobody knows what trained it, where and when.")
    for call in (report, *report["calls"]):
        call["command"] = without_places(command or call["command"])
    data = dataclasses.replace(experiment.data, directory=None, store=None, tokenizer_from=None)
    settings = config_fields.to_json(dataclasses.replace(experiment, data=data))
    with keeping(folder):
        write_atomically(folder / run_directory.CONFIG, settings)
        write_atomically(folder / run_directory.REPORT, json.dumps(report, indent=2, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def keeping(folder: Path) -> Iterator[None]:
    """Within it `folder` is there to be written.

    Raises:
      RunError: it holds something else than what was kept before, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in folder.iterdir()}
        if names and not names & {run_directory.REPORT, "table.csv", "rows"}:
            raise RunError(f"{str(folder)!r} holds something else than a record; name another folder.")
        yield
    except OSError as error:
        raise RunError(f"{str(folder)!r} cannot be written: {error.strerror or error}.") from None


def read_records(root: Path) -> list[Record]:
    """All records in `root`/results, by path.

    Raises:
      RunError: a record that is damaged, or whose report has another hash than its config.
    """
    found = []
    for path in sorted((root / RESULTS).rglob(run_directory.REPORT)):
        experiment, report = run_directory.load_config(path.parent), _read(path)
        if report.get("config_hash") != (expected := trajectory.config_hash(experiment)):
            raise RunError(
                f"{str(path)!r} has the config hash {report.get('config_hash')!r}, but its config's is {expected!r}; "
                "record the run again."
            )
        found.append(Record(path.parent.relative_to(root), experiment, report))
    return found


def write(page: Path, root: Path) -> None:
    """Write the ledger of `root`, the repository, to `page`.

    Raises:
      UserError: a record or an experiment that cannot be used, or the page cannot be written.
    """
    text = render(root)
    try:
        write_atomically(page, text)
    except OSError as error:
        raise RunError(f"{str(page)!r} cannot be written: {error.strerror or error}.") from None


def render(root: Path) -> str:
    """The ledger as Markdown, with links as seen from docs/.

    Raises:
      UserError: a record or an experiment that cannot be used.
    """
    book = _Book(root, read_records(root))
    parts = [HEAD, *_table_2(book), *_table_3(book), *_table_4(book), *_published(book), *_others(book)]
    return "\n".join(parts).rstrip() + "\n"


HEAD = """\
# What has been run

Every number of the paper's Tables 2, 3 and 4 with the command that makes it here, the hardware and time it took there,
the paper's figure, and ours or “not run”; “–” where it is another's model, which the paper cites. This page is made by

    python launch.py report --ledger docs/reproduction.md

from the reports in [results/](../results), where `report RUN --record results/NAME` puts them; a test fails when it is
not current. A figure of ours is a run's: the link leads to its report, the digits are its config hash. With several
seeds it is the mean ± the standard deviation, and the range. More about measuring:
[measurements](measurements.md).
"""

CITED = "–"


class _Book:
    """The records, of which some are asked for by the tables; the rest are other runs."""

    def __init__(self, root: Path, records: Sequence[Record]):
        self.root, self.records = root, records
        self.used: set[Path] = set()

    def has(self, file: str) -> bool:
        return (self.root / file).is_file()

    def experiment(self, file: str) -> Experiment | None:
        return load_experiment(self.root / file) if self.has(file) else None

    def ours(self, wanted: Experiment | None, number: Number, shown: str) -> str:
        """A cell: `number` of the reports of `wanted`'s runs, each in the format `shown`."""
        found = [
            (record, value)
            for record in self.records
            if wanted is not None and _is_run_of(record, wanted) and (value := number(record.report)) is not None
        ]
        if not found:
            return NOT_RUN
        self.used |= {record.folder for record, _ in found}
        # A seed counts once, however often it is in results/.
        values = list({record.experiment.training.seed: value for record, value in reversed(found)}.values())
        text = _as_printed(statistics.mean(values), shown)
        if len(values) > 1:
            least, most = (_as_printed(value, shown) for value in (min(values), max(values)))
            text += f" ± {_as_printed(statistics.stdev(values), shown)} ({len(values)} seeds, {least} to {most})"
        return f"{text} {', '.join(_link(record) for record, _ in found)}"


def _is_run_of(record: Record, wanted: Experiment) -> bool:
    """Whether a run trained and searched as `wanted` says, to the end; its seed may be another."""
    report, training = record.report, wanted.training
    same = _replace_seed(record.experiment, training.seed)
    return (
        trajectory.config_hash(same) == trajectory.config_hash(wanted)
        and record.experiment.decoding == wanted.decoding
        and (report["steps"] >= training.num_steps or training.patience is not None)
        and len(report["averaged_steps"]) <= training.average_last == record.experiment.training.average_last
    )


def _replace_seed(experiment: Experiment, seed: int) -> Experiment:
    """The same experiment from another seed."""
    return dataclasses.replace(experiment, training=dataclasses.replace(experiment.training, seed=seed))


Number = Callable[[Mapping[str, Any]], float | None]


def _told(split: str, number: Number) -> Number:
    """The number of a report that has the scores of `split`, which the table is about."""
    return lambda report: number(report) if split in report["splits"] else None


def _score(split: str, protocol: str | None = None) -> Number:
    """Picks a split's BLEU by a protocol, or its perplexity, out of a report."""

    def pick(report: Mapping[str, Any]) -> float | None:
        scores = report["splits"][split]
        found: float | None = scores.get("bleu", {}).get(protocol) if protocol else scores["perplexity"]
        return found

    return _told(split, pick)


def _table_2(book: _Book) -> Iterator[str]:
    yield "## Table 2: newstest2014, BLEU and training cost\n"
    yield (
        "BLEU by the paper's protocol, tokenised and with compounds split: [which BLEU to compare with\n"
        "which](bleu.md). The paper's FLOPs are time × devices × the sustained rate of one; ours likewise, with the\n"
        "rate that the device's data sheet has for the run's number format.\n"
    )
    lines = []
    for place, pair in enumerate(PAIRS):
        for name, row in TABLE_2.items():
            if row.bleu[place]:
                spent, scored = CITED, CITED
                command = hardware = ""
                if (file := row.experiment(pair)) is not None:
                    wanted = book.experiment(file)
                    scored = book.ours(wanted, _score("test", PAPER), ".2f")
                    spent = book.ours(wanted, _told("test", lambda report: report.get("training_peak_flops")), ".1e")
                    command, hardware = _command("train", file), f"{HARDWARE}, {row.time}"
                lines.append((name, pair, row.bleu[place], scored, row.flops[place], spent, command, hardware))
    yield _table(
        ("model", "pair", "BLEU, paper", "ours", "FLOPs, paper", "ours", "command", "hardware and time there"), lines
    )


def _table_3(book: _Book) -> Iterator[str]:
    yield "## Table 3: variations of base, newstest2013\n"
    yield (
        f"All rows: {_command('sweep', TABLE_3_FILE)}. Perplexity per word-piece; beam search with the last\n"
        f"checkpoint, BLEU by the paper's protocol. The paper used {HARDWARE} and tells the time of base, 12 h, and\n"
        "of big, 3.5 days. Parameters follow from the settings: the same command with `--dry-run` counts them.\n"
    )
    rows = load_sweep(book.root / TABLE_3_FILE) if book.has(TABLE_3_FILE) else {}
    lines = []
    for name, row in TABLE_3.items():
        wanted = rows.get(name)
        lines.append(
            (
                name,
                f"{row.perplexity:.2f}",
                book.ours(wanted, _score("validation"), ".2f"),
                f"{row.bleu:.1f}",
                book.ours(wanted, _score("validation", PAPER), ".2f"),
                f"{row.millions or ''}",
                book.ours(wanted, _told("validation", lambda report: report["parameters"] / 1e6), ".1f"),
            )
        )
    yield _table(("row", "perplexity, paper", "ours", "BLEU, paper", "ours", "parameters (M), paper", "ours"), lines)


def _table_4(book: _Book) -> Iterator[str]:
    yield "## Table 4: constituency parsing, WSJ section 23\n"
    yield f"The paper tells neither hardware nor time of these; base took {HARDWARE} 12 h.\n"
    lines = []
    for name, row in TABLE_4.items():
        if row.experiment is None:
            ours, command = CITED, ""
        else:
            wanted = book.experiment(row.experiment)
            ours = book.ours(wanted, _told("test", lambda report: report["splits"]["test"].get("f1")), ".2f")
            command = _command("train", row.experiment) if wanted is not None else "none yet"
        lines.append((name, row.training, f"{row.f1:.1f}", ours, command))
    yield _table(("parser", "training", "F1, paper", "F1, ours", "command"), lines)


def _published(book: _Book) -> Iterator[str]:
    lines = []
    for number in PUBLISHED:
        wanted = book.experiment(number.experiment)
        if wanted is not None:
            ours = book.ours(wanted, _score("test", number.protocol), ".2f")
            command = _command("train", number.experiment, number.arguments)
            lines.append((number.what, f"{number.bleu:.2f}", ours, command, number.hardware))
    if lines:
        yield "## Numbers that others published\n"
        yield _table(("what", "published", "ours", "command", "hardware and time here"), lines)


def _others(book: _Book) -> Iterator[str]:
    """Runs that stand for none of the numbers above, by the folder in results/."""
    groups: dict[Path, list[Record]] = {}
    for record in book.records:
        if record.folder not in book.used:
            top = Path(*record.folder.parts[:2])
            groups.setdefault(top, []).append(record)
    if not groups:
        return
    yield "## Other runs\n"
    yield (
        "Perplexity is per target token of the run's own vocabulary; time is that spent in training steps, without\n"
        "compiling, validating and scoring. In brackets is the protocol of BLEU.\n"
    )
    lines, notes = [], []
    for top, records in groups.items():
        sweep = (book.root / top / "table.md").is_file()
        note = f"- [{top.name}](../{top}): `{records[0].report['command']}`"
        notes.append(note + (f"; [its table](../{top}/table.md)" if sweep else ""))
        seeds = collections.Counter(record.report["name"] for record in records)
        for record in records:
            name = top.name if not sweep else f"{top.name}, {record.report['name']}"
            if seeds[record.report["name"]] > 1:
                name += f", seed {record.experiment.training.seed}"
            lines.append((name, *_other_cells(record)))
    columns = ("run", "split", "score", "perplexity", "parameters", "steps", "time", "machine", "date", "config hash")
    yield _table(columns, lines)
    yield "\n".join(notes) + "\n"


def _other_cells(record: Record) -> tuple[str, ...]:
    report = record.report
    minutes, measure = report["training_seconds"] / 60, measure_of(record.experiment)
    return (
        report["split"],
        f"{measure.title} {report[measure.key]:.2f}",
        f"{report['perplexity']:.2f}",
        f"{report['parameters']:,}",
        f"{report['steps']:,}",
        f"{minutes / 60:.1f} h" if minutes >= 120 else f"{minutes:.1f} min",
        report["machine"],
        report["date"],
        _link(record),
    )


def _as_printed(value: float, shown: str) -> str:
    """A number in the format `shown`, with powers of ten as the paper's table has them here: 1.0e7, not 1.0e+07."""
    return re.sub(r"e\+?(-?)0*(\d)", r"e\1\2", format(value, shown))


def _link(record: Record) -> str:
    return f"[`{record.report['config_hash']}`](../{record.folder.as_posix()}/{run_directory.REPORT})"


def _command(*words: str) -> str:
    return f"`python launch.py {' '.join(words)}`"


def _table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [columns, ["---"] * len(columns), *([cell.replace("|", r"\|") for cell in line] for line in lines)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _read(path: Path) -> dict[str, Any]:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(report, dict):
            raise ValueError("no JSON object")
        return report
    except FileNotFoundError:
        raise RunError(f"{str(path.parent)!r} has no {path.name}; `evaluate` writes it.") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{str(path)!r} cannot be used: {error}.") from None


def without_places(command: str) -> str:
    """A command line with DIR for the folders of one machine."""
    return shlex.join(re.sub(r"^(--[^=]*=)?[/~].*", r"\1DIR", word) for word in shlex.split(command))
