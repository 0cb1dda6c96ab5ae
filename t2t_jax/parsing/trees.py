"""Trees in Penn-bracket text: `(TOP (S (NP (DT The) (NN cat)) (VP (VBD sat))))`, read strictly and written back.

Nothing here recurses, so a tree may be as deep as it likes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from t2t_jax.errors import DataError

ROOT = "TOP"
EMPTY_ELEMENT = "-NONE-"  # the tag of what was moved or left out: no word of the sentence
COMMENT = ("#", "%", ";", "*")  # how a line between trees begins that is none
# Only ASCII white space parts tokens: U+00A0 and its like are characters of words.
TOKEN = re.compile(r"[()]|[^() \t\n\v\f\r]+")
WORD = re.compile(r"[^ \t\n\v\f\r]+")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tree:
    """A constituent with children, or a tag with the one word below it."""

    label: str
    children: tuple[Tree, ...] = ()
    word: str | None = None

    def __str__(self) -> str:
        """The tree in one line of brackets."""
        parts = []
        for event in events(self):
            if event.kind == "word":
                parts.append(f" ({event.label} {event.word})")
            else:
                parts.append(f" ({event.label}" if event.kind == "open" else ")")
        return "".join(parts)[1:]

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and list(events(self)) == list(events(other))

    def __hash__(self) -> int:
        return hash(str(self))


class Event(NamedTuple):
    """A step of a walk over a tree, from left to right."""

    kind: Literal["open", "word", "close"]
    label: str
    word: str = ""


def events(tree: Tree) -> Iterator[Event]:
    """The walk over a tree: each constituent opens and closes, each word comes with its tag."""
    waiting: list[Tree | Event] = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Event):
            yield item
        elif item.word is not None:
            yield Event("word", item.label, item.word)
        else:
            yield Event("open", item.label)
            waiting.append(Event("close", item.label))
            waiting.extend(reversed(item.children))


def words(tree: Tree) -> list[str]:
    """The sentence, brackets in it spelled -LRB- and -RRB-."""
    return [event.word for event in events(tree) if event.kind == "word"]


def split_words(line: str) -> list[str]:
    """The words of a sentence as they stand in trees: parted by white space, brackets spelled -LRB- and -RRB-."""
    return WORD.findall(line.replace("(", "-LRB-").replace(")", "-RRB-"))


def normalised(tree: Tree) -> Tree | None:
    """The tree as parsers are trained and scored on it; None if no word is left.

    Empty elements go, and constituents of nothing else; function tags and indices (NP-SBJ-1, NP=2) are cut from the
    labels of constituents; a root without a label becomes TOP.
    """
    open_: list[tuple[str, list[Tree]]] = [("", [])]
    for event in events(tree):
        if event.kind == "open":
            open_.append((re.split("[-=]", event.label)[0] or event.label or ROOT, []))
        elif event.kind == "word":
            if event.label != EMPTY_ELEMENT:
                open_[-1][1].append(Tree(event.label, word=event.word))
        else:
            label, children = open_.pop()
            if children:
                open_[-1][1].append(Tree(label, tuple(children)))
    return next(iter(open_[0][1]), None)


def parse(text: str) -> Tree:
    """The one tree that `text` holds.

    Raises:
      DataError: it holds none, or several, or something else.
    """
    found = list(read_trees(text.split("\n"), "text"))
    if len(found) != 1:
        raise DataError(f"One tree was expected, not {len(found)}: {text[:60]!r}.")
    return found[0]


def read_trees(lines: Iterable[str], name: str) -> Iterator[Tree]:
    """The trees of a text, one after another; each may span lines, and a line may hold several.

    Between trees, lines that begin with #, %, ; or * are comments. Labels stand directly behind their bracket; only a
    root may be without one, as in the Penn treebank's `( (S …))`.

    Args:
      lines: the text.
      name: what complaints call it.

    Raises:
      DataError: anything else than such trees; says line and column, counted from 1.
    """
    opened: list[_Open] = []
    for number, line in enumerate(lines, start=1):
        if not opened and line.lstrip().startswith(COMMENT):
            continue
        for match in TOKEN.finditer(line):
            token, place = match[0], (number, match.start() + 1)
            if token == "(":
                if opened and (error := opened[-1].take_constituent()):
                    raise _complaint(name, place, error)
                opened.append(_Open(place))
            elif not opened:
                what = "a closing bracket without its opening one" if token == ")" else f"{token[:40]!r} in no bracket"
                raise _complaint(name, place, what)
            elif token == ")":
                closed = opened.pop()
                if error := closed.complaint(root=not opened):
                    raise _complaint(name, closed.place, error)
                tree = Tree(closed.label or "", tuple(closed.children), closed.word)
                if opened:
                    opened[-1].children.append(tree)
                else:
                    yield tree
            elif error := opened[-1].take_token(token, line[match.start() - 1] == "("):
                raise _complaint(name, place, error)
    if opened:
        raise _complaint(name, opened[-1].place, "this bracket is never closed")


class _Open:
    """A bracket that is not closed yet."""

    def __init__(self, place: tuple[int, int]):
        self.place = place
        self.label: str | None = None
        self.word: str | None = None
        self.children: list[Tree] = []

    def take_constituent(self) -> str | None:
        """What is wrong with another bracket in this one, if anything."""
        return f"a bracket beside the word {self.word[:40]!r}" if self.word is not None else None

    def take_token(self, token: str, label: bool) -> str | None:
        """What is wrong with a label or word in this bracket, if anything."""
        if label:
            self.label = token
        elif self.label is None:
            return f"the word {token[:40]!r} without a tag"
        elif self.word is not None or self.children:
            return f"the word {token[:40]!r} is not alone in the bracket of its tag"
        else:
            self.word = token
        return None

    def complaint(self, root: bool) -> str | None:
        """What is wrong with this bracket as it is closed, if anything."""
        if self.word is None and not self.children:
            return "a bracket around nothing"
        return "only a root may be without a label" if self.label is None and not root else None


def _complaint(name: str, place: tuple[int, int], what: str) -> DataError:
    return DataError(f"{name}, line {place[0]:,}, column {place[1]:,}: {what}.")
