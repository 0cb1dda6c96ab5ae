"""How full batches are by the number of shapes, and how full they could be at best.

    python -m benchmarks.batch_shapes --like DIR/newstest2014 [--shapes 16 32 …] [--bound STEPS] [--json]

Lengths are those of one parallel text (STEM.en and STEM.de, plain or gzipped) with a vocabulary made from it. Free and
nested shapes, tensor2tensor's buckets, fairseq's sorting and packing are counted over all pairs of the text, as if it
were a thousand times as large, so that the ends of epochs count for nothing. With `--bound`, so many steps of a
subgradient method lead to a number that no shapes can exceed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from t2t_jax import config
from t2t_jax.data import schemes, tokenizer
from t2t_jax.data.batching import choose_shapes, histogram
from t2t_jax.data.sources import TextFiles


def efficiency(counts: np.ndarray, shapes: list[tuple[int, int]]) -> float:
    """Real tokens over padded positions when each pair takes the cheapest of the shapes that holds it."""
    size = 1 + np.add.outer(*map(np.arange, counts.shape)) + 1
    return float((counts * size).sum() / (counts * cheapest(counts, shapes)).sum())


def cheapest(counts: np.ndarray, shapes: list[tuple[int, int]]) -> np.ndarray:
    """The size of the cheapest shape that holds each cell of the histogram."""
    cost = np.full(counts.shape, np.iinfo(np.int64).max)
    for source, target in shapes:
        held = cost[:source, :target]
        np.minimum(held, source + target, out=held)
    return cost


def bound(counts: np.ndarray, shapes: list[tuple[int, int]], steps: int) -> float:
    """An efficiency that no set of as many shapes as these can exceed.

    The problem is k-median. Its Lagrangian gives every pair a price u to be served; then the k rectangles that save
    most at these prices can be told one by one, and prices minus savings is never more than the true least cost. The
    subgradient method raises prices of pairs that nobody serves and lowers those of pairs that several serve.
    """
    size = 1 + np.add.outer(*map(np.arange, counts.shape)) + 1
    prices = cheapest(counts, shapes).astype(float)
    upper, best, best_prices, step, waited = float((counts * prices).sum()), -np.inf, prices, 1.0, 0
    some = counts > 0
    for _ in range(steps):
        savings = np.zeros(counts.shape)
        for cost in range(2, min(int(prices.max()), sum(counts.shape)) + 1):
            source = np.arange(max(1, cost - counts.shape[1]), min(counts.shape[0], cost - 1) + 1)
            sums = (counts * np.maximum(prices - cost, 0)).cumsum(axis=0).cumsum(axis=1)
            savings[source - 1, cost - source - 1] = sums[source - 1, cost - source - 1]
        taken = np.argpartition(-savings.ravel(), len(shapes))[: len(shapes)]
        lower = float((counts * prices).sum() - savings.ravel()[taken].sum())
        if lower > best:
            best, best_prices, waited = lower, prices, 0
        elif (waited := waited + 1) > steps // 50:
            prices, step, waited = best_prices, 0.7 * step, 0
            continue
        served = np.zeros(counts.shape)
        for source, target in zip(*np.unravel_index(taken, counts.shape), strict=True):
            held = np.s_[: source + 1, : target + 1]
            served[held] += size[source, target] < prices[held]
        direction = np.where(some, 1 - served, 0)
        length = float((counts * direction**2).sum())
        if not length:
            break
        prices = prices + step * (upper - lower) / length * direction
    return float((counts * size).sum() / best)


def measure(stem: Path, languages: tuple[str, str], size: int, numbers: list[int], steps: int) -> dict[str, Any]:
    """The curve, and the schemes that have no such number."""
    texts = TextFiles(stem.parent, {"train": stem.name}, *languages)  # type: ignore[dict-item]
    sides = [list(side) for side in zip(*texts.pairs("train"), strict=True)]
    data = config.Data(vocabulary_size=size)
    made = tokenizer.train(data, (line for side in sides for line in side))
    source, target = (np.array([len(ids) + 1 for ids in made.encode(side)]) for side in sides)
    counts, budget = histogram(source, target), data.source_tokens_per_batch
    curve = []
    for number in numbers:
        row: dict[str, Any] = {"shapes": number}
        for kind in ("nested", "free"):
            chosen = [s[:2] for s in choose_shapes(source, target, budget, budget, number, kind)]
            row[kind] = efficiency(counts, chosen)
        if steps:
            row["bound"] = bound(counts, chosen, steps)
        curve.append(row)
    others = [
        schemes.geometric_buckets(counts),
        schemes.sorted_by_length(1000 * counts, budget),
        schemes.packed(source, target, data.max_length),
    ]
    return {"pairs": len(source), "vocabulary": size, "curve": curve, "others": schemes.as_json(others)}


def table(found: dict[str, Any]) -> str:
    """The same for people."""
    lines = [f"{found['pairs']:,} pairs, vocabulary of {found['vocabulary']:,}", ""]
    columns = [name for name in ("nested", "free", "bound") if name in found["curve"][0]]
    lines.append(f"{'shapes':>6}" + "".join(f"{name:>9}" for name in columns))
    lines += [f"{r['shapes']:>6}" + "".join(f"{100 * r[name]:>8.2f}%" for name in columns) for r in found["curve"]]
    lines += ["", *(f"{o['name']:32}{o['shapes']:>5}{100 * o['efficiency']:>8.2f}%" for o in found["others"])]
    return "\n".join(lines)


def main() -> None:
    """Run the script; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--like", type=Path, required=True, metavar="STEM")
    parser.add_argument("--source-language", default=config.Data.source_language)
    parser.add_argument("--target-language", default=config.Data.target_language)
    parser.add_argument("--vocabulary", type=int, default=16_000)
    parser.add_argument("--shapes", type=int, nargs="+", default=[8, 16, 24, 32, 48, 64, 96])
    parser.add_argument("--bound", type=int, default=0, metavar="STEPS")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    o = parser.parse_args()
    found = measure(o.like, (o.source_language, o.target_language), o.vocabulary, o.shapes, o.bound)
    print(json.dumps(found, indent=2) if o.json else table(found))


if __name__ == "__main__":
    main()
