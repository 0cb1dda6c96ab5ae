"""Scores as EVALB prints them: the real program's outputs where they are at hand, and cases worked out by hand."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.errors import DataError
from t2t_jax.parsing.brackets import COLLINS, Bracket, Parameters, Result, Sentence, score, unmatched

EVALB = Path(__file__).parents[3] / "shared" / "data" / "evalb"
needs_evalb = pytest.mark.skipif(not EVALB.is_dir(), reason="EVALB's samples are not beside this checkout")


def text_of(name: str) -> str:
    path = EVALB / name
    return (gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()).decode()


@needs_evalb
@pytest.mark.parametrize(
    ("gold", "test", "parameters", "expected"),
    [
        ("sample.gld", "sample.tst", "sample.prm", "sample.expected.sample_prm.rsl"),
        ("sample.gld", "sample.tst", "COLLINS.prm", "sample.expected.collins_prm.rsl"),
        ("gum.gld.gz", "gum.tst.gz", "COLLINS.prm", "gum.expected.collins_prm.rsl.gz"),
    ],
)
def test_the_real_programs_output_to_the_letter(gold: str, test: str, parameters: str, expected: str) -> None:
    rules = Parameters.parse(text_of(parameters), parameters)
    result = score(*(text_of(name).removesuffix("\n").split("\n") for name in (gold, test)), rules)
    assert result.table() + result.summary() == text_of(expected)


@needs_evalb
def test_the_default_is_collins() -> None:
    assert Parameters.parse(text_of("COLLINS.prm"), "COLLINS.prm") == COLLINS


GOLD = "(TOP (S (NP (DT the) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (PRP it)))) (. .)))"


def one(gold: str, test: str, parameters: Parameters = COLLINS) -> Sentence:
    (found,) = score([gold], [test], parameters).sentences
    return found


def test_itself() -> None:
    assert one(GOLD, GOLD) == Sentence(6, 0, matched=5, gold=5, test=5, crossing=0, words=5, tags=5)


def test_labels_spans_and_tags() -> None:
    test = "(TOP (S (NP (DT the) (NNS cat)) (VP (VBD sat) (ADJP (IN on) (NP (PRP it))) (. .))))"
    # The VP takes in the full stop, which is no word; ADJP for PP, NNS for NN.
    assert one(GOLD, test) == Sentence(6, 0, matched=4, gold=5, test=5, crossing=0, words=5, tags=4)
    assert one(GOLD, test, Parameters(labelled=False)).matched == 5


def test_crossing_brackets_are_the_tests() -> None:
    test = "(TOP (S (DT the) (X (NN cat) (VBD sat)) (Y (X (NN on) (PRP it))) (. .)))"
    assert one(GOLD, test).crossing == 1
    assert one(test, GOLD).crossing == 2, "NP and VP both cross X"


def test_each_gold_bracket_takes_one() -> None:
    unary = "(S (NP (NP (NN a))))", "(S (NP (NN a)))"
    assert one(*unary).matched == one(*unary[::-1]).matched == 2
    assert one("(S (ADVP (RP up)))", "(S (PRT (RP up)))").matched == 2
    assert one("(S (ADVP (PRT (RP up))))", "(S (PRT (PRT (RP up))))").matched == 3


def test_function_tags_are_cut_and_empty_constituents_do_not_count() -> None:
    gold = "(S (NP-SBJ-1 (NN a)) (VP (VB b) (NP (-NONE- *-1))))"
    assert one(gold, "(S (NP=2 (NN a)) (VP (VB b)))") == Sentence(2, 0, 3, 3, 3, 0, 2, 2)


def test_errors_and_skips_are_counted_apart() -> None:
    gold = [GOLD] * 5
    test = [GOLD, "", "(TOP (S (NP (DT the) (NN dog)) (VP (VBD sat) (PP (IN on) (NP (PRP it)))) (. .)))", "(S (NN a))"]
    result = score(gold, [*test, "(S (. .) (NP ))"])
    assert [sentence.status for sentence in result.sentences] == [0, 2, 1, 1, 1]
    assert [sentence.error for sentence in result.sentences] == [
        "", "", "Words unmatch (cat|dog)", "Length unmatch (5|1)", "Length unmatch (5|1)",
    ]  # fmt: skip
    assert (result.all.valid, result.all.errors, result.all.skipped) == (1, 3, 1)
    assert result.all.f1 == result.all.complete_match == 100
    assert result.all.as_json()["f1"] == 100.0


def test_words_may_count_as_one() -> None:
    rules = Parameters.parse("EQ_WORD Cat cat\nEQ_LABEL NN NNS\nDELETE_LABEL .\n", "rules")
    assert one("(S (NN cat) (. .))", "(S (NNS Cat))", rules) == Sentence(2, 0, 1, 1, 1, 0, 1, 1)


def test_the_cutoff_parts_the_summaries() -> None:
    gold = ["(S " + "(NN a)" * n + ")" for n in (3, 4, 5)]
    rules = Parameters.parse("CUTOFF_LEN 4", "rules")
    assert score(gold, gold, rules).short.sentences == 2
    assert "-- len<=4 --" in score(gold, gold, rules).summary()


def test_nothing_matches_or_there_is_nothing() -> None:
    assert score(["(A (B c))"], ["(D (B c))"]).all.f1 == 0
    assert score([], []).all.as_json()["f1"] == 0
    assert score([GOLD] * 3, [GOLD]).all.sentences == 1, "lines that one file lacks are left out"


def test_unmatched_constituents_are_given_over_all_words() -> None:
    test = "(TOP (S (NP (DT the) (NN cat)) (VP (VBD sat) (ADJP (IN on) (NP (PRP it))) (. .))))"
    assert unmatched(GOLD, test) == {Bracket(3, 5, "PP")}
    assert unmatched(test, GOLD) == {Bracket(3, 5, "ADJP")}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("(S (NN a)", "gold, line 1, column 1: this bracket is never closed"),
        ("(S (NN a)))", "gold, line 1, column 11: a closing bracket"),
        ("words", "gold, line 1, column 1: text between brackets"),
        ("(NN a b)", "gold, line 1, column 5: a bracket holds"),
        ("(S (NN a) b)", "gold, line 1, column 11: text between brackets"),
    ],
)
def test_what_is_not_brackets_is_refused_with_its_place(line: str, complaint: str) -> None:
    with pytest.raises(DataError) as refused:
        score([line], [GOLD])
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("LABELED yes", "rules, line 1: 'LABELED' cannot be 'yes'"),
        ("# fine\n\nEQ_LABEL A", "rules, line 3: 'EQ_LABEL' cannot be 'A'"),
        ("DELETE_LABLE .", "there is no parameter 'DELETE_LABLE'. Did you mean 'DELETE_LABEL'?"),
        ("DELETE_LABEL", "'DELETE_LABEL' cannot be ''"),
    ],
)
def test_parameters_that_evalb_does_not_have(text: str, complaint: str) -> None:
    with pytest.raises(DataError) as refused:
        Parameters.parse(text, "rules")
    assert complaint in str(refused.value)


@given(st.text("() SNab\t", max_size=30), st.text("() SNab", max_size=30))
def test_any_two_lines_are_scored_or_refused(gold: str, test: str) -> None:
    try:
        result: Result = score([gold], [test])
    except DataError:
        return
    assert 0 <= result.all.f1 <= 100
    assert result.all.matched <= min(result.all.gold, result.all.test)


def test_depth_and_length_are_no_limit() -> None:
    deep = "(A " * 20_000 + "(B c)" + ")" * 20_000
    assert one(deep, deep).matched == 20_000
    wide = "(A " + "(B c)" * 20_000 + ")"
    assert one(wide, wide).words == 20_000
