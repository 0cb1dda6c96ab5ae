"""Two training corpora in one, in a stated ratio: semi-supervised training mixes gold trees with parsed text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from t2t_jax.data.sources import Pair, Source, Split


class Mixed:
    """The pairs of two sources, the first's before the other's; the batch plan shuffles them.

    `share` of the training pairs are the other's: whichever has too few is repeated, whole and once in part, so that
    nothing is left out and an epoch is still a fixed list of pairs. Held-out text is the first's.
    """

    def __init__(self, first: Source, other: Source, share: float):
        self._first, self._other, self._share = first, other, share

    def pairs(self, split: Split) -> Iterator[Pair]:
        if split != "train":
            yield from self._first.pairs(split)
            return
        sources = self._first, self._other
        have = [sum(1 for _ in source.pairs(split)) for source in sources]
        odds = self._share / (1 - self._share)
        wanted = max(have[0], round(have[1] / odds)), max(have[1], round(have[0] * odds))
        for source, pairs, count in zip(sources, have, wanted, strict=True):
            copies = itertools.chain.from_iterable(source.pairs(split) for _ in range(-(-count // max(pairs, 1))))
            yield from itertools.islice(copies, count)

    def fingerprint(self, split: Split) -> dict[str, str]:
        found = self._first.fingerprint(split)
        return found | self._other.fingerprint(split) if split == "train" else found
