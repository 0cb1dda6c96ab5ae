"""What the tests of several benchmarks share: a strict reader of their pages."""

from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

EMPTY = frozenset(["meta", "link"])


class _Reader(HTMLParser):
    """Counts elements and collects text; complains where one is not closed in turn or something else is loaded."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        assert all(name != "src" for name, _ in attrs), "the page must be complete in itself"
        if tag not in EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="session")
def read_page() -> Callable[[str], _Reader]:
    """From a page's HTML to an object with `elements`, how many of each kind there are, and `text`."""
    return _Reader
