"""Trees as SVG drawings: words on one line at the bottom, each constituent above the middle of its children."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, field

from t2t_jax.parsing.brackets import Bracket
from t2t_jax.parsing.trees import Tree, events

LETTER, GAP, MARGIN = 7.6, 14, 12  # pixels: of a character, between words, around the drawing
LEVEL, LINE = 34, 18  # pixels: from a constituent to the one above it, from a tag to its word
LONGEST = 40  # characters of a word or label that are shown


@dataclass
class _Node:
    """A constituent or tag with its place."""

    label: str
    start: int  # first word
    end: int = -1  # word behind the last
    height: int = 0  # levels above the tags
    x: float = 0.0
    children: list[_Node] = field(default_factory=list)


@dataclass(frozen=True)
class Style:
    """Colours, as SVG takes them."""

    ink: str
    faint: str
    marked: str
    paper: str | None


ON_WHITE = Style("#1b1d22", "#7a808b", "#c2500a", "#fff")
IN_PAGE = Style("var(--ink)", "var(--muted)", "var(--validation)", None)  # the colours of the report


def draw(tree: Tree, marked: Collection[Bracket] = (), style: Style = ON_WHITE) -> str:
    """A tree as one SVG element; `marked` constituents stand out."""
    root, nodes, words = _nodes(tree)
    edges = _columns(nodes, words)
    bottom = MARGIN + 12 + LEVEL * root.height
    faint, strong, texts = list[str](), list[str](), list[str]()

    def write(text: str, x: float, y: float, look: str) -> None:
        texts.append(f'<text x="{x:.1f}" y="{y}" {look}>{_shown(text)}</text>')

    for node in nodes:  # children come before their parents
        y = bottom - LEVEL * node.height
        if not node.children:
            node.x = (edges[node.start] + edges[node.end]) / 2
            write(node.label, node.x, y, f'fill="{style.faint}"')
            write(words[node.start], node.x, y + LINE, f'fill="{style.ink}" font-weight="600"')
            continue
        left, right = node.children[0].x, node.children[-1].x
        node.x = (left + right) / 2
        stands_out = Bracket(node.start, node.end, node.label) in marked
        write(
            node.label, node.x, y, f'fill="{style.marked}" font-weight="600"' if stands_out else f'fill="{style.ink}"'
        )
        # A bar below the label and a drop to each child: unlike slanted lines, these never cross.
        bar = f"M{node.x:.1f} {y + 4}v5M{left:.1f} {y + 9}H{right:.1f}"
        drops = (f"M{child.x:.1f} {y + 9}V{bottom - LEVEL * child.height - 13}" for child in node.children)
        (strong if stands_out else faint).append(bar + "".join(drops))
    width, height = round(edges[-1] + MARGIN), bottom + LINE + MARGIN
    paper = f'<rect width="{width}" height="{height}" fill="{style.paper}"/>' if style.paper else ""
    paths = "".join(
        f'<path d="{"".join(part)}" fill="none" stroke="{colour}"/>'
        for part, colour in ((faint, style.faint), (strong, style.marked))
        if part
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img"><title>{_shown(" ".join(words), longest=300)}</title>{paper}{paths}'
        f'<g font-family="system-ui, sans-serif" font-size="13" text-anchor="middle">{"".join(texts)}</g></svg>'
    )


def _nodes(tree: Tree) -> tuple[_Node, list[_Node], list[str]]:
    """The root, all nodes with children before parents, and the words."""
    open_, finished, words = [_Node("", 0)], list[_Node](), list[str]()
    for event in events(tree):
        if event.kind == "open":
            open_.append(_Node(event.label, len(words)))
            continue
        if event.kind == "word":
            node = _Node(event.label, len(words))
            words.append(event.word)
        else:
            node = open_.pop()
            node.height = 1 + max(child.height for child in node.children)
        node.end = len(words)
        open_[-1].children.append(node)
        finished.append(node)
    return finished[-1], finished, words


def _columns(nodes: list[_Node], words: list[str]) -> list[float]:
    """Where the column of each word begins, and where the last ends: wide enough for the words and all labels."""
    widths = [_width(word) + GAP for word in words]
    for node in nodes:
        if node.end - node.start <= 3:  # no label is wider than that many words
            missing = _width(node.label) + GAP - sum(widths[node.start : node.end])
            widths[node.end - 1] += max(0.0, missing)
    edges = [float(MARGIN)]
    for width in widths:
        edges.append(edges[-1] + width)
    return edges


def _width(text: str) -> float:
    text = text[:LONGEST]
    return LETTER * sum(1 + (unicodedata.east_asian_width(character) in "WF") for character in text)


def _shown(text: str, longest: int = LONGEST) -> str:
    """Text as XML may hold it."""
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return html.escape("".join("�" if unicodedata.category(c) in ("Cc", "Cs", "Cn", "Zl", "Zp") else c for c in text))
