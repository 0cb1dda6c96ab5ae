"""Colours of a sweep's rows by what they vary, the same in all pictures: on paper, and on a dark screen."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from t2t_jax.evaluation import plots
from t2t_jax.sweeps.directions import FACTORS, FOLLOWING, factor
from t2t_jax.sweeps.table import Result, Table

Palette = Mapping[str, str]

# Choices of an architecture that Table 3 has no column for, by the fields that make them.
CHOICES = {
    "normalisation": {"norm", "norm_kind", "norm_epsilon"},
    "attention": {
        *("num_kv_heads", "encoder_attention", "decoder_attention", "attention_window"),
        *("performer_features", "performer_seed", "linformer_length"),
    },
    "feed-forward network": {
        *("activation", "experts", "experts_per_token", "expert_capacity", "expert_balance"),
    },
}

# Choices have colours of their own, but for what is near to a column of Table 3.
HUES = {
    "heads": plots.TRAINING,
    "d_k": plots.VALIDATION,
    "layers": plots.THIRD,
    "d_model": plots.FOURTH,
    "d_ff": plots.FIFTH,
    "dropout": plots.SIXTH,
    "label smoothing": plots.SEVENTH,
    "positions": plots.EIGHTH,
    "attention": plots.TRAINING,
    "feed-forward network": plots.FIFTH,
    "normalisation": plots.THIRD,
    "family": plots.SIXTH,
}
OTHER = plots.HEAT  # rows that vary several things, or something else

# By stand-in: on paper, which is what PNG files get, and on a dark screen.
LIGHT = {
    plots.INK: "#1b1d22",
    plots.RULE: "#dfe0dc",
    plots.TRAINING: "#3559c7",
    plots.VALIDATION: "#c2500a",
    plots.THIRD: "#16805a",
    plots.FOURTH: "#8a4fbf",
    plots.FIFTH: "#9a7400",
    plots.SIXTH: "#c2255c",
    plots.SEVENTH: "#0b7285",
    plots.EIGHTH: "#7a5230",
    plots.HEAT: "#767c86",
}
DARK = LIGHT | {
    plots.INK: "#e7e8ea",
    plots.RULE: "#33373e",
    plots.TRAINING: "#8aa6ff",
    plots.VALIDATION: "#f5a15c",
    plots.THIRD: "#5fcf9c",
    plots.FOURTH: "#c79bf2",
    plots.FIFTH: "#e3b84a",
    plots.SIXTH: "#f583ab",
    plots.SEVENTH: "#4fc3d9",
    plots.EIGHTH: "#d0ab7f",
    plots.HEAT: "#a2a8b3",
}
AS_IS = {colour: colour for colour in LIGHT}


def kind(result: Result, base: Result) -> str | None:
    """What a row varies in base, a key of `HUES`; None for base, several things, and what has no colour."""
    if (name := factor(result, base)) is not None:
        return name
    ours, theirs = (dataclasses.asdict(one.runs[0].row.experiment.model) for one in (result, base))
    changed = {field for field, value in ours.items() if value != theirs[field]}
    if "family" in changed:
        return "family"
    found = [name for name, fields in CHOICES.items() if changed & fields]
    # An inner width follows from how many matrices there are.
    rest = changed.difference(*CHOICES.values()) - FOLLOWING - FACTORS["d_ff"]
    return found[0] if len(found) == 1 and not rest else None


def hue(result: Result, base: Result) -> str:
    """The stand-in of a row's colour."""
    if result is base:
        return plots.INK
    return HUES.get(kind(result, base) or "", OTHER)


def legend(table: Table) -> list[tuple[str, str]]:
    """What the rows of a sweep vary, each with its colour's variable in the page's style sheet."""
    kinds = dict.fromkeys(found for result in table.results if (found := kind(result, table.base)))
    return [(name, plots.CSS_COLOURS[HUES[name]]) for name in kinds]
