"""Whatever a decoder writes, made into a well-formed tree over exactly the words of its sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.errors import DataError
from t2t_jax.parsing.linear import tree_of
from t2t_jax.parsing.trees import ROOT, Tree

UNKNOWN_TAG = "XX"  # of words that the decoder gave none
STRETCH = 32  # brackets left over that are matched together; the time grows with their cube
WELL_FORMED = re.compile(r"[()]?[^() \t\n\v\f\r]+")


class Repaired(NamedTuple):
    """A tree, and how many tokens had to be changed, left out or put in to get it."""

    tree: Tree
    edits: int


def repair(tokens: Sequence[str], words: Sequence[str]) -> Repaired:
    """The tree over `words` (at least one) that is nearest to `tokens`, which may be anything.

    Tokens of a tree over so many words are that tree. Otherwise: tags are aligned with words by the fewest insertions
    and deletions, with punctuation on punctuation; brackets are matched by the fewest relabelled and unmatched ones
    (exactly, if at most `STRETCH` are left once those that match are out of the way); what is still open closes as late
    as it can, what closes nothing goes, as do constituents without words; and the first constituent takes in what
    stands beside it.
    """
    try:
        return Repaired(tree_of(tokens, words), 0)
    except DataError:
        pass
    usable = [token for token in tokens if WELL_FORMED.fullmatch(token)]
    aligned, moved = _align(usable, words)
    edits = len(tokens) - len(usable) + moved
    partners, unmatched = _match([token for token in aligned if token[0] in "()"])

    opened: list[tuple[int, str, list[Tree]]] = [(-1, "", [])]
    place = used = -1

    def close() -> int:
        """Ends the innermost constituent; 2 edits if there is nothing in it."""
        _, label, children = opened.pop()
        if children:
            opened[-1][2].append(Tree(label, tuple(children)))
        return 0 if children else 2

    for token in aligned:
        if token[0] not in "()":
            used += 1
            opened[-1][2].append(Tree(token, word=words[used]))
            continue
        place += 1
        if token[0] == "(":
            opened.append((place, token[1:], []))
        elif place in partners:
            start = partners[place]
            while opened[-1][0] != start:
                edits += close()
            edits += (opened[-1][1] != token[1:]) + close()
    while len(opened) > 1:
        edits += close()
    tree, joined = _one_root(opened[0][2])
    return Repaired(tree, edits + unmatched + joined)


def _one_root(found: list[Tree]) -> tuple[Tree, int]:
    """One tree of several: the first constituent is stretched over what stands beside it."""
    first = next((i for i, tree in enumerate(found) if tree.word is None), None)
    if first is None:
        return Tree(ROOT, tuple(found)), 2
    root, beside = found[first], len(found) - 1
    return Tree(root.label, (*found[:first], *root.children, *found[first + 1 :])), beside


def _align(tokens: Sequence[str], words: Sequence[str]) -> tuple[list[str], int]:
    """The tokens with exactly as many tags as there are words, and how many were put in or left out."""
    places = [place for place, token in enumerate(tokens) if token[0] not in "()"]
    if len(places) == len(words):
        return list(tokens), 0
    near = words[: 2 * len(places)]  # of more words than that, those at the end have no tag
    tags_odd, words_odd = ([not any(map(str.isalnum, x)) for x in side] for side in ([tokens[p] for p in places], near))
    # cost[i, j]: least cost of giving the first j words the first i tags.
    cost = np.empty((len(places) + 1, len(near) + 1), np.int32)
    cost[0] = 2 * np.arange(len(near) + 1)
    steps = 2 * np.arange(len(near) + 1)
    for i, odd in enumerate(tags_odd, start=1):
        row = cost[i - 1] + 2
        row[1:] = np.minimum(row[1:], cost[i - 1, :-1] + (np.asarray(words_odd, bool) != odd))
        cost[i] = np.minimum.accumulate(row - steps) + steps
    put_in: dict[int, int] = {}  # words without a tag, by the tag that comes before them
    left_out: set[int] = set()
    i, j = len(places), len(near)
    while i or j:
        if i and j and cost[i, j] == cost[i - 1, j - 1] + (words_odd[j - 1] != tags_odd[i - 1]):
            i, j = i - 1, j - 1
        elif j and cost[i, j] == cost[i, j - 1] + 2:
            j -= 1
            put_in[i] = put_in.get(i, 0) + 1
        else:
            i -= 1
            left_out.add(places[i])
    put_in[len(places)] = put_in.get(len(places), 0) + len(words) - len(near)
    aligned = [UNKNOWN_TAG] * put_in.pop(0, 0) if places else []
    tags = 0
    for place, token in enumerate(tokens):
        if place not in left_out:
            aligned.append(token)
        if tags < len(places) and place == places[tags]:
            tags += 1
            aligned += [UNKNOWN_TAG] * put_in.get(tags, 0)
    if not places:
        aligned += [UNKNOWN_TAG] * len(words)
    return aligned, len(left_out) + abs(len(words) - len(places) + len(left_out))


def _match(brackets: Sequence[str]) -> tuple[dict[int, int], int]:
    """For the place of each closing bracket that has one, the place of its opening one; and how many are left over."""
    partners: dict[int, int] = {}
    left: list[int] = []
    for place, bracket in enumerate(brackets):
        # An opening bracket directly before its own closing one is a pair in some best matching.
        if left and bracket[0] == ")" and brackets[left[-1]] == "(" + bracket[1:]:
            partners[place] = left.pop()
        else:
            left.append(place)
    unmatched = 0
    for start in range(0, len(left), STRETCH):
        stretch = left[start : start + STRETCH]
        pairs = _best_pairs([brackets[place] for place in stretch])
        partners |= {stretch[closing]: stretch[opening] for opening, closing in pairs}
        unmatched += len(stretch) - 2 * len(pairs)
    return partners, unmatched


def _best_pairs(brackets: Sequence[str]) -> list[tuple[int, int]]:
    """(opening, closing) of a nesting with the fewest edits: one a bracket left over, one a pair of different names."""
    n = len(brackets)
    cost = [[0] * (n + 1) for _ in range(n + 2)]  # of brackets i to before j
    partner = [[-1] * (n + 1) for _ in range(n + 1)]  # of bracket i among those
    for i in range(n - 1, -1, -1):
        closings = [k for k in range(i + 1, n) if brackets[k][0] == ")"] if brackets[i][0] == "(" else []
        for j in range(i + 1, n + 1):
            cost[i][j] = cost[i + 1][j] + 1
            for k in closings:
                if k >= j:
                    break
                this = cost[i + 1][k] + cost[k + 1][j] + (brackets[i][1:] != brackets[k][1:])
                if this < cost[i][j]:
                    cost[i][j], partner[i][j] = this, k
    pairs, spans = [], [(0, n)]
    while spans:
        i, j = spans.pop()
        if i < j and (k := partner[i][j]) >= 0:
            pairs.append((i, k))
            spans += [(i + 1, k), (k + 1, j)]
        elif i < j:
            spans.append((i + 1, j))
    return pairs
