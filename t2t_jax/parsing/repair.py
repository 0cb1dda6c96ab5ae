"""Whatever a decoder writes, made into a well-formed tree over exactly the words of its sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t2t_jax.errors import DataError
from t2t_jax.parsing.linear import UNKNOWN_TAG, tree_of
from t2t_jax.parsing.punctuation import may_have, tag_for
from t2t_jax.parsing.trees import ROOT, Tree, events

STRETCH = 32  # brackets left over that are matched together; the time grows with their cube
LONGEST = 2000  # tags and words that are aligned; the time grows with their product
WELL_FORMED = re.compile(r"[()]?[^() \t\n\v\f\r]+")


class Repaired(NamedTuple):
    """A tree, and how many tokens had to be changed, left out or put in to get it."""

    tree: Tree
    edits: int


def repair(tokens: Sequence[str], words: Sequence[str]) -> Repaired:
    """The tree over `words` (at least one) that is nearest to `tokens`, which may be anything.

    Tokens of a tree over so many words are that tree, if no punctuation has a tag that it cannot have. Otherwise: tags
    are aligned with words by the fewest insertions, deletions and changes; brackets are matched by the fewest that are
    relabelled or left over (exactly, if at most `STRETCH` remain once those that match are out of the way); what is
    still open closes as late as it can, what closes nothing goes, and so does what is opened around nothing; the first
    constituent takes in what stands beside it.
    """
    try:
        tree = tree_of(tokens, words)
        if all(may_have(event.word, event.label) for event in events(tree) if event.kind == "word"):
            return Repaired(tree, 0)
    except DataError:
        pass
    usable = [token for token in tokens if WELL_FORMED.fullmatch(token)]
    aligned, moved = _align(usable, words)
    edits = len(tokens) - len(usable) + moved
    partners, unmatched = _match(aligned)

    opened: list[tuple[int, str, list[Tree]]] = [(-1, "", [])]
    matched, words_left = {-1, *partners.values()}, iter(words)
    relabelled = 0

    def close() -> None:
        """Ends the innermost constituent, which is nothing if nothing is in it."""
        _, label, children = opened.pop()
        if children:
            opened[-1][2].append(Tree(label, tuple(children)))

    for place, token in enumerate(aligned):
        if token[0] == "(":
            opened.append((place, token[1:], []))
        elif token[0] != ")":
            opened[-1][2].append(Tree(token, word=next(words_left)))
        elif place in partners:
            while opened[-1][0] != partners[place]:
                close()
            relabelled += opened[-1][1] != token[1:]
            close()
        elif opened[-1][0] not in matched and not opened[-1][2]:
            close()  # what was opened and closed around nothing
    while len(opened) > 1:
        close()
    tree, joined = _one_root(opened[0][2])
    return Repaired(tree, edits + unmatched + relabelled + joined)


def _one_root(found: list[Tree]) -> tuple[Tree, int]:
    """One tree of several: the first constituent is stretched over what stands beside it."""
    first = next((i for i, tree in enumerate(found) if tree.word is None), None)
    if first is None:
        return Tree(ROOT, tuple(found)), 2
    root, beside = found[first], len(found) - 1
    return Tree(root.label, (*found[:first], *root.children, *found[first + 1 :])), beside


def _align(tokens: Sequence[str], words: Sequence[str]) -> tuple[list[str], int]:
    """The tokens with exactly one possible tag for each word, and how many were put in, left out or changed."""
    tags = [token for token in tokens if token[0] not in "()"]
    left_out, put_in = _edit_script(tags, words)
    aligned, number, used, changed = [], 0, iter(words), 0
    for token in tokens:
        if token[0] in "()":
            aligned.append(token)
            continue
        if number == 0:
            aligned += [tag_for(next(used), UNKNOWN_TAG) for _ in range(put_in[0])]
        if number not in left_out:
            aligned.append(tag_for(next(used), token))
            changed += aligned[-1] != token
        number += 1
        aligned += [tag_for(next(used), UNKNOWN_TAG) for _ in range(put_in[number])]
    aligned += [tag_for(word, UNKNOWN_TAG) for word in used]  # there were no tags at all
    return aligned, len(left_out) + sum(put_in) + changed


def _edit_script(tags: Sequence[str], words: Sequence[str]) -> tuple[set[int], list[int]]:
    """The tags to leave out, and how many to put in before the first and behind each, so that least is to be done.

    What lies beyond `LONGEST` tags or words, or twice as many words as tags, is not looked at: such tags go, such words
    get new ones.
    """
    near = words[: min(2 * len(tags), LONGEST)]
    left_out = set(range(LONGEST, len(tags)))
    put_in = [0] * len(tags) + [len(words) - len(near)]
    tags = tags[:LONGEST]
    wrong = {tag: np.asarray([not may_have(word, tag) for word in near], np.int32) for tag in set(tags)}
    steps = np.arange(len(near) + 1, dtype=np.int32)
    cost = np.empty((len(tags) + 1, len(near) + 1), np.int32)  # [i, j]: of the first i tags for the first j words
    cost[0] = steps
    for i, tag in enumerate(tags, start=1):
        row = cost[i - 1] + 1
        row[1:] = np.minimum(row[1:], cost[i - 1, :-1] + wrong[tag])
        cost[i] = np.minimum.accumulate(row - steps) + steps
    i, j = len(tags), len(near)
    while i or j:
        # Of equally good ones the latest: what is missing or too much usually is so at the end.
        if i and cost[i, j] == cost[i - 1, j] + 1:
            i -= 1
            left_out.add(i)
        elif j and cost[i, j] == cost[i, j - 1] + 1:
            j -= 1
            put_in[i] += 1
        else:
            i, j = i - 1, j - 1
    return left_out, put_in


def _match(tokens: Sequence[str]) -> tuple[dict[int, int], int]:
    """For the place of each closing bracket that has one, the place of its opening one; and how many are left over."""
    partners: dict[int, int] = {}
    left: list[tuple[int, int]] = []  # place of a bracket, and words before it
    words, last = 0, len(tokens) - 1
    rooted = tokens[0][0] == "(" and tokens[last] == ")" + tokens[0][1:]
    if rooted:  # a pair around everything stays, so that there is one root
        partners[last] = 0
    for place, token in enumerate(tokens[rooted : last + (not rooted)], start=int(rooted)):
        if token[0] not in "()":
            words += 1
        elif token[0] == ")" and left and left[-1][1] < words and tokens[left[-1][0]] == "(" + token[1:]:
            # An opening bracket and its closing one with only words between them are a pair in some best matching.
            partners[place] = left.pop()[0]
        else:
            left.append((place, words))
    unmatched = 0
    for start in range(0, len(left), STRETCH):
        stretch = left[start : start + STRETCH]
        pairs = _best_pairs([tokens[place] for place, _ in stretch], [before for _, before in stretch])
        partners |= {stretch[closing][0]: stretch[opening][0] for opening, closing in pairs}
        unmatched += len(stretch) - 2 * len(pairs)
    return partners, unmatched


def _best_pairs(brackets: Sequence[str], words: Sequence[int]) -> list[tuple[int, int]]:
    """(opening, closing) of a nesting with the fewest edits: one a bracket left over, one a pair of different names.

    No pair is around nothing: `words` counts those before each bracket.
    """
    n = len(brackets)
    cost = [[0] * (n + 1) for _ in range(n + 2)]  # of brackets i to before j
    partner = [[-1] * (n + 1) for _ in range(n + 1)]  # of bracket i among those
    for i in range(n - 1, -1, -1):
        closings = [
            k for k in range(i + 1, n) if brackets[i][0] == "(" and brackets[k][0] == ")" and words[k] > words[i]
        ]
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
