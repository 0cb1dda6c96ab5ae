"""The pictures of a sweep: learning curves, what each varied setting does to quality, differences to base.

Each is drawn twice: for the page in stand-in colours that its style sheet decides, and as a PNG for slides. A varied
setting has the same colour in all of them.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_jax.evaluation import plots
from t2t_jax.evaluation.comparison import Comparison
from t2t_jax.files import write_atomically
from t2t_jax.sweeps.directions import FACTORS, factor
from t2t_jax.sweeps.palette import AS_IS, HUES, LIGHT, Palette, hue
from t2t_jax.sweeps.table import Result, Table, perplexity, score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PNG_DENSITY = 2.0  # pixels of a PNG for one of the page
LINE = 17  # pixels from one label to the next
ABOVE = (0, "center"), (7, "bottom")  # where the number of a point goes: across, and up or down
LONGEST_NAME = 24  # of a row, in characters


@dataclass(frozen=True)
class Picture:
    """A drawing of so many pixels that can be had for a page and for a slide."""

    name: str
    """Of its file."""
    caption: str
    unit: str
    description: str
    """What a reader who cannot see it should know."""
    width: int
    height: int
    draw: Callable[[Figure, Palette], None]

    def svg(self) -> str:
        """An <svg> element in the page's colours."""
        with plots.blank(self.width, self.height) as figure:
            self.draw(figure, AS_IS)
            return plots.inline(figure, self.name, self.description)

    def save(self, folder: Path) -> None:
        """Write FOLDER/NAME.png."""
        drawn = io.BytesIO()
        with plots.blank(self.width, self.height) as figure:
            self.draw(figure, LIGHT)
            figure.savefig(drawn, format="png", dpi=72 * PNG_DENSITY, facecolor="white", metadata={"Software": ""})
        write_atomically(folder / f"{self.name}.png", drawn.getvalue())


def pictures(table: Table) -> list[Picture]:
    """Those that the sweep has numbers for."""
    return [*_curves(table), *_forest(table), *(p for name in FACTORS for p in _quality(table, name))]


def _shown(name: str) -> str:
    return plots.label(name, LONGEST_NAME)


def _curves(table: Table) -> list[Picture]:
    """Validation loss by step, every seed a line, every row a label at its end."""
    curves: list[tuple[Result, list[list[tuple[float, float]]]]] = []
    for result in table.results:
        points = [
            [(float(e["step"]), float(e["validation_loss"])) for e in run.log if "validation_loss" in e]
            for run in result.runs
        ]
        if result.comparable and any(points):
            curves.append((result, [line for line in points if line]))
    if not curves:
        return []
    names = [_shown(result.name) for result, _ in curves]
    room = max(map(plots.text_width, names)) + 34
    height = max(340, LINE * len(names) + 90)

    def draw(figure: Figure, palette: Palette) -> None:
        ink = palette[plots.INK]
        axes = figure.add_axes((58 / 760, 44 / height, (760 - 58 - room) / 760, (height - 60) / height))
        last = [[line[-1][1] for line in lines] for _, lines in curves]
        values = [y for _, lines in curves for line in lines for _, y in line]
        # What happens at the end is what differs; the way down from the beginning is the same for all.
        low, high = min(values), max(map(max, last))
        top = min(max(values), high + max(2.5 * (high - low), 0.1 * abs(high)))
        margin = 0.04 * (top - low) or 0.1
        axes.set_ylim(low - margin, top + margin)
        axes.set_xlim(0, max(x for _, lines in curves for line in lines for x, _ in line))
        _frame(axes, palette)
        axes.set_xlabel("step", loc="right", color=ink)
        # In pixels from the bottom, so that labels can be kept apart.
        scale = (height - 60) / (top - low + 2 * margin)
        wanted = [(min(sum(ys) / len(ys), top) - low + margin) * scale for ys in last]
        places = spaced(wanted, LINE, height - 60)
        for (result, lines), name, at, place in zip(curves, names, wanted, places, strict=True):
            colour = palette[hue(result, table.base)]
            base = result is table.base
            for line in lines:
                x, y = zip(*line, strict=True)
                few = len(x) <= 12
                axes.plot(x, y, color=colour, linewidth=2.6 if base else 1.5, marker="o" if few else "", markersize=3)
            x_end = axes.get_xlim()[1]
            look: dict[str, Any] = {"color": colour, "annotation_clip": False, "parse_math": False}
            axes.annotate(
                name,
                xy=(x_end, low - margin + at / scale),
                xytext=(22, place - at),
                textcoords="offset points",
                va="center",
                fontweight="bold" if base else "normal",
                arrowprops={
                    **{"arrowstyle": "-", "color": colour, "linewidth": 0.7, "alpha": 0.6},
                    **{"relpos": (0, 0.5), "shrinkA": 2, "shrinkB": 3},
                },
                **look,
            )

    last_words = ", ".join(f"{result.name} {lines[0][-1][1]:.3f}" for result, lines in curves)
    return [
        Picture(
            "curves",
            "Learning curves",
            "validation loss, nats per target token",
            f"Validation loss by step, for each row. Last values: {last_words}.",
            760,
            height,
            draw,
        )
    ]


def _forest(table: Table) -> list[Picture]:
    """Differences of BLEU to base with their intervals."""
    found = [(result, result.versus) for result in table.results if isinstance(result.versus, Comparison)]
    if not found:
        return []
    names = [_shown(result.name) for result, _ in found]
    left, right = max(map(plots.text_width, names)) + 22, 150
    height = 26 * len(found) + 62

    def draw(figure: Figure, palette: Palette) -> None:
        ink = palette[plots.INK]
        axes = figure.add_axes((left / 760, 42 / height, (760 - left - right) / 760, (height - 54) / height))
        _frame(axes, palette)
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", color=palette[plots.RULE], linewidth=0.8)
        axes.axvline(0, color=ink, linewidth=1.4)
        for place, (result, versus) in enumerate(found):
            colour, (low, high) = palette[hue(result, table.base)], versus.difference_interval
            axes.plot([low, high], [place, place], color=colour, linewidth=2.2, solid_capstyle="butt")
            filled = versus.better is not None
            axes.plot(
                [versus.difference], [place], "o", markersize=7.5, color=colour, markeredgewidth=1.8,
                markerfacecolor=colour if filled else palette[plots.RULE],
            )  # fmt: skip
            said = f"{versus.difference:+.2f}  [{low:+.2f}, {high:+.2f}]".replace("-", "−")
            axes.annotate(
                said, (1, place), (12, 0), color=ink, va="center",
                xycoords=("axes fraction", "data"), textcoords="offset points", annotation_clip=False,
            )  # fmt: skip
        axes.set_yticks(range(len(names)), names, parse_math=False)
        axes.set_ylim(len(found) - 0.4, -0.6)
        reach = 1.08 * max(abs(end) for _, versus in found for end in (*versus.difference_interval, 0.2))
        ends = [end for _, versus in found for end in (*versus.difference_interval, 0.0)]
        axes.set_xlim(min(ends) - 0.06 * reach, max(ends) + 0.06 * reach)
        axes.set_xlabel(
            f"{table.measure.title} more than {_shown(table.base.name)}", loc="right", color=ink, parse_math=False
        )

    said = ", ".join(f"{result.name} {versus.difference:+.2f}" for result, versus in found)
    return [
        Picture(
            "differences",
            f"BLEU beside {table.base.name}",
            f"{table.split} split, 95% of bootstrap samples; filled where both tests find p < 0.05",
            f"Difference of BLEU to {table.base.name}: {said}.",
            760,
            height,
            draw,
        )
    ]


def _quality(table: Table, name: str) -> list[Picture]:
    """Score and perplexity against one varied setting, base among the points."""
    (column,) = FACTORS[name]
    split, measure = table.split, table.measure
    rows = [result for result in table.results if result is table.base or factor(result, table.base) == name]
    points = [(result, result.facts[column]) for result in rows if result.spread(score(split, measure))]
    if len(points) < 2 or not any(result is table.base for result, _ in points):
        return []
    base = table.base.facts[column]
    points.sort(key=lambda point: (point[1] != base, point[1]) if isinstance(base, str) else point[1])
    colour_of = HUES[name]

    def panel(axes: Axes, palette: Palette, figure_of: Any, title: str, chosen: Sequence[tuple[Result, Any]]) -> None:
        colour, ink = palette[colour_of], palette[plots.INK]
        found = [(result, value, spread) for result, value in chosen if (spread := result.spread(figure_of))]
        places = range(len(found))
        means = [spread.mean for *_, spread in found]
        ordered = not isinstance(base, str)  # kinds have nothing between them that a line could stand for
        if ordered:
            axes.plot(places, means, color=colour, linewidth=1.6, zorder=1)
        for place, (result, _, spread) in zip(places, found, strict=True):
            if spread.deviation is not None:
                axes.errorbar([place], [spread.mean], [spread.deviation], color=colour, capsize=4, linewidth=1.4)
            fill = palette[plots.INK] if result is table.base else colour
            axes.plot([place], [spread.mean], "o", color=fill, markersize=8, zorder=3)
            (x, ha), (y, va) = beside(means, place) if ordered else ABOVE
            axes.annotate(
                f"{spread.mean:.2f}", (place, spread.mean), (x, y), textcoords="offset points", ha=ha, va=va,
                color=ink, fontweight="bold" if result is table.base else "normal",
            )  # fmt: skip
        _frame(axes, palette)
        axes.set_xticks(list(places), [plots.tick(v) if not isinstance(v, str) else v for _, v, _ in found])
        axes.set_xlim(-0.6, len(found) - 0.4)
        ends = [spread.mean + sign * (spread.deviation or 0) for *_, spread in found for sign in (-1, 1)]
        low, high = min(ends), max(ends)
        reach = max(high - low, 0.02 * abs(high), 0.1)
        axes.set_ylim(low - 0.45 * reach, high + 0.45 * reach)
        axes.set_title(title, loc="left", color=ink, fontsize=plots.FONT_SIZE)

    def draw(figure: Figure, palette: Palette) -> None:
        left, right = figure.subplots(1, 2)
        panel(left, palette, score(split, measure), f"{measure.title}, {split}", points)
        same = [(result, value) for result, value in points if result.comparable]
        panel(right, palette, perplexity(split), f"perplexity, {split}", same)
        for axes in (left, right):
            axes.set_xlabel(name, loc="right", color=palette[plots.INK])
        figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.04)

    said = ", ".join(
        f"{value}: {spread.mean:.2f}" for result, value in points if (spread := result.spread(score(split, measure)))
    )
    return [
        Picture(
            name.replace(" ", "-"),
            name if "_" in name else name.capitalize(),
            f"{table.base.name} in bold" + ("; bars: standard deviation over seeds" if _seeds(table) > 1 else ""),
            f"{measure.name} and perplexity on the {split} split by {name}. {measure.name} at {said}.",
            560,
            250,
            draw,
        )
    ]


def beside(means: Sequence[float], place: int) -> tuple[tuple[int, str], tuple[int, str]]:
    """Where the number of a point goes so that it lies neither on the line nor on the axis: across, and up or down."""
    above, below = (7, "bottom"), (-9, "top")
    before, after = (
        means[other] > means[place] if 0 <= other < len(means) else None for other in (place - 1, place + 1)
    )
    if before == after:
        return (0, "center"), below if before else above
    if before is None:  # the numbers of ends point inwards
        return (6, "left"), below if after else above
    if after is None:
        return (-6, "right"), below if before else above
    return ((6, "left") if before else (-6, "right")), above


def _seeds(table: Table) -> int:
    return max(len(result.reports) for result in table.results)


def _frame(axes: Axes, palette: Palette) -> None:
    plots.plain_axes(axes, palette[plots.INK], palette[plots.RULE])
    axes.margins(x=0.02)


def spaced(wanted: Sequence[float], least: float, most: float) -> list[float]:
    """The places nearest to those wanted, by the sum of squares, that are at least `least` apart, in the same order.

    They lie between 0 and `most`, which must have room for them.
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    # Taking `least` off for every label below turns "apart" into "not descending", for which blocks of labels that
    # press on each other are pooled until none does.
    blocks: list[tuple[float, int]] = []  # mean, number
    for rank, i in enumerate(order):
        mean, number = wanted[i] - rank * least, 1
        while blocks and blocks[-1][0] > mean:
            below, count = blocks.pop()
            mean, number = (below * count + mean * number) / (count + number), count + number
        blocks.append((mean, number))
    highest = most - least * (len(wanted) - 1)
    settled = [min(max(mean, 0), highest) for mean, number in blocks for _ in range(number)]
    places = [math.nan] * len(wanted)
    for rank, i in enumerate(order):
        places[i] = settled[rank] + rank * least
    return places
