"""Several tasks as one, told apart by what a source begins with: Raffel et al., "Exploring the limits of transfer
learning with a unified text-to-text transformer" (2020)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from t2t_jax import config
from t2t_jax.data.sources import Pair, Source, Split, open_source

PARSE = "parse: "


def tasks(data: config.Data) -> dict[str, config.Data]:
    """What each of the tasks is alone, by its prefix: both directions of the corpus, and parsing where trees are."""
    there = dataclasses.replace(data, task="translation")
    back = dataclasses.replace(there, source_language=data.target_language, target_language=data.source_language)
    found = {f"translate {one.source_language} {one.target_language}: ": one for one in (there, back)}
    return found | ({PARSE: dataclasses.replace(data, task="parsing")} if data.source == "embedded" else {})


def text_to_text(data: config.Data) -> TextToText:
    """The source of all of them."""
    parts = {prefix: open_source(one) for prefix, one in tasks(data).items()}
    there, back, *_ = parts
    return TextToText(parts | {back: Backwards(parts[there])})  # a table's columns have one order


class Backwards:
    """A source's pairs with their sides exchanged."""

    def __init__(self, there: Source):
        self._there = there

    def pairs(self, split: Split) -> Iterator[Pair]:
        return ((target, source) for source, target in self._there.pairs(split))

    def fingerprint(self, split: Split) -> dict[str, str]:
        return self._there.fingerprint(split)


class TextToText:
    """The pairs of several sources, each behind its prefix, one source after another; the batch plan shuffles them."""

    def __init__(self, parts: Mapping[str, Source]):
        self._parts = parts

    def pairs(self, split: Split) -> Iterator[Pair]:
        for prefix, part in self._parts.items():
            for source, target in part.pairs(split):
                yield None if source is None else prefix + source, target

    def fingerprint(self, split: Split) -> dict[str, str]:
        return {name: digest for part in self._parts.values() for name, digest in part.fingerprint(split).items()}
