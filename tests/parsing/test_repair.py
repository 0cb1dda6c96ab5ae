"""Whatever the decoder writes becomes a tree over the sentence's words, and little damage needs little mending."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.config import Data
from t2t_jax.data.sources import open_source
from t2t_jax.parsing.baseline import right_branching
from t2t_jax.parsing.linear import tokens_of
from t2t_jax.parsing.punctuation import LEFT_OUT, TAGS, tag_for
from t2t_jax.parsing.repair import LONGEST, repair
from t2t_jax.parsing.trees import Tree, parse, words

PAIRS = [(source.split(" "), target.split(" ")) for source, target in open_source(Data(task="parsing")).pairs("test")]  # type: ignore[union-attr]
BRACKETS = sorted({token for _, tokens in PAIRS for token in tokens if token[0] in "()"})
TOKENS = sorted({token for _, tokens in PAIRS for token in tokens})


def check(tree: Tree, sentence: list[str]) -> None:
    assert words(tree) == sentence
    assert tree.word is None or len(sentence) == 1
    assert parse(str(tree)) == tree  # the strict reader takes nothing that is not well-formed


@given(st.lists(st.sampled_from([*TOKENS[::4], "(", ")", "", "a b", "(X(", "XX"]), max_size=40), st.integers(1, 12))
def test_any_tokens_become_a_tree(tokens: list[str], n: int) -> None:
    sentence = [f"w{i}" if i % 3 else "," for i in range(n)]
    check(repair(tokens, sentence).tree, sentence)


def test_ten_thousand_fuzzed_outputs_become_trees() -> None:
    rng = random.Random(0)
    for case in range(10_000):
        sentence, tokens = rng.choice(PAIRS)
        tokens = list(tokens)
        match case % 4:
            case 0:
                tokens = rng.choices(TOKENS, k=rng.randrange(2 * len(tokens)))
            case 1:
                del tokens[rng.randrange(len(tokens)) :]
            case 2:
                for _ in range(rng.randrange(1, 6)):
                    i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
                    tokens[i], tokens[j] = tokens[j], tokens[i]
            case 3:
                for _ in range(rng.randrange(1, 6)):
                    tokens.insert(rng.randrange(len(tokens)), rng.choice(TOKENS))
        check(repair(tokens, sentence).tree, sentence)


def test_what_is_well_formed_is_left_alone() -> None:
    for sentence, tokens in PAIRS:
        mended = repair(tokens, sentence)
        assert (tokens_of(mended.tree), mended.edits) == (tokens, 0)
    assert repair(["NN"], ["a"]) == (Tree("NN", word="a"), 0)


@given(st.data())
def test_one_wrong_bracket_or_tag_is_one_edit(data: st.DataObject) -> None:
    sentence, tokens = data.draw(st.sampled_from([pair for pair in PAIRS if len(pair[0]) < 30]))
    place = data.draw(st.integers(0, len(tokens) - 1))
    damaged = list(tokens)
    bracket = tokens[place][0] if tokens[place][0] in "()" else ""
    match data.draw(st.sampled_from(["left out", "put in", "changed"] if bracket else ["changed"])):
        case "left out":
            del damaged[place]
        case "put in":
            damaged.insert(place, data.draw(st.sampled_from(BRACKETS)))
        case "changed":
            same_kind = [t for t in TOKENS if t.startswith(bracket) and bool(bracket) == (t[0] in "()")]
            damaged[place] = data.draw(st.sampled_from(same_kind))
    mended = repair(damaged, sentence)
    check(mended.tree, sentence)
    assert mended.edits <= 1


def fewest_edits(brackets: tuple[str, ...]) -> int:
    """By trying everything: the first bracket is left over, or matched with any later one around a balanced inside."""
    if not brackets:
        return 0
    first, *rest = brackets
    best = 1 + fewest_edits(tuple(rest))
    for k, other in enumerate(rest):
        if first[0] == "(" and other[0] == ")":
            inside, behind = tuple(rest[:k]), tuple(rest[k + 1 :])
            best = min(best, (first[1:] != other[1:]) + fewest_edits(inside) + fewest_edits(behind))
    return best


@given(st.lists(st.sampled_from(["(A", ")A", "(B", ")B"]), max_size=7))
def test_brackets_are_matched_by_the_fewest_edits(brackets: list[str]) -> None:
    inside = [token for bracket in brackets for token in (bracket, "x")]  # no bracket is around nothing
    tokens = ["(R", "x", *inside, ")R"]
    sentence = ["w"] * (1 + len(brackets))
    assert repair(tokens, sentence).edits == fewest_edits(tuple(brackets))


def test_punctuation_of_the_treebank_has_a_tag_it_may_have() -> None:
    tagged = [(word, tag) for s, t in PAIRS for word, tag in zip(s, [x for x in t if x[0] not in "()"], strict=True)]
    assert all(tag_for(word, tag) == tag for word, tag in tagged)
    marks = {word for word, tag in tagged if tag in LEFT_OUT}
    assert marks <= TAGS.keys()


@pytest.mark.parametrize(
    ("tokens", "sentence", "tree", "edits"),
    [
        ("(S (NP DT NN )NP (VP VBD (NP DT", "a b c d", "(S (NP (DT a) (NN b)) (VP (VBD c) (NP (DT d))))", 3),
        ("(S (NP DT NN (VP VBD )VP )S", "a b c", "(S (NP (DT a) (NN b) (VP (VBD c))))", 1),
        ("(S (NP DT )VP (VP VBD )NP )S", "a b", "(S (NP (DT a)) (VP (VBD b)))", 2),
        ("(S (NP )NP (VP VBD )VP )S", "a", "(S (VP (VBD a)))", 2),
        ("(S NN , NN . )S", "a , .", "(S (NN a) (, ,) (. .))", 1),
        ("(S NN , . )S", "a , b .", "(S (NN a) (, ,) (XX b) (. .))", 1),
        ("(S NN )S (NP NN )NP", "a b", "(S (NN a) (NP (NN b)))", 1),
        ("(S NN NN NN )S", "a b", "(S (NN a) (NN b))", 1),
        ("(S NN NN )S", "a ,", "(S (NN a) (, ,))", 1),
        ("(S , HYPH : )S", "a - -", "(S (XX a) (HYPH -) (: -))", 1),
        ("(S (NP NN NN )NP , VB NN NN . )S", "a , b c .", "(S (NP (NN a)) (, ,) (VB b) (NN c) (. .))", 2),
        ("NN NN", "a b", "(TOP (NN a) (NN b))", 2),
        ("", "a b", "(TOP (XX a) (XX b))", 4),
        ("(S )S", "a", "(TOP (XX a))", 5),
    ],
)
def test_mending_by_example(tokens: str, sentence: str, tree: str, edits: int) -> None:
    mended = repair(tokens.split(), sentence.split())
    assert (str(mended.tree), mended.edits) == (tree, edits)


def test_size_is_no_limit() -> None:
    sentence = ["w"] * (3 * LONGEST)
    for tokens in (["(A"] * 50_000, [")A"] * 50_000, ["(A", "x"] * 5000, ["x"] * 50_000, []):
        check(repair(tokens, sentence).tree, sentence)


def test_right_branching() -> None:
    assert str(right_branching(["a", "b", "c", "."])) == "(TOP (S (XX a) (VP (XX b) (XX c)) (XX .)))"
    assert str(right_branching(["a"], ["NN"])) == "(TOP (S (NN a)))"
    deep = right_branching(["w"] * 5000)
    assert words(deep) == ["w"] * 5000
