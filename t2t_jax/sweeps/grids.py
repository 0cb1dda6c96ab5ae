"""The tables of a sweep's report as text: the same for its page and for Markdown."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from t2t_jax.evaluation.comparison import Comparison
from t2t_jax.sweeps import directions, table
from t2t_jax.sweeps.table import (
    Figure,
    Spread,
    Table,
    bleu,
    chrf,
    decoded_per_second,
    figure,
    mebibytes,
    millions,
    perplexity,
    score,
)

NOT_COMPARABLE = "not comparable"
DASH = "–"


@dataclass(frozen=True)
class Grid:
    """A table of text; the first column names the row."""

    title: str
    says: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    words: Sequence[int] = (0,)
    """Places of columns that are text; the others hold numbers."""


def grids(found: Table) -> list[Grid]:
    """Those that the sweep has numbers for; the scores come first and are always there."""
    return [grid for make in (_scores, _differences, _directions, _costs, _splits) if (grid := make(found)).lines]


def _scores(found: Table) -> Grid:
    split, measure = found.split, found.measure
    lines = []
    seeds = max(len(result.runs) for result in found.results)
    papers = any(result.paper for result in found.results)
    for result in found.results:
        ppl, scored = result.spread(perplexity(split)), result.spread(score(split, measure))
        line = [
            result.name,
            _spread(ppl, seeds) + ("" if result.comparable or ppl is None else f" ({NOT_COMPARABLE})"),
            _spread(scored, seeds),
            _number(result.spread(millions), ".1f"),
        ]
        if papers:
            row, in_paper = result.paper, result.spread(bleu(split, "paper"))
            line += [
                f"{row.perplexity:.2f}" if row else "",
                f"{ppl.mean - row.perplexity:+.2f}" if row and ppl else "",
                f"{row.bleu:.1f}" if row else "",
                f"{in_paper.mean - row.bleu:+.2f}" if row and in_paper else "",
            ]
        lines.append([*line, result.status])
    columns = ["row", "perplexity", measure.title, "parameters (M)"]
    if papers:
        columns += ["perplexity, paper", "difference", "BLEU, paper", "difference (paper's protocol)"]
    says = f"On the {split} split; perplexity is per target token."
    if seeds > 1:
        says += f" Mean ± standard deviation over {seeds} seeds."
    if not all(result.comparable for result in found.results):
        says += " Perplexities marked as not comparable are per token of another tokenizer than base's."
    return Grid("Scores", says, [*columns, "state"], lines, words=(0, len(columns)))


def _differences(found: Table) -> Grid:
    lines, signatures = [], set[str]()
    for result in found.results:
        versus = result.versus
        if isinstance(versus, Comparison):
            low, high = versus.difference_interval
            verdict = "by chance" if versus.better is None else ("better" if versus.better == "second" else "worse")
            values = [f"{versus.difference:+.2f}", f"{low:+.2f} … {high:+.2f}"]
            values += [f"{p:.4f}" for p in (versus.p_bootstrap, versus.p_randomization, found.adjusted[result.name])]
            lines.append([result.name, verdict, *values, str(result.compared_seed)])
            signatures |= set(versus.signatures.values())
        elif versus is not None:
            lines.append([result.name, versus, *[DASH] * 6])
    says = (
        f"{found.measure.title} of the {found.split} split less that of {found.base.name}, with 95% of paired "
        "bootstrap samples; better or worse only where both tests find p < 0.05. They ask what other sentences would "
        "do, not what another seed would. Of many rows some go so far by chance: Holm’s is the randomisation’s p "
        "adjusted for their number. One seed of each is compared."
    )
    says += f" {'; '.join(sorted(signatures))}." if signatures else ""
    columns = ["row", "verdict", "difference", "95%", "p, bootstrap, one tail", "p, randomisation", "Holm’s p", "seed"]
    return Grid(f"Beside {found.base.name}", says, columns, lines, words=(0, 1))


def _directions(found: Table) -> Grid:
    beside = directions.directions(found)
    lines = [
        [
            one.result.name,
            ", ".join(one.rows),
            one.perplexity_verdict,
            one.bleu_verdict,
            f"{one.perplexity:+.2f}",
            " ".join(f"{value:+.2f}" for value in one.perplexity_there),
            f"{one.bleu:+.2f}",
            " ".join(f"{value:+.1f}" for value in one.bleu_there),
        ]
        for one in beside
    ]
    says = (
        "Rows of Table 3 that change the same settings in the same direction, as differences to base there and here. "
        f"Up to {directions.SAME_PERPLEXITY:.1%} of base's perplexity, or {directions.SAME_BLEU} BLEU, counts as none."
    )
    for what, verdicts in (
        ("Perplexity", {one.result.name: one.perplexity_verdict for one in beside}),
        ("BLEU", {one.result.name: one.bleu_verdict for one in beside}),
    ):
        agreeing = [verdict for verdict in verdicts.values() if verdict.startswith("agrees")]
        contrary = [name for name, verdict in verdicts.items() if verdict.startswith("contrary")]
        says += f" {what} agrees in {len(agreeing)} of {len(verdicts)} rows{_uncertain(agreeing)}"
        says += f" and goes the other way in {', '.join(contrary) or 'none'}"
        says += f"{_uncertain([verdicts[name] for name in contrary])}."
    columns = ["row", "in Table 3", "perplexity", "BLEU", "perplexity here", "there", "BLEU here", "there"]
    return Grid("Does it go the paper's way?", says, columns, lines, words=range(4))


def _uncertain(verdicts: Sequence[str]) -> str:
    """How many of them chance may have made, in brackets."""
    count = sum(verdict.endswith(directions.WITHIN_CHANCE) for verdict in verdicts)
    return f" ({f'{count} of them ' if len(verdicts) > 1 else ''}within chance)" if count else ""


def _costs(found: Table) -> Grid:
    lines = []
    kept = {title: of for title, of in LATER_COSTS.items() if any(map(of, found.reports))}
    for result in found.results:
        if result.reports:
            values = [result.spread(figure(key)) for key in COSTS]
            speed = table.spread(run.tokens_per_second for run in result.runs if run.report is not None)
            lines.append(
                [
                    result.name,
                    f"{result.reports[0]['parameters']:,}",
                    f"{result.reports[0]['steps']:,}",
                    *(_number(value, ".3e") for value in values[:3]),
                    DASH if values[3] is None or not values[3].mean else f"{values[3].mean / 60:.1f}",
                    _number(speed, ",.0f"),
                    *(_number(result.spread(of), ",.0f") for of in kept.values()),
                ]
            )
    says = (
        "FLOPs of training: of the model's products, counted from the batches; of everything, by the compiler's count; "
        "and as the paper estimates them, time × devices × the rate of one on its data sheet, which is not known for "
        "processors (–). Time is that of training steps. A mean over the seeds."
    )
    if kept:
        says += (
            " Memory is what the largest training step takes of one device, by the compiler's account; decoding is the "
            "search that the scores are of, on all splits, without compiling it."
        )
    columns = ["row", "parameters", "steps", "FLOPs, counted", "by the compiler", "by the paper's method"]
    return Grid("What it took", says, [*columns, "minutes", "target tokens/s", *kept], lines)


COSTS = ("training_flops", "training_compiled_flops", "training_peak_flops", "training_seconds")
LATER_COSTS = {"memory, MiB": mebibytes, "decoding, tokens/s": decoded_per_second}  # older reports have none


def _splits(found: Table) -> Grid:
    splits, protocols = found.splits_and_protocols
    figures: dict[str, Callable[[str], Figure]] = {"perplexity": perplexity}
    if found.measure.protocol:
        figures |= {f"BLEU {name}": functools.partial(_bleu, name) for name in protocols} | {"chrF": chrf}
    else:
        figures[found.measure.title] = lambda split: score(split, found.measure)
    lines = []
    for result in found.results:
        for split in splits:
            spreads = [result.spread(of(split)) for of in figures.values()]
            if any(spreads):
                lines.append([result.name, split, *map(_spread, spreads)])
    scored = [scores for report in found.reports for scores in report["splits"].values()]
    signatures = sorted({text for scores in scored for text in scores.get("signatures", {}).values()})
    says = f"Signatures: {'; '.join(signatures)}." if signatures else ""
    return Grid("Every split and protocol", says, ["row", "split", *figures], lines, words=(0, 1))


def _bleu(protocol: str, split: str) -> Figure:
    return bleu(split, protocol)


def _spread(spread: Spread | None, seeds: int = 1) -> str:
    if spread is None:
        return DASH
    deviation = "" if spread.deviation is None else f" ± {spread.deviation:.2f}"
    fewer = f" ({spread.count} seed{'s' * (spread.count > 1)})" if spread.count < seeds else ""
    return f"{spread.mean:.2f}{deviation}{fewer}"


def _number(spread: Spread | None, shown: str) -> str:
    return DASH if spread is None else re.sub(r"e\+?(-?)0*(\d)", r"e\1\2", format(spread.mean, shown))
