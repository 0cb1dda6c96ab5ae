"""Text that is to be scored, from files or runs: read whole, and refused with the place that is at fault."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from t2t_jax import config, run_directory
from t2t_jax.data import tokenizer
from t2t_jax.data.sources import Split, read_lines
from t2t_jax.errors import DataError, RunError, UserError

SUBWORD_MARK = re.compile(r"@@( |$)")


@dataclass(frozen=True)
class Contest:
    """Translations of the same lines by two systems, and their references: as many lines each."""

    first: list[str]
    second: list[str]
    references: list[str]
    experiment: config.Experiment | None
    """Of the first that is a run."""


def read_pair(hypothesis: Path, reference: Path, joined: bool = False) -> tuple[list[str], list[str]]:
    """Hypotheses and their references.

    Args:
      hypothesis: plain or gzipped UTF-8 text, a line each; only LF and CRLF end one, and empty ones are lines too.
      reference: likewise.
      joined: take subword-nmt's `@@ ` marks out of both.

    Raises:
      DataError: a file that is missing, damaged, empty or not UTF-8, or different numbers of lines.
    """
    hypotheses, references = _read(hypothesis), _read(reference)
    _refuse_unequal(hypothesis, hypotheses, reference, references)
    if joined:
        return [SUBWORD_MARK.sub("", line) for line in hypotheses], [SUBWORD_MARK.sub("", line) for line in references]
    return hypotheses, references


def read_contest(systems: Sequence[Path], split: Split, reference: Path | None = None) -> Contest:
    """Two systems' translations of the same lines.

    Args:
      systems: two run directories or files of translations; a run stands for its translations of `split`.
      split: validation or test.
      reference: file to compare both with. Without it the references of a run serve both; those of two must be equal.

    Raises:
      UserError: no reference, a run without translations or of another task, or files that do not fit; the sentence
        names them.
    """
    if reference is not None:
        answers = {reference: _read(reference)}
    else:
        answers = {run: _run_references(run, split) for run in systems if run.is_dir()}
    if not answers:
        raise UserError("Neither of the two is a run directory, so give --reference FILE.")
    place, references = next(iter(answers.items()))
    for other, lines in answers.items():
        if lines != references:
            raise RunError(
                f"{str(place)!r} and {str(other)!r} have different {split} references, so they translated different "
                "text; give --reference FILE if it is the same."
            )
    both = []
    for system in systems:
        path = run_directory.translations(system, split) if system.is_dir() else system
        lines = _read(path)
        _refuse_unequal(path, lines, place, references)
        both.append(lines)
    experiment = next((run_directory.load_config(system) for system in systems if system.is_dir()), None)
    if experiment is not None and experiment.data.task != "translation":
        hint = "; score its trees with `brackets`" * (experiment.data.task == "parsing")
        raise RunError(f"A run of task={experiment.data.task!r} has no BLEU to compare{hint}.")
    first, second = both
    return Contest(first, second, references, experiment)


def _run_references(run: Path, split: Split) -> list[str]:
    run_directory.load_config(run)
    plain = tokenizer.load(run).plain  # as `evaluate` compares them
    return [plain(line) for line in run_directory.evaluation_text(run, split)[1]]


def _read(path: Path) -> list[str]:
    lines = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError:
            raise DataError(f"{str(path)!r}, line {number:,}: the bytes are not UTF-8.") from None
    if not lines:
        raise DataError(f"{str(path)!r} is empty, so there is nothing to score.")
    return lines


def _refuse_unequal(hypothesis: Path, hypotheses: list[str], reference: Path, references: list[str]) -> None:
    if len(hypotheses) != len(references):
        raise DataError(
            f"{str(hypothesis)!r} has {len(hypotheses):,} lines but its reference {str(reference)!r} has "
            f"{len(references):,}; line n of one must answer to line n of the other."
        )
