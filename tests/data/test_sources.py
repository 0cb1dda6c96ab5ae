import gzip
from pathlib import Path

import pytest

from t2t_jax.config import Data
from t2t_jax.data import store
from t2t_jax.data.sources import open_source, read_lines
from t2t_jax.errors import ConfigError, DataError


def write_split(folder: Path, stem: str, english: bytes, german: bytes) -> None:
    (folder / f"{stem}.en").write_bytes(english)
    (folder / f"{stem}.de").write_bytes(german)


def files(folder: Path, **settings: str) -> Data:
    return Data(source="files", directory=str(folder), **settings)  # type: ignore[arg-type]


def test_embedded_corpus_is_whole_and_its_splits_are_disjoint() -> None:
    source = open_source(Data())
    pairs = {split: list(source.pairs(split)) for split in ("train", "validation", "test")}  # type: ignore[arg-type]
    assert {split: len(found) for split, found in pairs.items()} == {"train": 30_000, "validation": 1000, "test": 1000}
    english = {split: {source for source, _ in found} for split, found in pairs.items()}
    assert not english["train"] & (english["validation"] | english["test"])
    assert not english["validation"] & english["test"]
    assert pairs["train"][0] == ("Mary is quite superficial.", "Mary ist ziemlich oberflächlich.")


def test_embedded_corpus_translates_both_ways() -> None:
    there = next(open_source(Data()).pairs("test"))
    back = next(open_source(Data(source_language="de", target_language="en")).pairs("test"))
    assert back == there[::-1]
    with pytest.raises(DataError, match="English and German, not en and fr"):
        open_source(Data(target_language="fr"))


def test_a_language_model_reads_one_language(tmp_path: Path) -> None:
    assert next(open_source(Data(task="language_model")).pairs("train")) == ("de", "Mary ist ziemlich oberflächlich.")
    (tmp_path / "train.fr").write_bytes(b"un\n\ndeux\n")
    gaps = open_source(Data(task="masked_language_model"))
    assert next(gaps.pairs("train")) == ("Mary ist ziemlich oberflächlich.",) * 2
    alone = open_source(files(tmp_path, task="language_model", target_language="fr"))
    assert list(alone.pairs("train")) == [("fr", "un"), ("fr", ""), ("fr", "deux")]
    with pytest.raises(DataError, match=r"has neither test.fr nor test.fr.gz"):
        list(alone.pairs("test"))
    with pytest.raises(ConfigError, match="takes text from source='embedded' or 'files'"):
        Data(task="language_model", source="tfds")


def test_text_to_text_has_each_pair_for_every_task(tmp_path: Path) -> None:
    source = open_source(Data(task="text_to_text"))
    pairs = list(source.pairs("test"))
    assert len(pairs) == 1000 + 1000 + 231
    there, back, parse = pairs[0], pairs[1000], pairs[2000]
    plain = next(open_source(Data()).pairs("test"))
    assert there == (f"translate en de: {plain[0]}", plain[1])
    assert back == (f"translate de en: {plain[1]}", plain[0])
    assert parse == ("parse: Introduction", "(TOP (NP NN )NP )TOP")
    assert len(source.fingerprint("test")) == 3
    (tmp_path / "train.tsv").write_bytes(b"one\teins\n")
    both = open_source(files(tmp_path, task="text_to_text")).pairs("train")
    assert list(both) == [("translate en de: one", "eins"), ("translate de en: eins", "one")]


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes("\ufeffa\u2028b\r\nc\u0085d\x0be\x1cf\n\n  \nlast".encode())
    assert [line.decode() for line in read_lines(path)] == ["a\u2028b", "c\u0085d\x0be\x1cf", "", "  ", "last"]


@pytest.mark.parametrize("packed", [False, True])
def test_pairs_of_files_and_tables_read_alike(tmp_path: Path, packed: bool) -> None:
    english, german, table = b"one\ntwo\n", b"eins\nzwei\n", b"one\teins\ntwo\tzwei\textra\n"
    if packed:
        (tmp_path / "train.en.gz").write_bytes(gzip.compress(english))
        (tmp_path / "train.de.gz").write_bytes(gzip.compress(german))
        (tmp_path / "both.tsv.gz").write_bytes(gzip.compress(table))
    else:
        write_split(tmp_path, "train", english, german)
        (tmp_path / "both.tsv").write_bytes(table)
    expected = [("one", "eins"), ("two", "zwei")]
    assert list(open_source(files(tmp_path)).pairs("train")) == expected
    assert list(open_source(files(tmp_path, train="both")).pairs("train")) == expected
    assert list(open_source(files(tmp_path, train="both.tsv")).pairs("train")) == expected


def test_different_line_counts_name_both(tmp_path: Path) -> None:
    write_split(tmp_path, "train", b"a\nb\nc\n", b"a\n")
    with pytest.raises(DataError, match=r"train.en has 3 lines but train.de has 1;"):
        list(open_source(files(tmp_path)).pairs("train"))
    write_split(tmp_path, "train", b"a\n", b"a\nb\n")
    with pytest.raises(DataError, match=r"train.en has 1 lines but train.de has 2;"):
        list(open_source(files(tmp_path)).pairs("train"))


@pytest.mark.parametrize("tokenizer", ["sentencepiece", "whitespace"])
def test_different_line_counts_are_told_by_prepare_too(tmp_path: Path, tokenizer: str) -> None:
    write_split(tmp_path, "train", b"a line\nb line\n", b"eine Zeile\n")
    for stem in ("valid", "test"):
        write_split(tmp_path, stem, b"a\n", b"a\n")
    with pytest.raises(DataError, match=r"^train text: train.en has 2 lines but train.de has 1;"):
        store.prepare(files(tmp_path, tokenizer=tokenizer), tmp_path / "run")


def test_invalid_utf8_is_marked_not_raised(tmp_path: Path) -> None:
    write_split(tmp_path, "train", b"fine\n\xff\xfe\n", b"gut\ngut\n")
    assert list(open_source(files(tmp_path)).pairs("train")) == [("fine", "gut"), (None, "gut")]


def test_missing_things_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--data.directory"):
        open_source(Data(source="files"))
    with pytest.raises(DataError, match="no folder"):
        open_source(files(tmp_path / "nowhere"))
    write_split(tmp_path, "train", b"a\n", b"a\n")
    with pytest.raises(DataError, match=r"neither trian.en nor trian.en.gz. Did you mean 'train.en'"):
        list(open_source(files(tmp_path, train="trian")).pairs("train"))
    (tmp_path / "one.tsv").write_bytes(b"a\tb\nonly\n")
    with pytest.raises(DataError, match="one.tsv, line 2: one column"):
        list(open_source(files(tmp_path, train="one")).pairs("train"))


def test_truncated_gzip_is_said_to_be_damaged(tmp_path: Path) -> None:
    whole = gzip.compress(b"text\n" * 1000)
    (tmp_path / "train.en.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "train.de.gz").write_bytes(b"not gzip at all")
    for language in ("en", "de"):
        with pytest.raises(DataError, match="damaged"):
            list(read_lines(tmp_path / f"train.{language}.gz"))


def test_fingerprint_changes_with_any_byte(tmp_path: Path) -> None:
    write_split(tmp_path, "train", b"a\n", b"b\n")
    before = open_source(files(tmp_path)).fingerprint("train")
    assert before == open_source(files(tmp_path)).fingerprint("train")
    (tmp_path / "train.de").write_bytes(b"c\n")
    after = open_source(files(tmp_path)).fingerprint("train")
    assert before["train.en"] == after["train.en"]
    assert before["train.de"] != after["train.de"]
