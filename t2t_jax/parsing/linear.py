"""Trees as token sequences, the way "Grammar as a Foreign Language" (Vinyals et al., 2015) writes them.

`(S (NP DT NN )NP (VP VBD )VP )S`: brackets close by name, and in the place of each word stands its tag, so that a tree
comes back exactly from the tokens and the words of its sentence. (There the tags were all XX; here they stay, because
EVALB leaves punctuation out by tag.)
"""

from __future__ import annotations

from collections.abc import Sequence

from t2t_jax.errors import DataError
from t2t_jax.parsing.trees import Tree, events

UNKNOWN_TAG = "XX"  # of a word whose tag was not said


def tokens_of(tree: Tree) -> list[str]:
    """The tokens of a tree: `(LABEL`, `)LABEL`, and a tag for each word."""
    marks = {"open": "(", "word": "", "close": ")"}
    return [marks[event.kind] + event.label for event in events(tree)]


def tree_of(tokens: Sequence[str], words: Sequence[str]) -> Tree:
    """The tree that well-formed tokens and as many words make.

    Raises:
      DataError: the tokens are not the tokens of a tree over so many words.
    """
    opened: list[tuple[str, list[Tree]]] = []
    found: Tree | None = None
    used = 0
    for token in tokens:
        if found is not None:
            raise DataError(f"{token!r} comes after the end of the tree.")
        if token[:1] == "(":
            if not token[1:] and opened:
                raise DataError("Only a root may be without a label.")
            opened.append((token[1:], []))
            continue
        if token[:1] == ")":
            if not opened or opened[-1][0] != token[1:] or not opened[-1][1]:
                raise DataError(f"{token!r} closes no constituent of that name.")
            label, children = opened.pop()
            tree = Tree(label, tuple(children))
        else:
            if used == len(words):
                raise DataError(f"There are more tags than the {len(words)} words.")
            tree = Tree(token, word=words[used])
            used += 1
        if opened:
            opened[-1][1].append(tree)
        else:
            found = tree
    if found is None or used < len(words):
        raise DataError(f"The tokens end before the tree over {len(words)} words is whole.")
    return found
