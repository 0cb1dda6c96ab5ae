import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.config import Data
from t2t_jax.data import tokenizer as tokenizers
from t2t_jax.data.sources import open_source
from t2t_jax.errors import ConfigError, DataError, RunError
from t2t_jax.symbols import BOS_ID, EOS_ID, PAD_ID, SPECIAL_SYMBOLS, UNK_ID

LINES = [line for pair in list(open_source(Data()).pairs("validation")) for line in pair if line]
SENTENCEPIECE = tokenizers.train(Data(vocabulary_size=1000), LINES)

# Everything but what ends a line, surrogates, and SentencePiece's own sign for a space.
ordinary = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r▁"), max_size=60)


@given(ordinary)
def test_text_survives_the_round_trip(line: str) -> None:
    assert SENTENCEPIECE.decode(SENTENCEPIECE.encode([line])[0]) == line


@given(ordinary)
def test_text_never_encodes_to_a_symbol_with_a_meaning(line: str) -> None:
    assert not {PAD_ID, BOS_ID, EOS_ID, UNK_ID} & set(SENTENCEPIECE.encode([line])[0])


@given(st.lists(st.integers(0, 999), max_size=30))
def test_any_ids_decode_to_one_line(ids: list[int]) -> None:
    line = SENTENCEPIECE.decode(ids)
    assert "\n" not in line
    assert "\r" not in line


def test_training_is_deterministic_and_has_the_size_asked_for(tmp_path: Path) -> None:
    again = tokenizers.train(Data(vocabulary_size=1000), LINES)
    names = [tok.save(tmp_path).read_bytes() for tok in (SENTENCEPIECE, again)]
    assert names[0] == names[1]
    assert again.size == 1000


def test_saved_tokenizer_is_the_same(tmp_path: Path) -> None:
    file = SENTENCEPIECE.save(tmp_path)
    for place in (tmp_path, file):
        assert tokenizers.load(place).encode(LINES) == SENTENCEPIECE.encode(LINES)


def test_impossible_vocabularies_name_the_number_that_works() -> None:
    with pytest.raises(ConfigError, match=r"vocabulary_size=50000 is more than.*at most (\d+)"):
        tokenizers.train(Data(vocabulary_size=50_000), LINES)
    with pytest.raises(ConfigError, match=r"vocabulary_size=100 is too small"):
        tokenizers.train(Data(vocabulary_size=100), LINES)
    with pytest.raises(ConfigError, match=r"vocabulary_size=4 leaves no entry"):
        Data(vocabulary_size=4)
    with pytest.raises(DataError, match="no training text"):
        tokenizers.train(Data(), ["", "  "])


def test_vocabulary_size_that_the_error_names_works() -> None:
    with pytest.raises(ConfigError) as caught:
        tokenizers.train(Data(vocabulary_size=400), ["ab cd ef", "cd"])
    largest = int(str(caught.value).split("at most ")[1].rstrip("."))
    assert tokenizers.train(Data(vocabulary_size=largest), ["ab cd ef", "cd"]).size == largest


def test_whitespace_vocabulary_is_ranked_and_joins_subwords(tmp_path: Path) -> None:
    data = Data(tokenizer="whitespace", vocabulary_size=7)
    tokenizer = tokenizers.train(data, ["a hou@@ se", "a b <pad>", "a b"])
    assert tokenizer.size == 7
    # 4 a (three times), 5 b (twice), 6 the first of the rest in alphabetical order
    assert tokenizer.encode(["a b hou@@ se"]) == [[4, 5, 6, UNK_ID]]
    whole = tokenizers.train(Data(tokenizer="whitespace"), ["a hou@@ se"])
    assert whole.decode(whole.encode(["a  hou@@ se"])[0]) == "a house"
    assert whole.plain("a hou@@ se") == "a house", "what a translation is compared with"
    assert whole.encode(["<s> a </s>"])[0][::2] == [UNK_ID, UNK_ID], "text spells no symbol with a meaning"
    whole.save(tmp_path)
    assert tokenizers.load(tmp_path).encode(["hou@@ a"]) == whole.encode(["hou@@ a"])


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n \t@"), min_size=1), min_size=1))
def test_whitespace_tokens_may_hold_anything_else(tokens: list[str]) -> None:
    line = " ".join(tokens)
    if not line.strip():
        return
    tokenizer = tokenizers.train(Data(tokenizer="whitespace"), [line])
    with tempfile.TemporaryDirectory() as folder:
        again = tokenizers.load(tokenizer.save(Path(folder)))
    ids = again.encode([line])[0]
    assert len(ids) == len(tokens)
    if not set(tokens) & set(SPECIAL_SYMBOLS):
        assert again.pieces(ids) == tokens
    assert not {"\n", "\r"} & set(again.decode(ids))


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no tokenizer"):
        tokenizers.load(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"nonsense")
    with pytest.raises(RunError, match="not a SentencePiece model"):
        tokenizers.load(tmp_path)
    (tmp_path / "x.vocabulary").write_text("a\nb\n")
    with pytest.raises(RunError, match="damaged"):
        tokenizers.load(tmp_path / "x.vocabulary")
