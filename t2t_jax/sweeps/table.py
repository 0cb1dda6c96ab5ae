"""The numbers of a sweep's report: every row's scores over its seeds, what it cost, and how it stands to base."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from t2t_jax import run_directory
from t2t_jax.data.tokenizer import FILES
from t2t_jax.errors import UserError
from t2t_jax.evaluation.bleu import Protocol
from t2t_jax.evaluation.comparison import Comparison, compare, holm
from t2t_jax.evaluation.measures import Measure, measure_of
from t2t_jax.evaluation.scored_text import read_contest
from t2t_jax.sweeps import paper_numbers, rows
from t2t_jax.sweeps.paper_numbers import Facts, Table3Row
from t2t_jax.sweeps.rows import Row, State, Sweep
from t2t_jax.training import metrics
from t2t_jax.training.metrics import Entry

Report = Mapping[str, Any]
Figure = Callable[[Report], float | None]


@dataclass(frozen=True)
class Spread:
    """A figure over the seeds of a row."""

    mean: float
    deviation: float | None
    """Standard deviation of a seed; None with fewer than two."""
    count: int


@dataclass(frozen=True)
class Run:
    """One seed of a row."""

    row: Row
    state: State
    report: Report | None
    log: Sequence[Entry]

    @property
    def tokens_per_second(self) -> float | None:
        """Real target tokens over the time in training steps."""
        seconds = sum(entry.get("seconds", 0) for entry in self.log)
        return sum(entry.get("target_tokens", 0) for entry in self.log) / seconds if seconds else None


@dataclass(frozen=True)
class Result:
    """One row with all its seeds."""

    name: str
    runs: Sequence[Run]
    versus: Comparison | str | None
    """Base against this row by BLEU; why there can be none; None for base, other measures and what is not done."""
    compared_seed: int | None
    comparable: bool
    """Whether perplexities are of the same tokens as those of base."""

    @property
    def reports(self) -> list[Report]:
        """Of the seeds that are done."""
        return [run.report for run in self.runs if run.report is not None]

    @property
    def facts(self) -> Facts:
        """What Table 3 would say of the row."""
        return paper_numbers.facts(self.runs[0].row.experiment)

    @property
    def paper(self) -> Table3Row | None:
        """The paper's row, if it trains this."""
        name = paper_numbers.row_of(self.runs[0].row.experiment)
        return None if name is None else paper_numbers.TABLE_3[name]

    @property
    def status(self) -> str:
        """How far the row is, in words; failures with their reason."""
        done = sum(run.state.kind == "done" for run in self.runs)
        if done == len(self.runs):
            return "done"
        if len(self.runs) == 1:
            return _in_words(self.runs[0].state)
        others: dict[str, list[str]] = {}
        for run in self.runs:
            if run.state.kind != "done":
                others.setdefault(_in_words(run.state), []).append(str(run.row.seed))
        told = [f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)} {words}" for words, seeds in others.items()]
        return f"{done} of {len(self.runs)} seeds done; {'; '.join(told)}"

    @property
    def kinds(self) -> str:
        """How far the seeds are that are not done, in a word or two."""
        return " and ".join(dict.fromkeys(run.state.kind for run in self.runs if run.state.kind != "done"))

    def spread(self, figure: Figure) -> Spread | None:
        """A figure of the reports over the seeds; None if no seed has it."""
        return spread(figure(report) for report in self.reports)


@dataclass(frozen=True)
class Table:
    """All rows, base among them."""

    sweep: Sweep
    results: Sequence[Result]
    base: Result
    """The row called base, or else the first."""

    @property
    def split(self) -> str:
        """The split whose scores stand for a row."""
        return self.base.runs[0].row.experiment.evaluation.splits[0]

    @property
    def measure(self) -> Measure:
        """The score that stands for a row."""
        return measure_of(self.base.runs[0].row.experiment)

    @property
    def adjusted(self) -> dict[str, float]:
        """By row, the randomisation's p adjusted for the number of rows that are compared to base."""
        tested = {result.name: result.versus for result in self.results if isinstance(result.versus, Comparison)}
        return dict(zip(tested, holm([one.p_randomization for one in tested.values()]), strict=True))

    @property
    def reports(self) -> list[Report]:
        """Of all rows and seeds that are done."""
        return [report for result in self.results for report in result.reports]

    @property
    def splits_and_protocols(self) -> tuple[list[str], list[str]]:
        """Of all reports, in the order in which they come."""
        splits = dict.fromkeys(split for report in self.reports for split in report["splits"])
        scores = [scores for report in self.reports for scores in report["splits"].values()]
        return list(splits), list(dict.fromkeys(protocol for one in scores for protocol in one.get("bleu", {})))

    @property
    def progress(self) -> str:
        """What is there and what is missing, in a sentence."""
        whole = [result for result in self.results if result.status == "done"]
        if len(whole) == len(self.results):
            return f"All {len(whole)} rows are done."
        missing = ", ".join(f"{result.name} ({result.kinds})" for result in self.results if result.status != "done")
        return f"Half-finished: {len(whole)} of {len(self.results)} rows are done; missing: {missing}."


def collect(sweep: Sweep) -> Table:
    """Read what the runs of a sweep have come to.

    Raises:
      RunError: a run's files are damaged.
    """
    by_name: dict[str, list[Run]] = {}
    for row in sweep.rows:
        state = rows.state(row)
        report = rows.read_report(row) if state.kind == "done" else None
        by_name.setdefault(row.name, []).append(Run(row, state, report, metrics.read(row.directory)))
    base = by_name.get("base") or next(iter(by_name.values()))
    results = []
    for name, runs in by_name.items():
        versus, seed = (None, None) if runs is base else _versus(base, runs)
        same = {t for run in (*base, *runs) if run.report is not None and (t := _tokenizer(run.row)) is not None}
        results.append(Result(name, runs, versus, seed, comparable=len(same) <= 1))
    return Table(sweep, results, next(result for result in results if result.runs is base))


def without_places(found: Table) -> Table:
    """The same without paths of the machine in the reasons for what is missing."""

    def told(reason: str | None) -> str | None:
        return reason and re.sub(r"(['\"])[~/].*?\1", "DIR", reason)

    def cleaned(result: Result) -> Result:
        runs = [replace(run, state=replace(run.state, reason=told(run.state.reason))) for run in result.runs]
        versus = told(result.versus) if isinstance(result.versus, str) else result.versus
        return replace(result, runs=runs, versus=versus)

    results = {result.name: cleaned(result) for result in found.results}
    return Table(found.sweep, list(results.values()), results[found.base.name])


def spread(values: Iterable[float | None]) -> Spread | None:
    """Mean and standard deviation of the values that there are."""
    found = [value for value in values if value is not None]
    if not found:
        return None
    return Spread(statistics.mean(found), statistics.stdev(found) if len(found) > 1 else None, len(found))


def figure(key: str) -> Figure:
    """Picks what a report has under `key`."""
    return lambda report: report.get(key)


def millions(report: Report) -> float | None:
    """Parameters in millions."""
    return float(report["parameters"]) / 1e6


def decoded_per_second(report: Report) -> float | None:
    """Target tokens over the time of translating all splits; None of reports from before that was kept."""
    seconds = report.get("decoding_seconds")
    return report["decoding_tokens"] / seconds if seconds else None


def mebibytes(report: Report) -> float | None:
    """Memory of the largest training step on one device, by the compiler's account."""
    held = report.get("training_memory_bytes")
    return held / 2**20 if held else None


def bleu(split: str, protocol: str) -> Figure:
    """Picks a split's BLEU by a protocol out of a report."""
    return lambda report: report["splits"].get(split, {}).get("bleu", {}).get(protocol)


def score(split: str, measure: Measure) -> Figure:
    """Picks a split's score out of a report."""
    return lambda report: measure.of(report["splits"].get(split, {}))


def perplexity(split: str) -> Figure:
    """Picks a split's perplexity per target token out of a report."""
    return lambda report: report["splits"].get(split, {}).get("perplexity")


def chrf(split: str) -> Figure:
    """Picks a split's chrF out of a report."""
    return lambda report: report["splits"].get(split, {}).get("chrf")


def _in_words(state: State) -> str:
    if state.kind == "failed":
        return f"failed: {state.reason}"
    return state.kind + (f" at step {state.step:,}" if state.step and state.kind != "done" else "")


def _versus(base: Sequence[Run], runs: Sequence[Run]) -> tuple[Comparison | str | None, int | None]:
    """Base against a row by the translations of the first seed that both have; seeds are matched by their order."""
    for one, other in zip(base, runs, strict=False):
        if one.report is None or other.report is None:
            continue
        experiment = one.row.experiment
        if measure_of(experiment).protocol is None:
            break
        if _languages(one.row) != _languages(other.row):
            return f"another pair of languages than {one.row.name}'s", None
        protocol = Protocol(experiment.evaluation.protocol, experiment.data.target_language)
        try:
            contest = read_contest([one.row.directory, other.row.directory], experiment.evaluation.splits[0])
            names = one.row.name, other.row.name
            return compare(names, contest.first, contest.second, contest.references, protocol), other.row.seed
        except UserError as error:
            return str(error), None
    return None, None


def _languages(row: Row) -> tuple[str, str]:
    return row.experiment.data.source_language, row.experiment.data.target_language


def _tokenizer(row: Row) -> str | None:
    """The hash of a run's tokenizer; None if its manifest does not tell."""
    try:
        files = json.loads((row.directory / run_directory.DATA).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError):
        return None
    return next((files[name] for name in FILES if name in files), None)
