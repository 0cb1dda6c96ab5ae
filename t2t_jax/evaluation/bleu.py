"""BLEU and chrF by sacreBLEU, with the signature that makes a score comparable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from t2t_jax.errors import DataError
from t2t_jax.evaluation import paper_protocol

PROTOCOLS = ("13a", "intl", "paper")
"""Those of every report. sacreBLEU's two tokenise plain text; `paper` is that of the printed scores."""
PAPER = "paper"


@dataclass(frozen=True)
class Score:
    """A corpus score between 0 and 100."""

    value: float
    signature: str
    """Which tokenisation, case and smoothing, and the versions; sacreBLEU's own but for `paper`."""
    details: str
    """n-gram precisions, brevity penalty and lengths, as sacreBLEU prints them."""


@dataclass(frozen=True)
class Protocol:
    """A way to count: what is done to the text, and by which metric of sacreBLEU it is scored then."""

    name: str
    """13a, intl, paper, or none for text that is tokenised already."""
    language: str = "de"
    """Of hypotheses and references; only `paper` asks for it."""
    straight_quotes: bool = True
    """paper: „ counts as an ordinary quote."""

    def prepared(self, lines: Sequence[str]) -> list[str]:
        """The lines as `metric` takes them."""
        if self.name == PAPER:
            return paper_protocol.tokenized(lines, self.language, self.straight_quotes)
        return list(lines)

    def metric(self) -> BLEU:
        """A new metric, which keeps the signature of the last texts it scored."""
        if self.name == PAPER:  # multi-bleu does not smooth
            return BLEU(tokenize="none", force=True, smooth_method="none")
        # "none" promises that the text is tokenised, which is just what sacreBLEU would otherwise warn about.
        return BLEU(tokenize=self.name, force=self.name == "none")

    def signature(self, scored: Any) -> str:
        """All that a score depends on, from sacreBLEU's signature of what was scored."""
        text = str(scored)
        if self.name == PAPER:
            return text.replace("tok:none", paper_protocol.signature(self.language, self.straight_quotes))
        return text


def bleu(hypotheses: Sequence[str], references: Sequence[str], protocol: Protocol | str = "13a") -> Score:
    """Case-sensitive corpus BLEU by a protocol or the name of one.

    Raises:
      DataError: the two have different numbers of lines, or none.
    """
    _check(hypotheses, references)
    protocol = Protocol(protocol) if isinstance(protocol, str) else protocol
    metric = protocol.metric()
    score = metric.corpus_score(protocol.prepared(hypotheses), [protocol.prepared(references)])
    return Score(score.score, protocol.signature(metric.get_signature()), str(score))


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
