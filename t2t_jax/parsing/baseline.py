"""The tree that needs no training: English branches to the right."""

from __future__ import annotations

from collections.abc import Sequence

from t2t_jax.parsing.linear import UNKNOWN_TAG
from t2t_jax.parsing.trees import ROOT, Tree


def right_branching(words: Sequence[str], tags: Sequence[str] | None = None) -> Tree:
    """`(TOP (S w1 (VP w2 (VP w3 … wn))))`, a final mark of punctuation hung on S.

    Args:
      words: at least one.
      tags: of the words; XX by default. EVALB leaves punctuation out by tag, so a baseline is given the right ones.
    """
    tags = tags or [UNKNOWN_TAG] * len(words)
    leaves = [Tree(tag, word=word) for tag, word in zip(tags, words, strict=True)]
    last = [leaves.pop()] if len(leaves) > 2 and not any(map(str.isalnum, words[-1])) else []
    tree = leaves.pop()
    for leaf in reversed(leaves[1:]):
        tree = Tree("VP", (leaf, tree))
    return Tree(ROOT, (Tree("S", (*leaves[:1], tree, *last)),))
