"""TFDS's own WMT14 builder, on small archives with the real ones' names and inner paths.

A local server plays the HTTP proxy, so that the builder keeps its real addresses. Checksums stay on: `publish`
registers those of the small archives.
"""

import dataclasses
import errno
import gzip
import http.server
import io
import shutil
import socket
import sys
import tarfile
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("tensorflow_datasets")

from tensorflow_datasets.core.download import checksums, downloader
from tensorflow_datasets.translate.wmt14 import Wmt14Translate

from t2t_jax import config
from t2t_jax.data import pipeline, store
from t2t_jax.data.sources import open_source
from t2t_jax.errors import ConfigError, DataError
from t2t_jax.symbols import EOS_ID

KNOWN = checksums.get_all_url_infos()
TRAIN = {
    ("Schöne Grüße aus Köln!", "Best regards from Cologne!"),
    ("Wiederaufnahme der Sitzungsperiode", "Resumption of the session"),
    ("  Leerzeichen bleiben. ", " Spaces stay.  "),
    ("Zwei Zeilen in einer", "Two lines in one"),
    ("Das Ende", "The end"),
}
VALIDATION = [("Guten Morgen", "Good morning"), ("Auf Wiedersehen – „bis bald“", "Goodbye – “see you soon”")]
TEST = [("Süße Äpfel &amp; Öl", "Sweet apples &amp; oil")]


def segments(*sentences: str) -> str:
    lines = [f'<seg id="{i}">{sentence}</seg>' for i, sentence in enumerate(sentences, start=1)]
    return "\n".join(['<srcset setid="newstest2014" srclang="any">', "<doc>", "<p>", *lines, "</p>", "</doc>\n"])


GERMAN = {
    "training-parallel-europarl-v7.tgz": {
        "training/europarl-v7.de-en.de": "Wiederaufnahme der Sitzungsperiode\n\n  Leerzeichen bleiben. \n",
        "training/europarl-v7.de-en.en": "Resumption of the session\nleft out: no German\n Spaces stay.  \n",
    },
    "training-parallel-commoncrawl.tgz": {
        "commoncrawl.de-en.de": "Schöne Grüße aus Köln!\nZwei Zeilen\rin einer\r\n",
        "commoncrawl.de-en.en": "Best regards from Cologne!\nTwo lines in one\r\n",
    },
    "training-parallel-nc-v9.tgz": {
        "training/news-commentary-v9.de-en.de": "Das Ende\n",
        "training/news-commentary-v9.de-en.en": "The end\n",
    },
    "dev.tgz": {
        "dev/newstest2013.de": "Guten Morgen\nAuf Wiedersehen – „bis bald“\n",
        "dev/newstest2013.en": "Good morning\nGoodbye – “see you soon”\n",
        "dev/newstest2014-deen-src.de.sgm": segments("Süße Äpfel &amp; Öl"),
        "dev/newstest2014-deen-ref.en.sgm": segments("Sweet apples &amp; oil"),
    },
}
HINDI = {
    "wiki-titles.tgz": {"wiki/hi-en/wiki-titles.hi-en": "दिल्ली ||| Delhi\n"},
    "dev.tgz": {
        "dev/newsdev2014.hi": "नमस्ते\n",
        "dev/newsdev2014.en": "Hello\n",
        "dev/newstest2014-hien-src.hi.sgm": segments("धन्यवाद"),
        "dev/newstest2014-hien-ref.en.sgm": segments("Thanks"),
    },
}
# Everything that WMT14 has for French, in its own formats: tars in gzip, a tar of gzips, SGML.
FRENCH = {
    "training-parallel-europarl-v7.tgz": {
        "training/europarl-v7.fr-en.fr": "Reprise de la session\n",
        "training/europarl-v7.fr-en.en": "Resumption of the session\n",
    },
    "training-parallel-commoncrawl.tgz": {
        "commoncrawl.fr-en.fr": "Il a dit\xa0: «\xa0Où est-ce\xa0?\xa0»\n",
        "commoncrawl.fr-en.en": "He said: “Where is it?”\n",
    },
    "training-parallel-un.tgz": {
        "un/undoc.2000.fr-en.fr": "L’Assemblée générale\n",
        "un/undoc.2000.fr-en.en": "The General Assembly\n",
    },
    "training-parallel-nc-v9.tgz": {
        "training/news-commentary-v9.fr-en.fr": "La fin\n",
        "training/news-commentary-v9.fr-en.en": "The end\n",
    },
    "training-giga-fren.tar": {
        "giga-fren.release2.fixed.fr.gz": "Œuvre d’art\nCœur\n",
        "giga-fren.release2.fixed.en.gz": "Work of art\nHeart\n",
    },
    "dev.tgz": {
        "dev/newstest2013.fr": "Bonjour\n",
        "dev/newstest2013.en": "Good morning\n",
        "dev/newstest2014-fren-src.fr.sgm": segments("«\xa0Pommes\xa0» &amp; huile"),
        "dev/newstest2014-fren-ref.en.sgm": segments("“Apples” &amp; oil"),
    },
}


def packed(archives: dict[str, dict[str, str]]) -> dict[str, bytes]:
    files = {}
    for name, members in archives.items():
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w" if name.endswith(".tar") else "w:gz") as archive:
            for path, text in members.items():
                content = gzip.compress(text.encode()) if path.endswith(".gz") else text.encode()
                member = tarfile.TarInfo(path)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        files[name] = stream.getvalue()
    return files


def place(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    monkeypatch.setattr(downloader, "MAX_RETRIES", 0)  # ten retries take minutes
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{free.getsockname()[1]}"
    for variable in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(variable, nowhere)
    for variable in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def publish(monkeypatch):
    """Make TFDS expect these files, under the addresses it knows."""

    def register(files: dict[str, bytes], folder: Path) -> None:
        place(folder, files)
        urls = [url for url in KNOWN if Path(url).name in files]
        infos = {url: checksums.compute_url_info(folder / Path(url).name) for url in urls}
        monkeypatch.setattr(checksums, "get_all_url_infos", lambda: infos)

    return register


@pytest.fixture
def proxy(monkeypatch):
    """An HTTP proxy that answers every address with the file of that name in `files`."""
    files: dict[str, bytes] = {}
    announced: dict[str, int] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.rsplit("/", 1)[-1]
            self.send_response(200 if name in files else 404)
            content = files.get(name, b"")
            self.send_header("Content-Length", str(announced.get(name, len(content))))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.server_port}")
    yield SimpleNamespace(files=files, announced=announced)
    server.shutdown()
    server.server_close()


@pytest.fixture
def by_hand(tmp_path, publish):
    """A data directory to which a person has brought the archives."""
    publish(packed(GERMAN), tmp_path / "downloads" / "manual")
    return tmp_path


def wmt14(directory: Path, source: str = "de", target: str = "en", **names: str) -> config.Data:
    names = {"validation": "validation", **names}
    return config.Data(source="tfds", directory=str(directory), source_language=source, target_language=target, **names)


def refusal(directory: Path) -> str:
    """The message with which preparing fails; nothing unfinished may stay."""
    with pytest.raises(DataError) as caught:
        list(open_source(wmt14(directory)).pairs("train"))
    message = str(caught.value)
    assert "\n" not in message
    assert not list(directory.glob("unpacked.*")) and not list(directory.glob("wmt14_translate/de-en/*"))
    return message


def test_downloads_and_reads_every_split(tmp_path, publish, proxy, capsys):
    proxy.files.update(packed(GERMAN))
    publish(proxy.files, tmp_path / "published")
    source = open_source(wmt14(tmp_path / "data"))
    train = list(source.pairs("train"))
    assert set(train) == TRAIN and len(train) == len(TRAIN)
    assert sorted(source.pairs("validation")) == sorted(VALIDATION)
    assert list(source.pairs("test")) == TEST

    proxy.files.clear()  # what is prepared needs no network
    other_way = open_source(wmt14(tmp_path / "data", "en", "de"))
    assert list(other_way.pairs("train")) == [(english, german) for german, english in train]
    assert list(other_way.pairs("test")) == [(english, german) for german, english in TEST]

    assert not [name for name in sys.modules if name.split(".")[0] == "tensorflow"]
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1 and printed.err.startswith("Preparing WMT14 de-en in")


@pytest.mark.parametrize("reach", ["downloaded", "by hand"])
def test_english_french_from_archives_to_the_first_batch(tmp_path, publish, proxy, reach):
    files = packed(FRENCH)
    publish(files, tmp_path / ("downloads/manual" if reach == "by hand" else "published"))
    if reach == "downloaded":
        proxy.files.update(files)
    data = dataclasses.replace(wmt14(tmp_path, "en", "fr"), tokenizer="whitespace", drop_identical=True)
    prepared = store.prepare(data, tmp_path / "run")
    assert prepared.manifest["splits"]["train"]["pairs"] == 6
    corpus = prepared.corpus()
    plan = pipeline.plan_for(data, corpus, seed=1)
    assert plan.batches_per_epoch == 1
    (batch,) = pipeline.batches(corpus, plan, 0, 1)
    rows = {tuple(prepared.tokenizer.decode([i for i in row if i > EOS_ID]) for row in pair) for pair in zip(*batch)}  # noqa: B905
    assert {("He said: “Where is it?”", "Il a dit\xa0: «\xa0Où est-ce\xa0?\xa0»"), ("Heart", "Cœur")} < rows
    assert (prepared.directory / "test.target").read_text() == "«\xa0Pommes\xa0» &amp; huile\n"


def test_corpora_may_be_named(tmp_path, publish):
    later = {
        "training-parallel-nc-v13.tgz": {
            "training-parallel-nc-v13/news-commentary-v13.de-en.de": "Neuer Kommentar\n",
            "training-parallel-nc-v13/news-commentary-v13.de-en.en": "New comment\n",
        }
    }
    publish(packed({**GERMAN, **later}), tmp_path / "downloads" / "manual")
    corpora = ("europarl_v7", "commoncrawl", "newscommentary_v13")
    named = dataclasses.replace(wmt14(tmp_path), corpora=corpora)
    assert set(open_source(named).pairs("train")) == TRAIN - {("Das Ende", "The end")} | {
        ("Neuer Kommentar", "New comment")
    }
    assert list(open_source(named).pairs("test")) == TEST
    assert set(open_source(wmt14(tmp_path)).pairs("train")) == TRAIN, "each mixture has a folder of its own"
    with pytest.raises(ConfigError, match=r"no 'commoncrowl' for de-en. Did you mean 'commoncrawl'"):
        open_source(dataclasses.replace(named, corpora=("commoncrowl",)))


def test_archives_brought_by_hand(by_hand):
    source = open_source(wmt14(by_hand, train="test"))
    assert list(source.pairs("train")) == list(source.pairs("test")) == TEST


def test_what_a_kill_leaves_is_cleared_away(by_hand):
    leftovers = [by_hand / "unpacked.x" / "a", by_hand / "wmt14_translate" / "de-en" / "incomplete.x_1.0.0"]
    for leftover in leftovers:
        leftover.mkdir(parents=True)
    assert list(open_source(wmt14(by_hand)).pairs("test")) == TEST
    assert not list(by_hand.glob("unpacked.*")) and not leftovers[1].exists()


def test_fingerprint_follows_the_text(by_hand, tmp_path_factory, publish):
    first = open_source(wmt14(by_hand))
    before = {split: first.fingerprint(split) for split in ("train", "validation", "test")}
    assert before["train"].keys() == {"wmt14_translate-train.array_record-00000-of-00001"}
    assert {split: open_source(wmt14(by_hand)).fingerprint(split) for split in before} == before

    again, changed = (tmp_path_factory.mktemp(name) for name in ("again", "changed"))
    publish(packed(GERMAN), again / "downloads" / "manual")
    assert open_source(wmt14(again)).fingerprint("train") == before["train"]

    members = {**GERMAN["training-parallel-nc-v9.tgz"], "training/news-commentary-v9.de-en.de": "Das Ende.\n"}
    publish(packed({**GERMAN, "training-parallel-nc-v9.tgz": members}), changed / "downloads" / "manual")
    after = {split: open_source(wmt14(changed)).fingerprint(split) for split in before}
    assert after["train"] != before["train"]
    assert after["validation"] == before["validation"] and after["test"] == before["test"]


def test_hindi_has_an_archive_that_only_a_person_can_bring(tmp_path, publish):
    manual = tmp_path / "downloads" / "manual"
    publish(packed(HINDI), manual)
    source = open_source(wmt14(tmp_path, "en", "hi"))
    with pytest.raises(DataError, match=r"you must manually download .*downloads/manual: hindencorp0\.1\.gz"):
        source.fingerprint("train")
    (manual / "hindencorp0.1.gz").write_bytes(gzip.compress("a\tb\tc\tA book\tएक किताब\n".encode()))
    assert set(source.pairs("train")) == {("Delhi", "दिल्ली"), ("A book", "एक किताब")}


def test_no_connection(tmp_path, publish):
    message = refusal(tmp_path)
    assert "ProxyError: http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz" in message
    assert f"{tmp_path}/downloads/manual" in message
    urls = [url for url in Wmt14Translate.url_infos if "wiki-titles" not in url]
    assert all(url in message for url in urls)

    publish(packed(GERMAN), tmp_path / "downloads" / "manual")
    assert list(open_source(wmt14(tmp_path)).pairs("test")) == TEST


def test_missing_and_broken_off_downloads(tmp_path, publish, proxy):
    files = packed(GERMAN)
    publish(files, tmp_path / "published")
    assert "HTTP code: 404" in refusal(tmp_path)

    last = "dev.tgz"
    proxy.files.update({**files, last: files[last][:100]})
    proxy.announced[last] = len(files[last])
    assert "a download failed" in refusal(tmp_path)

    proxy.announced.clear()  # now the server does not even know that something is missing
    assert "wrong checksum" in refusal(tmp_path)

    proxy.files.update(files)
    assert list(open_source(wmt14(tmp_path)).pairs("test")) == TEST


def test_the_real_checksums_are_verified(tmp_path):
    place(tmp_path / "downloads" / "manual", packed(GERMAN))
    message = refusal(tmp_path)
    assert "downloads/manual/training-parallel-europarl-v7.tgz, has wrong checksum" in message


def test_text_that_is_not_parallel(tmp_path, publish):
    members = {**GERMAN["training-parallel-nc-v9.tgz"], "training/news-commentary-v9.de-en.en": "The end\nor not\n"}
    publish(packed({**GERMAN, "training-parallel-nc-v9.tgz": members}), tmp_path / "downloads" / "manual")
    assert "Sizes do not match: 2 vs 3" in refusal(tmp_path)


def test_full_disk(by_hand, monkeypatch):
    def full(archive, target, **_):
        target.mkdir()
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "unpack_archive", full)
        assert "No space left on device" in refusal(by_hand)
    assert list(open_source(wmt14(by_hand)).pairs("test")) == TEST


def test_damaged_records(by_hand):
    open_source(wmt14(by_hand)).fingerprint("train")
    file = next(by_hand.glob("wmt14_translate/de-en/1.0.0/*-train.array_record*"))
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="train text in .*1.0.0' cannot be read: .*Delete that folder"):
        list(open_source(wmt14(by_hand)).pairs("train"))
    file.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        list(open_source(wmt14(by_hand)).pairs("train"))
    with pytest.raises(DataError, match="cannot be read"):
        open_source(wmt14(by_hand)).fingerprint("train")


def test_another_format_is_refused(by_hand):
    open_source(wmt14(by_hand)).fingerprint("train")
    info = by_hand / "wmt14_translate/de-en/1.0.0/dataset_info.json"
    info.write_text(info.read_text().replace("array_record", "tfrecord"))
    with pytest.raises(DataError, match="not in the array_record format"):
        open_source(wmt14(by_hand)).fingerprint("train")


def test_line_ends_and_bytes_that_are_not_text(tmp_path):
    source = open_source(wmt14(tmp_path))
    records = [{"de": b"\nzwei\r\n\nZeilen\n", "en": b"two lines"}, {"de": b"Gr\xfc\xdfe", "en": b" regards "}]

    class Records(list):
        def __getitems__(self, keys):
            return [self[key] for key in keys]

    source._builder = SimpleNamespace(as_data_source=lambda split: Records(records))
    assert list(source.pairs("train")) == [("zwei Zeilen", "two lines"), (None, " regards ")]


def test_unknown_pair_and_split(tmp_path):
    with pytest.raises(ConfigError, match="no it-de; it has, both ways, cs-en, de-en, fr-en, hi-en, ru-en"):
        open_source(wmt14(tmp_path, "it", "de"))
    with pytest.raises(ConfigError, match="validation='valid' is not a split.*train, validation, test"):
        open_source(wmt14(tmp_path, validation="valid"))


@pytest.mark.parametrize("module", ["tensorflow_datasets.translate.wmt14", "array_record.python.array_record_module"])
def test_missing_package(tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataError, match="pip install tensorflow-datasets array_record importlib_resources"):
        open_source(wmt14(tmp_path))
