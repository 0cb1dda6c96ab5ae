"""BLEU and chrF by sacreBLEU, with the signature that makes a score comparable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from t2t_jax.errors import DataError


@dataclass(frozen=True)
class Score:
    """A corpus score between 0 and 100."""

    value: float
    signature: str
    """sacreBLEU's own: which tokenisation, case and smoothing, and its version."""
    details: str
    """n-gram precisions, brevity penalty and lengths, as sacreBLEU prints them."""


def bleu(hypotheses: Sequence[str], references: Sequence[str], protocol: str = "13a") -> Score:
    """Case-sensitive corpus BLEU; `protocol` is sacreBLEU's tokenisation: 13a, intl or none.

    Raises:
      DataError: the two have different numbers of lines, or none.
    """
    _check(hypotheses, references)
    # "none" promises that the text is tokenised, which is just what sacreBLEU would otherwise warn about.
    metric = BLEU(tokenize=protocol, force=protocol == "none")
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return Score(score.score, str(metric.get_signature()), str(score))


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus chrF2."""
    _check(hypotheses, references)
    metric = CHRF()
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return Score(score.score, str(metric.get_signature()), str(score))


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses):,} hypotheses cannot be scored against {len(references):,} references.")
    if not hypotheses:
        raise DataError("There is nothing to score: no lines.")
