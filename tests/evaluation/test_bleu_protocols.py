"""The protocols of BLEU: real outputs against known scores, and small cases worked out by hand."""

import gzip
import importlib.metadata
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.evaluation.bleu import PROTOCOLS, Protocol, bleu
from t2t_jax.evaluation.paper_protocol import split_compounds, tokenized

NEWSTEST = Path(__file__).parents[3] / "shared" / "data" / "newstest2014"
needs_newstest = pytest.mark.skipif(not NEWSTEST.is_dir(), reason="newstest2014 is not beside this checkout")

PAPER, PAPER_AS_WRITTEN = Protocol("paper"), Protocol("paper", straight_quotes=False)


def newstest(name: str) -> list[str]:
    return gzip.open(NEWSTEST / name).read().decode().removesuffix("\n").split("\n")


@needs_newstest
@pytest.mark.parametrize(
    ("output", "protocol", "expected"),
    [
        ("bpe2bpe", "13a", 19.97),
        ("sennrich2016", "13a", 25.27),
        # By Moses' tokenizer.perl and a count of n-grams in Perl, after undoing the escapes of these tokenised texts.
        ("bpe2bpe", PAPER, 21.3907),
        ("sennrich2016", PAPER, 26.7853),
        ("bpe2bpe", PAPER_AS_WRITTEN, 20.9783),
        ("sennrich2016", PAPER_AS_WRITTEN, 26.3203),
    ],
)
def test_real_outputs_have_their_known_scores(output: str, protocol: Protocol | str, expected: float) -> None:
    score = bleu(newstest(f"{output}.output.de.gz"), newstest("newstest2014.de.gz"), protocol)
    assert score.value == pytest.approx(expected, abs=0.005 if protocol == "13a" else 0.00005)
    assert f"ref_len = {62_688 if protocol == '13a' else 64_496})" in score.details


@needs_newstest
def test_segmented_output_scores_as_known_once_joined() -> None:
    texts = [
        [line.replace("@@ ", "") for line in newstest(f"tfnmt_newstest2013_deen.{n}.gz")] for n in ("output", "ref")
    ]
    assert bleu(*texts, "none").value == pytest.approx(22.5847, abs=0.00005)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rich-text format", "rich ##AT##-##AT## text format"),
        ("E-Mail-Adresse", "E ##AT##-##AT## Mail ##AT##-##AT## Adresse"),
        ("1-2-3", "1 ##AT##-##AT## 2-3"),  # each character takes part in one match, as in Perl
        ("a - b -c d- –e–f", "a - b -c d- –e–f"),
        ("", ""),
    ],
)
def test_compounds_split_at_hyphens_within_words(text: str, expected: str) -> None:
    assert split_compounds(text) == expected


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("„Es sind 3,5 %“, sagte er z.B. heute.", "de", "&quot; Es sind 3,5 % &quot; , sagte er z.B. heute ."),
        ("Am 5. Mai kam Dr. Müller… (spät)", "de", "Am 5. Mai kam Dr. Müller ... ( spät )"),
        ("It’s a rich-text file.", "en", "It &apos;s a rich ##AT##-##AT## text file ."),
        ("l’homme, qu'il voit", "fr", "l&apos; homme , qu&apos; il voit"),
        ("It's", "de", "It &apos; s"),
        ("It's", "xx", "It &apos; s"),  # no language of Moses'
        ("A：（１２）", "en", "A : ( 12 )"),
        ("&quot; Tom &amp; Eva &quot;", "de", "&quot; Tom &amp; Eva &quot;"),  # escaped once, not twice
        ("a\u2028b\u0085c\td\xa0e\x01", "de", "a b c d e"),
        (" \t", "de", ""),
    ],
)
def test_text_as_the_paper_counts_it(text: str, language: str, expected: str) -> None:
    assert tokenized([text], language) == [expected]


def test_quotes_of_the_reference() -> None:
    reference, hypothesis = ["„Das ist ein guter Tag“"], ['"Das ist ein guter Tag"']
    assert bleu(hypothesis, reference, PAPER).value == pytest.approx(100)
    assert bleu(reference, reference, PAPER).value == pytest.approx(100)
    # „ against " costs one of 7 unigrams, and the first bigram, trigram and 4-gram
    kept = bleu(hypothesis, reference, PAPER_AS_WRITTEN).value
    assert kept == pytest.approx(100 * (6 / 7 * 5 / 6 * 4 / 5 * 3 / 4) ** 0.25)


def test_multi_bleu_by_hand() -> None:
    four_fifths = bleu(["a b c d e"], ["a b c d f"], "paper")
    assert four_fifths.value == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    hyphen = bleu(["a b-c d"], ["a b-c e"], "paper")  # a b - c d: the hyphen counts as a token
    assert hyphen.value == pytest.approx(four_fifths.value)
    empty_line = bleu(["a b c d e", ""], ["a b c d e", "a b c d e"], "paper")
    assert empty_line.value == pytest.approx(100 * math.exp(1 - 10 / 5))
    assert bleu([""], ["a b c d"], "paper").value == 0
    assert bleu(["a b c x"], ["a b c d"], "paper").value == 0, "no 4-gram is right, and nothing is smoothed"
    assert bleu(["a b c x"], ["a b c d"], "13a").value > 0


def test_case_counts_and_so_does_the_order_of_lines() -> None:
    assert bleu(["A b c d e"], ["a b c d e"], "paper").value == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 / 2) ** 0.25)
    lines = ["a b c d", "e f g h"]
    assert bleu(lines, lines[::-1], "paper").value == 0


def test_the_signature_names_every_step() -> None:
    sacrebleu, sacremoses = map(importlib.metadata.version, ("sacrebleu", "sacremoses"))
    signature = bleu(["a b c d"], ["a b c d"], Protocol("paper", "fr")).signature
    assert signature == (
        "nrefs:1|case:mixed|eff:no|norm:unicode-punct|quotes:straight|tok:moses-fr|compounds:split|"
        f"sacremoses:{sacremoses}|smooth:none|version:{sacrebleu}"
    )
    assert "|quotes:kept|" in bleu(["a b c d"], ["a b c d"], PAPER_AS_WRITTEN).signature
    assert bleu(["a b c d"], ["a b c d"], "intl").signature.startswith("nrefs:1|case:mixed|eff:no|tok:intl|smooth:exp|")


WORDS = st.lists(st.text("abzÄß-'„“1", min_size=1).map(lambda word: f"w{word}w"), min_size=4)
ANYTHING = st.text(st.characters(exclude_categories=["Cs"]))


@given(WORDS, ANYTHING, st.sampled_from([*PROTOCOLS, "none"]), st.sampled_from(["de", "en", "fr", "xx"]))
def test_a_reference_against_itself_is_perfect(words: list[str], more: str, protocol: str, language: str) -> None:
    lines = [" ".join(words), "", more]
    assert bleu(lines, lines, Protocol(protocol, language)).value == pytest.approx(100)
