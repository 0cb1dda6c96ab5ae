"""Penn brackets: what is read, what is refused and where, and that trees survive being written."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.errors import DataError
from t2t_jax.parsing.linear import tokens_of, tree_of
from t2t_jax.parsing.trees import Tree, normalised, parse, read_trees, split_words, words

TREEBANKS = Path(__file__).parents[3] / "shared" / "data" / "treebanks"
EMBEDDED = Path(__file__).parents[2] / "t2t_jax" / "data" / "embedded"


def read(text: str) -> list[Tree]:
    return list(read_trees(text.split("\n"), "file"))


label_text = st.text("ABC-=|$", min_size=1, max_size=4)
word_text = st.text(
    st.characters(exclude_characters="() \t\n\v\f\r", exclude_categories=["Cs"]), min_size=1, max_size=6
)
trees = st.recursive(
    st.builds(lambda tag, word: Tree(tag, word=word), label_text, word_text),
    lambda below: st.builds(
        lambda name, kids: Tree(name, tuple(kids)), label_text, st.lists(below, min_size=1, max_size=4)
    ),
    max_leaves=20,
)


@given(trees)
def test_trees_survive_text_and_tokens(tree: Tree) -> None:
    assert parse(str(tree)) == tree
    assert tree_of(tokens_of(tree), words(tree)) == tree


@pytest.mark.parametrize("folder", [EMBEDDED, TREEBANKS])
def test_every_tree_of_the_treebanks_survives(folder: Path) -> None:
    if not folder.is_dir():
        pytest.skip("the treebanks are not beside this checkout")
    files = [path for path in folder.glob("*.gz") if "gum" in path.name or "wsj" in path.name]
    assert files
    for path in files:
        for line in gzip.decompress(path.read_bytes()).decode().split("\n")[:-1]:
            tree = parse(line)
            assert str(tree) == line
            assert str(tree_of(tokens_of(tree), words(tree))) == line
            assert normalised(tree) == tree


def test_trees_span_lines_and_share_them_and_comments_stand_between() -> None:
    text = "# (NN not) a tree\n(S\n  (NP (DT The)\n(NN cat))(VP\t(VBD sat))) (X (# #))\n%\n*x*x*\r\n\n; (\n(A (B c))"
    assert [*map(str, read(text))] == ["(S (NP (DT The) (NN cat)) (VP (VBD sat)))", "(X (# #))", "(A (B c))"]


def test_only_ascii_white_space_parts_tokens() -> None:
    (tree,) = read("(NP (DT a\u00a0b) (NN c\u2028d\u0085))")
    assert words(tree) == ["a\u00a0b", "c\u2028d\u0085"]
    assert split_words(" a\u00a0b\tc(d) \r") == ["a\u00a0b", "c-LRB-d-RRB-"]


def test_the_penn_treebank_is_normalised() -> None:
    (tree,) = read(
        "( (S (NP-SBJ-1 (NNP Ann)) (VP (VBZ wants) (S (NP-SBJ (-NONE- *-1)) (VP (TO to) (VP (VB go)))) "
        "(PP=2 (-NONE- x))) (-LRB- -LRB-) (PRT|ADVP (RB so))))"
    )
    assert str(normalised(tree)) == (
        "(TOP (S (NP (NNP Ann)) (VP (VBZ wants) (S (VP (TO to) (VP (VB go))))) (-LRB- -LRB-) (PRT|ADVP (RB so))))"
    )
    (empty,) = read("( (NP (-NONE- *)))")
    assert normalised(empty) is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("(S (NP (DT a)", "file, line 1, column 4: this bracket is never closed"),
        ("(S\n (NN a)))", "file, line 2, column 9: a closing bracket without its opening one"),
        ("(S (NN a)) word", "file, line 1, column 12: 'word' in no bracket"),
        ("(S (NP))", "file, line 1, column 4: a bracket around nothing"),
        ("()", "line 1, column 1: a bracket around nothing"),
        ("(NN a b)", "line 1, column 7: the word 'b' is not alone"),
        ("(NP (NN a) b)", "line 1, column 12: the word 'b' is not alone"),
        ("(NP a (NN b))", "line 1, column 7: a bracket beside the word 'a'"),
        ("( a)", "line 1, column 3: the word 'a' without a tag"),
        ("(S ( (NN a)))", "line 1, column 4: only a root may be without a label"),
        ("(S (NN a)\n# no comment here\n)", "line 2, column 1: the word '#' is not alone"),
    ],
)
def test_anything_else_is_refused_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(DataError) as refused:
        read(text)
    assert complaint in str(refused.value)


@given(st.text("(() \nAB#", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = read(text)
    except DataError:
        return
    assert all(parse(str(tree)) == tree for tree in found)


def test_depth_is_no_limit() -> None:
    depth = 100_000
    tree = parse("(A " * depth + "(B c)" + ")" * depth)
    assert len(tokens_of(tree)) == 2 * depth + 1
    assert tree == tree_of(tokens_of(tree), ["c"])
    assert hash(tree) == hash(normalised(tree))
    with pytest.raises(DataError, match="never closed"):
        parse("(" * depth)


def test_one_tree_is_one() -> None:
    for text in ("", "(A b) (C d)"):
        with pytest.raises(DataError, match="One tree was expected"):
            parse(text)


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        ("", "a"),
        ("(S NN", "a"),
        ("(S NN )NP", "a"),
        ("(S )S", ""),
        ("(S NN )S NN", "a b"),
        ("(S NN NN )S", "a"),
        ("(S NN )S", "a b"),
        ("(S ( NN ) )S", "a"),
        (")S", ""),
    ],
)
def test_tokens_of_no_tree_are_refused(tokens: str, sentence: str) -> None:
    with pytest.raises(DataError):
        tree_of(tokens.split(), sentence.split())
