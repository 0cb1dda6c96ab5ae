import dataclasses
import json
import resource
from pathlib import Path

import numpy as np
import pytest

from t2t_jax.config import Data, Experiment
from t2t_jax.data import store
from t2t_jax.errors import ConfigError, DataError, UserError
from t2t_jax.run_directory import adopt, evaluation_text
from t2t_jax.symbols import EOS_ID


def write_corpus(folder: Path, train: list[tuple[bytes, bytes]]) -> Data:
    """A whitespace corpus of single letters, so that what is stored can be read off."""
    folder.mkdir(exist_ok=True)
    for stem, pairs in (("train", train), ("valid", [(b"a b", b"b a")]), ("test", [(b"a", b"a"), (b"", b"b")])):
        for place, language in enumerate(("en", "de")):
            (folder / f"{stem}.{language}").write_bytes(b"".join(pair[place] + b"\n" for pair in pairs))
    return Data(source="files", directory=str(folder), tokenizer="whitespace", max_length=4)


def test_ordinary_pairs_are_kept_in_order(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "text", [(b"a b", b"b"), (b"b", b"a a a")])
    opened = store.prepare(data, tmp_path / "run")
    corpus = opened.corpus()
    a, b = (opened.tokenizer.encode([letter])[0][0] for letter in "ab")
    assert [len(column) for column in corpus.lengths] == [2, 2]
    assert corpus.source.padded(np.array([1, 0]), 3, 3, EOS_ID).tolist() == [[b, EOS_ID, 0], [a, b, EOS_ID], [0, 0, 0]]
    assert corpus.target.padded(np.array([1]), 1, 4, EOS_ID).tolist() == [[a, a, a, EOS_ID]]


def test_what_is_dropped_is_counted_by_reason(tmp_path: Path) -> None:
    train = [(b"a", b"a"), (b"", b"a"), (b"a", b" \t"), (b"\xff", b"a"), (b"a b a b", b"a"), (b"a", b"b " * 100_000)]
    opened = store.prepare(write_corpus(tmp_path / "text", train), tmp_path / "run")
    facts = opened.manifest["splits"]["train"]
    assert facts["pairs"] == 1
    assert facts["dropped"] == {"empty": 2, "invalid UTF-8": 1, "too long": 2}
    assert facts["tokens"] == {"source": 2, "target": 2}, "end of sentence counts"


def test_evaluation_text_is_kept_whole(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "text", [(b"a", b"a")])
    run = tmp_path / "run"
    opened = store.prepare(data, run)
    adopt(run, Experiment(data=data), opened)
    assert evaluation_text(run, "test") == (["a", ""], ["a", "b"])
    (tmp_path / "text" / "test.en").write_bytes(b"a\rb\n\n")  # a CR inside a line is text
    assert store.prepare(data, run).manifest["splits"]["test"] == {"pairs": 2}
    (tmp_path / "text" / "test.en").write_bytes(b"a\n\xff\n")
    with pytest.raises(DataError, match="test text: line 2 is not valid UTF-8"):
        store.prepare(data, run)


def test_unchanged_store_is_used_again_and_a_changed_one_made_anew(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "text", [(b"a b", b"b"), (b"b", b"a")])
    run = tmp_path / "run"
    store.prepare(data, run)
    stamp = (run / "data" / store.MANIFEST).stat().st_mtime_ns
    store.prepare(data, run)
    assert (run / "data" / store.MANIFEST).stat().st_mtime_ns == stamp

    changes = {
        "another setting": dataclasses.replace(data, max_length=2),
        "another letter": write_corpus(tmp_path / "text", [(b"a b", b"b"), (b"b", b"b")]),
    }
    for what, changed in changes.items():
        before = (run / "data" / store.MANIFEST).stat().st_mtime_ns
        store.prepare(changed, run)
        assert (run / "data" / store.MANIFEST).stat().st_mtime_ns != before, what


WHAT_DEPENDS = {
    "train text": {"tokenizer", "train"},
    "test text": {"test"},
    "tokenizer": {"tokenizer", "train"},
    "filter": {"train"},
    "vocabulary": {"tokenizer", "train"},
}


@pytest.mark.parametrize("change", WHAT_DEPENDS)
def test_a_change_makes_anew_exactly_what_depends_on_it(tmp_path: Path, change: str) -> None:
    data, run = write_corpus(tmp_path / "text", [(b"a b", b"b"), (b"b", b"a")]), tmp_path / "run"
    if change == "tokenizer":
        (tmp_path / "own.vocabulary").write_text("<pad>\n<unk>\n<s>\n</s>\na\nb\n")
        data = dataclasses.replace(data, tokenizer_from=str(tmp_path / "own.vocabulary"))
    before = {path.name: path.stat().st_ino for path in store.prepare(data, run).directory.iterdir()}
    match change:
        case "train text":
            write_corpus(tmp_path / "text", [(b"a b", b"b"), (b"b", b"b")])
        case "test text":
            (tmp_path / "text" / "test.de").write_bytes(b"b\nb\n")
        case "tokenizer":
            (tmp_path / "own.vocabulary").write_text("<pad>\n<unk>\n<s>\n</s>\na\nc\n")
        case "filter":
            data = dataclasses.replace(data, drop_identical=True)
        case "vocabulary":
            data = dataclasses.replace(data, vocabulary_size=5)
    changed = store.prepare(data, run)
    after = {path.name: path.stat().st_ino for path in changed.directory.iterdir()}
    kept = {name for name in before if name != store.MANIFEST and before[name] == after[name]}
    made = {name.split(".")[0] for name in before if name != store.MANIFEST} - {name.split(".")[0] for name in kept}
    assert made == WHAT_DEPENDS[change]
    fresh = store.prepare(data, tmp_path / "fresh").directory
    assert {path.name: path.read_bytes() for path in fresh.iterdir()} == {
        path.name: path.read_bytes() for path in changed.directory.iterdir()
    }


def test_a_store_of_another_version_is_made_anew_but_not_taken_from_others(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "text", [(b"a b", b"b")])
    shared = dataclasses.replace(data, store=str(tmp_path / "shared"))
    for settings, run in ((data, tmp_path / "run"), (shared, tmp_path / "other")):
        opened = store.prepare(settings, run)
        older = opened.manifest | {"format": store.FORMAT - 1}
        (opened.directory / store.MANIFEST).write_text(json.dumps(older))
        with pytest.raises(DataError, match="another version of t2t_jax; prepare it again"):
            dataclasses.replace(opened, manifest=older).corpus()
        with pytest.raises(DataError, match="no prepared data of this version"):
            store.open_store(opened.directory)
    assert len(store.prepare(data, tmp_path / "run").corpus()) == 1
    with pytest.raises(DataError, match="made from other text or settings or by another version"):
        store.prepare(shared, tmp_path / "other")


def test_a_disk_that_fills_up_leaves_nothing(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "text", [(b"a b", b"b")] * 20_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limits[1]))
    try:
        with pytest.raises(DataError, match="cannot be written to .*: File too large"):
            store.prepare(data, tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list((tmp_path / "run").iterdir())


def test_swapped_text_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_corpus(tmp_path / "text", [(b"the house", b"das Haus")])
    for name, line in (("valid.en", b"das Haus\n"), ("valid.de", b"the house\n")):
        (tmp_path / "text" / name).write_bytes(line)
    store.prepare(data, tmp_path / "run")
    told = [line for line in capsys.readouterr().err.splitlines() if "swapped" in line]
    assert len(told) == 1 and told[0].startswith("validation text: source and target look swapped")


def test_runs_of_before_have_the_origin_they_had(tmp_path: Path) -> None:
    """It is compared when a run goes on: settings that came later count only where they are used."""
    settings = store.origin(Data())["settings"]
    assert list(settings) == [
        *("source_language", "target_language", "tokenizer", "vocabulary_size"),
        *("byte_fallback", "character_coverage", "max_length"),
    ]
    assert store.origin(Data())["format"] == 1
    assert "max_length_ratio" in store.origin(Data(max_length_ratio=2.0))["settings"]


@pytest.mark.parametrize("damage", ["flip", "remove", "manifest"])
def test_damaged_store_is_made_anew(tmp_path: Path, damage: str) -> None:
    data = write_corpus(tmp_path / "text", [(b"a b", b"b"), (b"b", b"a")])
    opened = store.prepare(data, tmp_path / "run")
    file = opened.directory / (store.MANIFEST if damage == "manifest" else "train.source.tokens")
    whole = file.read_bytes()
    if damage == "remove":
        file.unlink()
    else:
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    store.prepare(data, tmp_path / "run")
    assert file.read_bytes() == whole


def test_preparing_is_byte_for_byte_repeatable(tmp_path: Path) -> None:
    stores = [store.prepare(Data(vocabulary_size=1000), tmp_path / name).directory for name in ("one", "two")]
    names = sorted(path.name for path in stores[0].iterdir())
    assert names == sorted(path.name for path in stores[1].iterdir())
    for name in names:
        assert (stores[0] / name).read_bytes() == (stores[1] / name).read_bytes(), name


def test_saved_tokenizer_is_reused(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "text", [(b"a b", b"b")])
    first = store.prepare(data, tmp_path / "run")
    first.tokenizer.save(tmp_path / "run")
    other = write_corpus(tmp_path / "other", [(b"c b", b"b")])
    reused = store.prepare(dataclasses.replace(other, tokenizer_from=str(tmp_path / "run")), tmp_path / "second")
    assert reused.tokenizer.encode(["a b c"]) == first.tokenizer.encode(["a b c"])
    with pytest.raises(DataError, match="tokenizer_from='nowhere'"):
        store.prepare(dataclasses.replace(other, tokenizer_from="nowhere"), tmp_path / "third")


@pytest.mark.parametrize(
    ("train", "sentence"),
    [
        ([(b"a b a b a", b"a")], r"No training pair is left: 1 too long"),
        ([(b"\xff", b"a")], r"No training pair is left: 1 invalid UTF-8"),
    ],
)
def test_nothing_left_says_why_and_leaves_nothing(tmp_path: Path, train: list, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        store.prepare(write_corpus(tmp_path / "text", train), tmp_path / "run")
    assert not list((tmp_path / "run").glob("*"))


def test_a_sample_too_small_for_the_vocabulary_says_what_works_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"vocabulary_size=4000 is more than .*set it to at most \d+"):
        store.prepare(Data(vocabulary_size=4000, vocabulary_sample=50), tmp_path / "run")
    assert not list((tmp_path / "run").iterdir())


def test_unwritable_place_is_one_sentence(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "text", [(b"a", b"a")])
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="cannot be written"):
        store.prepare(data, tmp_path / "file")


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "text", [(b"a", b"a")])
    for name in ("store.json", "tokenizer.model"):  # names that a store has too
        (tmp_path / "text" / name).write_text("{}")
    with pytest.raises(DataError, match="something else"):
        store.prepare(dataclasses.replace(data, store=str(tmp_path / "text")), tmp_path / "run")
    assert (tmp_path / "text" / "train.en").read_bytes() == b"a\n"


def test_a_shared_store_is_used_by_all_and_replaced_by_none(tmp_path: Path) -> None:
    data = write_corpus(tmp_path / "text", [(b"a b", b"b")])
    shared = dataclasses.replace(data, store=str(tmp_path / "deep" / "store"))
    first = store.prepare(shared, tmp_path / "one")
    assert store.prepare(shared, tmp_path / "two").directory == first.directory
    with pytest.raises(DataError, match="made from other text or settings"):
        store.prepare(dataclasses.replace(shared, max_length=2), tmp_path / "three")


@pytest.mark.parametrize("moment", ["old moved away", "new not yet there", "new not yet moved"])
def test_what_a_kill_leaves_behind_is_cleared_up(tmp_path: Path, moment: str) -> None:
    data = write_corpus(tmp_path / "text", [(b"a b", b"b")])
    run = tmp_path / "run"
    whole = {path.name: path.read_bytes() for path in store.prepare(data, run).directory.iterdir()}
    if moment == "old moved away":
        (run / "data").rename(run / ".data.old")
    if moment == "new not yet moved":
        (run / "data").rename(run / ".data.partial")
        for name in (store.ORIGIN, store.JOURNAL):
            (run / ".data.partial" / name).write_text("{}")
    else:
        (run / ".data.partial").mkdir()
        (run / ".data.partial" / "train.source.tokens").write_bytes(b"half")
    store.prepare(data, run)
    assert {path.name: path.read_bytes() for path in (run / "data").iterdir()} == whole
    assert {path.name for path in run.iterdir()} == {"data"}


def test_manifest_names_no_place(tmp_path: Path) -> None:
    opened = store.prepare(write_corpus(tmp_path / "text", [(b"a", b"a")]), tmp_path / "run")
    assert str(tmp_path) not in json.dumps(opened.manifest)
