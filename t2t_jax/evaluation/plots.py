"""Plots for the report as inline SVG: drawn by matplotlib, set in the page's type and coloured by its style sheet.

A figure is drawn in stand-in colours, which are then replaced by CSS variables; so one drawing serves light and dark.
"""

from __future__ import annotations

import contextlib
import html
import io
import re
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, RULE, TRAINING, VALIDATION, HEAT = "#000001", "#000002", "#000003", "#000004", "#000005"
THIRD, FOURTH, FIFTH = "#000006", "#000007", "#000008"  # where more than two curves share a drawing
SIXTH, SEVENTH, EIGHTH = "#000009", "#00000a", "#00000b"
CSS_COLOURS = {
    INK: "currentColor",
    RULE: "var(--rule)",
    TRAINING: "var(--training)",
    VALIDATION: "var(--validation)",
    HEAT: "var(--heat)",
    THIRD: "var(--third)",
    FOURTH: "var(--fourth)",
    FIFTH: "var(--fifth)",
    SIXTH: "var(--sixth)",
    SEVENTH: "var(--seventh)",
    EIGHTH: "var(--eighth)",
}

FONT_SIZE = 12  # an SVG unit is a CSS pixel where the page does not scale the drawing
LEVELS = 24  # opacities of a heat map: each is one path, however many cells it has
CELL, GAP = 30, 0.06  # pixels of a labelled cell; share of a cell left free between it and the next
LONGEST_LABEL = 18


@dataclass(frozen=True)
class Line:
    """One curve: points in order of x, in one of the stand-in colours."""

    x: Sequence[float]
    y: Sequence[float]
    colour: str
    dots: bool = False
    dashed: bool = False


def curves(name: str, description: str, lines: Sequence[Line], width: int, height: int, log: bool = False) -> str:
    """Curves over steps; `log` asks for a logarithmic y-axis, granted when the values span more than a decade.

    Args:
      name: distinguishes this drawing from the others of the page.
      description: what a reader who cannot see it should know.
    """
    from matplotlib import ticker

    with blank(width, height) as figure:
        axes = figure.add_subplot()
        for line in lines:
            few = len(line.x) <= 60  # dots that touch say less than the line alone
            marker = "o" if (line.dots and few) or len(line.x) == 1 else ""
            axes.plot(line.x, line.y, color=line.colour, linewidth=1.6, marker=marker, markersize=3.6)
        plain_axes(axes)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
        axes.set_xlabel("step", loc="right", color=INK)
        values = [value for line in lines for value in line.y]
        if log and min(values) > 0 and max(values) > 10 * min(values):
            axes.set_yscale("log")
            digits = (1.0, 2.0, 5.0) if max(values) < 3000 * min(values) else (1.0,)
            axes.yaxis.set_major_locator(ticker.LogLocator(subs=digits))
            axes.yaxis.set_minor_locator(ticker.NullLocator())
        else:
            axes.yaxis.set_major_locator(ticker.MaxNLocator(5, steps=[1, 2, 5, 10]))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(ticker.FuncFormatter(tick))
        figure.set_layout_engine("constrained", w_pad=0.02, h_pad=0.02)
        return inline(figure, name, description)


def growth(name: str, description: str, lines: Sequence[Line], x_label: str, width: int, height: int) -> str:
    """Curves over positive sizes, both axes logarithmic: a power is a straight line and its exponent the slope.

    Args:
      name: distinguishes this drawing from the others of the page.
      description: what a reader who cannot see it should know.
      x_label: what the sizes are of; every size gets a tick.
    """
    from matplotlib import ticker

    with blank(width, height) as figure:
        axes = figure.add_subplot()
        for line in lines:
            style, marker = ("--", "") if line.dashed else ("-", "o")
            axes.plot(line.x, line.y, color=line.colour, linewidth=1.6, linestyle=style, marker=marker, markersize=3.6)
        plain_axes(axes)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(x_label, loc="right", color=INK)
        axes.xaxis.set_major_locator(ticker.FixedLocator(sorted({x for line in lines for x in line.x})))
        low, high = (end(value for line in lines for value in line.y) for end in (min, max))
        if high < 4 * low:
            low, high = low / 2, high * 2  # else chance would fill the drawing
            axes.set_ylim(low, high)
        digits = (1.0, 2.0, 5.0) if high < 300 * low else (1.0,)
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=digits))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_locator(ticker.NullLocator())
            axis.set_major_formatter(ticker.FuncFormatter(tick))
        figure.set_layout_engine("constrained", w_pad=0.02, h_pad=0.02)
        return inline(figure, name, description)


def labelled_heat_map(
    name: str, description: str, weights: np.ndarray, rows: Sequence[str], columns: Sequence[str]
) -> str:
    """`weights` [rows, columns] as tiles, the largest in full colour, with a label a row and a slanted one a column."""
    rows, columns = ([label(text) for text in side] for side in (rows, columns))
    left = 10 + max(map(text_width, rows))
    # Labels leave upwards at 45 degrees: as far to the right as up.
    slanted = [14 + text_width(text) * 0.71 for text in columns]
    top = max(slanted)
    right = max(CELL * (i + 0.5) + reach for i, reach in enumerate(slanted)) - CELL * len(columns)
    width, height = left + CELL * len(columns) + max(right, 4), top + CELL * len(rows) + 4
    with blank(width, height) as figure:
        axes = figure.add_axes((left / width, 4 / height, CELL * len(columns) / width, CELL * len(rows) / height))
        _tiles(axes, weights / max(float(weights.max()), 1e-9))
        # A token may hold a dollar sign, which would start a formula.
        look: dict[str, Any] = {"color": INK, "parse_math": False}
        for i, text in enumerate(rows):
            axes.text(-0.25, i + 0.5, text, ha="right", va="center", **look)
        for i, text in enumerate(columns):
            axes.text(i + 0.4, -0.2, text, rotation=45, rotation_mode="anchor", ha="left", va="baseline", **look)
        return inline(figure, name, description)


def heat_map(name: str, description: str, weights: np.ndarray) -> str:
    """`weights` [rows, columns] between 0 and 1 as tiles without labels."""
    height, width = (8 * length for length in weights.shape)
    with blank(width, height) as figure:
        _tiles(figure.add_axes((0, 0, 1, 1)), weights)
        return inline(figure, name, description)


@contextlib.contextmanager
def blank(width: float, height: float) -> Iterator[Figure]:
    """An empty figure of so many pixels, whatever the reader's own matplotlib settings are."""
    from matplotlib import style
    from matplotlib.figure import Figure

    # Text stays text, so that the page's fonts apply and it can be searched; matplotlib's own font only sets it out,
    # and what that lacks (Chinese, say) is no concern here.
    settings = {"svg.fonttype": "none", "font.size": FONT_SIZE, "font.sans-serif": ["DejaVu Sans"]}
    with style.context(["default", settings]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield Figure(figsize=(width / 72, height / 72))


def plain_axes(axes: Axes, ink: str = INK, rule: str = RULE) -> None:
    """Faint horizontal rules and a base line in place of a box."""
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(rule)
    axes.grid(axis="y", color=rule, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, pad=6, labelcolor=ink, labelsize=FONT_SIZE)
    axes.margins(x=0.015)


def _tiles(axes: Axes, weights: np.ndarray) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    tile = np.array([[GAP, GAP], [1 - GAP, GAP], [1 - GAP, 1 - GAP], [GAP, 1 - GAP], [GAP, GAP]])
    levels = np.rint(np.clip(weights, 0, 1) * LEVELS).astype(int)
    for level in range(LEVELS + 1):
        # Level 0 is a faint tile under every cell, which shows where there is a cell at all.
        places = np.argwhere(levels == level if level else levels >= 0)[:, ::-1]
        if len(places):
            colour, opacity = (HEAT, level / LEVELS) if level else (RULE, 0.4)
            paths = [Path(tile + place, closed=True) for place in places]
            axes.add_patch(PathPatch(Path.make_compound_path(*paths), facecolor=colour, alpha=opacity, linewidth=0))
    axes.set(xlim=(0, weights.shape[1]), ylim=(weights.shape[0], 0))
    axes.set_axis_off()


def tick(value: float, _: int = 0) -> str:
    """A number beside an axis."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:g}"


def label(piece: str, longest: int = LONGEST_LABEL) -> str:
    """A token as a reader should see it: spaces visible, control characters not obeyed, not too long."""
    shown = piece.replace("▁", "␣")
    shown = "".join("�" if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") else c for c in shown)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def text_width(text: str) -> float:
    """Pixels that `text` needs at most in any usual font."""
    wide = (c in "MWm@%…" or unicodedata.east_asian_width(c) in "WF" for c in text)
    return FONT_SIZE * sum(1.05 if is_wide else 0.66 for is_wide in wide)


def inline(figure: Figure, name: str, description: str) -> str:
    """The figure as an <svg> element whose identifiers are its own and whose colours are the page's."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):  # identifiers from content and salt, not from chance
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    width, height = (72 * float(inches) for inches in figure.get_size_inches())
    body = text[text.index("</metadata>") + len("</metadata>") : text.rindex("</svg>")]
    body = body[body.index("</defs>") + len("</defs>") :]  # a style for every element, of the page's too
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    body = re.sub(r"(fill|stroke): (#00000[0-9a-f])", lambda match: f"{match[1]}: {CSS_COLOURS[match[2]]}", body)
    body = re.sub(r"\n +", "\n", body)
    told = html.escape(description)
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="{told}"><title>{told}</title>{body}</svg>'
    )
