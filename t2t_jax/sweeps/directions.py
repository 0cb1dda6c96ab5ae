"""What the rows of a sweep vary, and whether that does what it does in the paper's Table 3."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from t2t_jax.evaluation.comparison import Comparison
from t2t_jax.sweeps import paper_numbers
from t2t_jax.sweeps.paper_numbers import Facts
from t2t_jax.sweeps.table import Result, Table, bleu, perplexity

FACTORS = {
    "heads": {"num_heads"},
    "d_k": {"d_k"},
    "layers": {"num_layers"},
    "d_model": {"d_model"},
    "d_ff": {"d_ff"},
    "dropout": {"dropout"},
    "label smoothing": {"label_smoothing"},
    "positions": {"positions"},
}
"""What a row may vary, and the columns of Table 3 that say it; the widths of heads may follow."""


# What may follow one of these: dropout elsewhere, and the size of a table of positions.
FOLLOWING = {"attention_dropout", "relu_dropout", "max_positions"}


def beyond(result: Result, base: Result) -> bool:
    """Whether a row's model is not base's in something that Table 3 has no column for."""
    ours, theirs = (dataclasses.asdict(one.runs[0].row.experiment.model) for one in (result, base))
    return any(ours[name] != theirs[name] for name in ours.keys() - result.facts.keys() - FOLLOWING)


def factor(result: Result, base: Result) -> str | None:
    """What a row varies in base; None for base, and for a row that varies several things or none of these."""
    if beyond(result, base):
        return None
    changed = {name for name, value in result.facts.items() if value != base.facts[name]}
    widths = {"d_k", "d_v"}
    return next((name for name, own in FACTORS.items() if changed in (own, own | widths)), None)


def direction(ours: Facts, base: Facts) -> dict[str, float | str]:
    """Each column of Table 3 in which a row differs from base: up (1), down (-1), or to what."""
    return {
        name: value if isinstance(value, str) else math.copysign(1, float(value) - float(base[name]))
        for name, value in ours.items()
        if value != base[name]
    }


SAME_PERPLEXITY, SAME_BLEU = 0.005, 0.1
"""Differences to base that count as none: of perplexity as a share of base's, of BLEU in points."""


WITHIN_CHANCE = ", within chance"


@dataclass(frozen=True)
class Direction:
    """A row beside the rows of Table 3 that change the same things in the same direction, as differences to base."""

    result: Result
    rows: Sequence[str]
    perplexity: float
    perplexity_there: Sequence[float]
    perplexity_verdict: str
    bleu: float
    bleu_there: Sequence[float]
    bleu_verdict: str


def directions(table: Table) -> list[Direction]:
    """Every done row of the sweep that has its like in Table 3, but base."""
    split, protocol = table.split, table.measure.protocol
    if protocol is None:
        return []
    base = table.base
    home = paper_numbers.TABLE_3["base"]
    figures = perplexity(split), bleu(split, protocol)
    own = [base.spread(figure) for figure in figures]
    found = []
    for result in table.results:
        changes = direction(result.facts, base.facts)
        alike = {
            name: row
            for name, row in paper_numbers.TABLE_3.items()
            if changes and direction(row.facts, home.facts) == changes
        }
        here = [result.spread(figure) for figure in figures]
        if not alike or beyond(result, base) or not result.comparable or None in here or None in own:
            continue
        delta_ppl, delta_bleu = (h.mean - b.mean for h, b in zip(here, own, strict=True))  # type: ignore[union-attr]
        if isinstance(result.versus, Comparison) and len(result.runs) == 1:  # reports have it rounded
            delta_bleu = result.versus.difference
        there_ppl = [row.perplexity - home.perplexity for row in alike.values()]
        there_bleu = [row.bleu - home.bleu for row in alike.values()]
        least = SAME_PERPLEXITY * own[0].mean  # type: ignore[union-attr]
        found.append(
            Direction(
                result,
                list(alike),
                delta_ppl,
                there_ppl,
                _verdict(_sign(delta_ppl, least), {_sign(d, SAME_PERPLEXITY * home.perplexity) for d in there_ppl}),
                delta_bleu,
                there_bleu,
                _verdict(_sign(delta_bleu, SAME_BLEU), {_sign(d, SAME_BLEU) for d in there_bleu})
                + ("" if _is_certain(result) else WITHIN_CHANCE),
            )
        )
    return found


def _is_certain(result: Result) -> bool:
    return isinstance(result.versus, Comparison) and result.versus.better is not None


def _sign(difference: float, least: float) -> int:
    return 0 if abs(difference) <= least + 1e-9 else (1 if difference > 0 else -1)


def _verdict(here: int, there: set[int]) -> str:
    if len(there) > 1:
        return "the paper's rows differ among themselves"
    (theirs,) = there
    if here == theirs:
        return "agrees"
    if here == -theirs:
        return "contrary"
    return "no difference here" if here == 0 else "no difference in the paper"
