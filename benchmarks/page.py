"""A self-contained HTML page of plots and tables about what was measured, in the look of a run's report."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jinja2
from markupsafe import Markup

from t2t_jax.evaluation import plots
from t2t_jax.machine import host

# Stand-in colours of the drawings, and the style sheet's classes for their legends.
HUES = (plots.TRAINING, plots.VALIDATION, plots.THIRD, plots.FOURTH, plots.FIFTH)
CLASSES = ("training", "validation", "third", "fourth", "fifth")


@dataclass(frozen=True)
class Curve:
    """Points over sizes; dashed is what was calculated, not measured."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    hue: int  # one of HUES
    dashed: bool = False


@dataclass(frozen=True)
class Plot:
    """Curves drawn together on logarithmic axes, and the sentence that says what one sees."""

    caption: str
    unit: str
    x_label: str
    curves: Sequence[Curve]
    says: str


@dataclass(frozen=True)
class Table:
    """Rows of text; the first column names the row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    says: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    title: str
    lead: str
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()


def render(title: str, lead: str, facts: dict[str, str], warning: str | None, sections: Sequence[Section]) -> str:
    """The page as HTML: what it shows, where and when that was measured, what to beware of, and the parts."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((Path(__file__).parent / "page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        title=title, lead=lead, facts=facts, warning=warning, sections=sections, hues=CLASSES, drawn=_drawn
    )


def circumstances() -> dict[str, str]:
    """Where and when this is measured."""
    device = jax.devices()[0]
    return {
        "Machine": host() if device.platform == "cpu" else f"{device.device_kind}; {host()}",
        "Versions": f"jax {jax.__version__}, Python {platform.python_version()}",
        "Date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
    }


def busy() -> str | None:
    """A warning if other programs are computing now."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load < cores / 2:
        return None
    return (
        f"The machine was busy when this began: about {load:.1f} programs wanted to compute on {cores} cores. Times "
        "are upper bounds, and what is fitted to them is rough; FLOPs, memory, depths and paths don't depend on it."
    )


def _drawn(plot: Plot) -> Markup:
    lines = [plots.Line(curve.x, curve.y, HUES[curve.hue], dashed=curve.dashed) for curve in plot.curves]
    description = f"{plot.caption} ({plot.unit}) by {plot.x_label}. {plot.says}"
    return Markup(plots.growth(plot.caption, description, lines, plot.x_label, 480, 300))
