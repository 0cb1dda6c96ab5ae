"""Treebanks as pairs, their vocabulary, and two corpora mixed."""

import gzip
from pathlib import Path

import pytest

from t2t_jax.config import Data, Experiment
from t2t_jax.data import store
from t2t_jax.data import tokenizer as tokenizers
from t2t_jax.data.sources import open_source
from t2t_jax.data.tokenizer import BracketTokenizer
from t2t_jax.errors import ConfigError, DataError, RunError
from t2t_jax.parsing.linear import tree_of
from t2t_jax.symbols import UNK_ID
from t2t_jax.trajectory import config_hash

TREES = [f"(TOP (S (NP (DT the) (NN cat{i})) (VP (VBD sat)) (. .)))" for i in range(60)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.trees").write_text("\n".join(TREES))
    (tmp_path / "valid.mrg").write_text("( (S (NP-SBJ (NN a))\n   (VP (VB b) (NP (-NONE- *)))) )\n")
    (tmp_path / "test.trees.gz").write_bytes(gzip.compress(TREES[0].encode()))
    return tmp_path


def trees(folder: Path, **settings: object) -> Data:
    return Data(task="parsing", source="files", directory=str(folder), vocabulary_size=300, **settings)  # type: ignore[arg-type]


def test_embedded_trees_are_whole_and_give_themselves_back() -> None:
    source = open_source(Data(task="parsing"))
    pairs = {split: list(source.pairs(split)) for split in ("train", "validation", "test")}  # type: ignore[arg-type]
    assert {split: len(found) for split, found in pairs.items()} == {"train": 2493, "validation": 293, "test": 231}
    sentence, tokens = pairs["test"][0]
    assert str(tree_of(str(tokens).split(" "), str(sentence).split(" "))) == "(TOP (NP (NN Introduction)))"


def test_trees_become_normalised_pairs(folder: Path) -> None:
    source = open_source(trees(folder))
    assert next(source.pairs("train")) == ("the cat0 sat .", "(TOP (S (NP DT NN )NP (VP VBD )VP . )S )TOP")
    assert list(source.pairs("validation")) == [("a b", "(TOP (S (NP NN )NP (VP VB )VP )S )TOP")]
    assert len(list(source.pairs("test"))) == 1
    assert list(source.fingerprint("validation")) == ["valid.mrg"]


def test_trees_that_are_missing_or_damaged_are_refused_with_their_place(folder: Path) -> None:
    with pytest.raises(DataError, match=r"has no tran\.trees, tran\.mrg or tran, gzipped or not\. Did you mean 'train"):
        list(open_source(trees(folder, train="tran")).pairs("train"))
    (folder / "train.trees").write_text("(A (B c))\n(A (B c)\n")
    with pytest.raises(DataError, match=r"train\.trees, line 2, column 1: this bracket is never closed"):
        list(open_source(trees(folder)).pairs("train"))
    (folder / "train.trees").write_bytes(b"(A (B \xff))")
    with pytest.raises(DataError, match=r"train\.trees, line 1: the bytes are not UTF-8"):
        list(open_source(trees(folder)).pairs("train"))


def test_prepared_trees(folder: Path, tmp_path: Path) -> None:
    prepared = store.prepare(trees(folder), tmp_path / "run")
    tokenizer = prepared.tokenizer
    assert isinstance(tokenizer, BracketTokenizer)
    assert tokenizer.size == 300
    ids = list(prepared.corpus().target.tokens[: int(prepared.corpus().target.lengths[0])])
    assert tokenizer.decode(ids) == "(TOP (S (NP DT NN )NP (VP VBD )VP . )S )TOP"
    assert len(ids) == len(set(ids)) == 12, "a token is one entry"
    assert sorted(ids) == list(range(288, 300)), "behind those of sentences"
    assert tokenizers.load(prepared.directory) == tokenizer
    again = store.prepare(trees(folder), tmp_path / "other")
    assert again.manifest["sha256"] == prepared.manifest["sha256"]


def test_a_vocabulary_of_brackets() -> None:
    pairs = [("the cat sat .", "(S (NP DT NN )NP VBD . )S")] * 5
    tokenizer = tokenizers.train_on_trees(Data(task="parsing", vocabulary_size=290, byte_fallback=True), pairs)
    (target,) = tokenizer.encode(["(S (FOO NN"], "target")
    assert target[1] == UNK_ID
    assert tokenizer.decode([*target, 5]) == "(S XX NN XX"
    assert tokenizer.pieces(tokenizer.encode(["cat"])[0])[0].startswith("▁")
    with pytest.raises(ConfigError, match="vocabulary_size=10 leaves no entry for text beside the 8 of trees"):
        tokenizers.train_on_trees(Data(task="parsing", vocabulary_size=10), pairs)
    with pytest.raises(ConfigError, match="set it to at most") as refused:
        tokenizers.train_on_trees(Data(task="parsing", vocabulary_size=5000), pairs)
    most = int(str(refused.value).rstrip(".").split(" ")[-1])
    assert tokenizers.train_on_trees(Data(task="parsing", vocabulary_size=most), pairs).size == most
    with pytest.raises(DataError, match="no trees"):
        tokenizers.train_on_trees(Data(task="parsing"), [])


def test_a_damaged_vocabulary_or_that_of_another_task_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.brackets.json").write_text('{"source": "AAAA"}')
    with pytest.raises(RunError, match="is damaged"):
        tokenizers.load(tmp_path)
    prepared = store.prepare(trees(folder), tmp_path / "run")
    reusing = Data(tokenizer_from=str(prepared.directory))
    with pytest.raises(DataError, match="for another task than translation"):
        store.prepare(reusing, tmp_path / "translation")


@pytest.mark.parametrize(("share", "expected"), [(0.5, (60, 60)), (0.75, (60, 180)), (0.2, (60, 15)), (0.05, (133, 7))])
def test_a_second_corpus_has_its_share(folder: Path, share: float, expected: tuple[int, int]) -> None:
    extra = 7
    (folder / "parsed.trees").write_text("\n".join("(TOP (X (Y z)))" for _ in range(extra)))
    source = open_source(trees(folder, extra_train="parsed", extra_share=share))
    pairs = list(source.pairs("train"))
    theirs = sum(source == "z" for source, _ in pairs)
    assert (len(pairs) - theirs, theirs) == expected
    assert pairs == list(source.pairs("train"))
    assert sorted(source.fingerprint("train")) == ["parsed.trees", "train.trees"]
    assert list(source.fingerprint("test")) == ["test.trees.gz"]


def test_the_stores_and_hashes_of_translation_are_as_before(tmp_path: Path) -> None:
    assert set(store.origin(Data())["settings"]) == {
        "source_language", "target_language", "tokenizer", "vocabulary_size", "byte_fallback", "character_coverage",
        "max_length",
    }  # fmt: skip
    assert config_hash(Experiment()) == config_hash(Experiment(data=Data(task="translation", extra_share=0.5)))
    assert config_hash(Experiment()) != config_hash(Experiment(data=Data(task="parsing")))


def test_settings_that_cannot_work() -> None:
    for settings in ({"tokenizer": "whitespace"}, {"source": "tfds"}):
        with pytest.raises(ConfigError, match="task='parsing' takes trees"):
            Data(task="parsing", **settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="extra_train='x' needs source='files'"):
        Data(extra_train="x")
    with pytest.raises(ConfigError, match="extra_share=1"):
        Data(extra_share=1)
