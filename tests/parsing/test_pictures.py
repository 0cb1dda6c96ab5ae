"""Drawings of trees: well-formed SVG in which each label and word has its place."""

import xml.etree.ElementTree as ElementTree

from t2t_jax.parsing.brackets import Bracket
from t2t_jax.parsing.pictures import draw
from t2t_jax.parsing.trees import Tree, parse

TREE = parse("(TOP (S (NP (DT the) (NN <cat>)) (VP (VBD sat&) (PP (IN on) (NP (PRP 語))))))")
SVG = "{http://www.w3.org/2000/svg}"


def texts(drawing: str) -> list[tuple[str, float, float, str]]:
    root = ElementTree.fromstring(drawing)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    found = [
        (e.text or "", float(e.get("x", 0)), float(e.get("y", 0)), e.get("fill", "")) for e in root.iter(f"{SVG}text")
    ]
    assert all(0 < x < width and 0 < y < height for _, x, y, _ in found)
    return found


def test_words_stand_on_one_line_in_order() -> None:
    found = texts(draw(TREE))
    bottom = max(y for _, _, y, _ in found)
    words = sorted((x, text) for text, x, y, _ in found if y == bottom)
    assert [text for _, text in words] == ["the", "<cat>", "sat&", "on", "語"]
    heights = {text: y for text, _, y, _ in found}
    assert heights["TOP"] < heights["S"] < heights["VP"] < heights["PP"] < heights["DT"] < bottom


def test_marked_constituents_stand_out() -> None:
    marked = [text for text, _, _, fill in texts(draw(TREE, {Bracket(3, 5, "PP")})) if fill == "#c2500a"]
    assert marked == ["PP"]
    assert 'stroke="#c2500a"' in draw(TREE, {Bracket(3, 5, "PP")})


def test_any_tree_is_drawn() -> None:
    tree = Tree("X" * 100, word="\x00\ud800\u2028" + "w" * 1000)
    for _ in range(2000):
        tree = Tree("WHADVP", (tree,))
    assert len(texts(draw(tree).encode("utf-8").decode())) == 2002
