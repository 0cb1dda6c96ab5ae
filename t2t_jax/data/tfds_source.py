"""WMT14 from TensorFlow Datasets (TFDS), without TensorFlow.

TFDS knows the corpora of the shared task: it downloads their archives, verifies the checksums, pairs the lines and
writes ArrayRecord files. Only unpacking would need TensorFlow; `_Unpacker` does it with the standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gzip
import importlib
import io
import logging
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.data.sources import SPLITS, Pair, Split, digests
from t2t_jax.errors import ConfigError, DataError, suggestion
from t2t_jax.progress import console, say

RECORDS_AT_ONCE = 1024  # one by one they take two and a half times as long
UNPACKED = "unpacked."  # folders of archives, there while the records are written
LINE_ENDS = re.compile(r"[\r\n]+")


class TfdsSource:
    """One of WMT14's language pairs in either direction, prepared in `data.directory` when it is first read.

    Pairs come in TFDS's order, which is shuffled but always the same; pairs with an empty side it has left out. Every
    text is one line: line ends around it are dropped, and a run of CRs and LFs inside it becomes one space.
    """

    def __init__(self, data: config.Data):
        languages = (data.source_language, data.target_language)
        configs = {found.name: found for found in _import_wmt14().BUILDER_CONFIGS}
        found = [name for name in configs if set(name.split("-")) == set(languages)]
        if not found:
            raise ConfigError(f"data: WMT14 has no {'-'.join(languages)}; it has, both ways, {', '.join(configs)}.")
        self._languages, self._config, self._corpora = languages, configs[found[0]], data.corpora
        if data.corpora:
            self._config = _with_corpora(self._config, data.corpora)
        self._names: dict[Split, str] = {"train": data.train, "validation": data.validation, "test": data.test}
        for split, name in self._names.items():
            if name not in SPLITS:
                raise ConfigError(f"data: {split}={name!r} is not a split of TFDS's WMT14; it has {', '.join(SPLITS)}.")
        self._directory = None if data.directory is None else Path(data.directory).expanduser().absolute()

    def pairs(self, split: Split) -> Iterator[Pair]:
        builder = self._builder
        records = builder.as_data_source(split=self._names[split])
        for start in range(0, len(records), RECORDS_AT_ONCE):
            try:
                batch = records.__getitems__(range(start, min(start + RECORDS_AT_ONCE, len(records))))
                if any(None in record.values() for record in batch):  # so ArrayRecord reads on past a premature end
                    raise RuntimeError("records are missing")
            except RuntimeError as error:  # ArrayRecord's own for files that are missing or damaged
                raise DataError(
                    f"The {split} text in '{builder.data_path}' cannot be read: {error}. "
                    "Delete that folder to have it prepared again."
                ) from None
            for record in batch:
                source, target = (_line(record[language]) for language in self._languages)
                yield source, target

    def fingerprint(self, split: Split) -> dict[str, str]:
        files = [Path(piece.filename) for piece in self._builder.info.splits[self._names[split]].file_instructions]
        return digests(files)

    @functools.cached_property
    def _builder(self) -> Any:
        """TFDS's builder of this language pair, which is prepared by then."""
        with _quiet():
            kind = _builder_class(self._corpora)
            builder = kind(config=self._config, data_dir=self._directory)
            if not builder.data_path.exists():  # `is_prepared` would log a warning
                name = self._config.name
                say(f"Preparing WMT14 {name} in '{builder.data_path}'; large archives are downloaded for it.")
                _prepare(builder)
                builder = kind(config=self._config, data_dir=self._directory)
        if builder.info.file_format.value != "array_record":
            raise DataError(
                f"'{builder.data_path}' is not in the array_record format; delete it, or give another --data.directory."
            )
        return builder


class _Unpacker:
    """What TFDS's builder asks of its download manager; archives are unpacked into `folder`."""

    def __init__(self, manager: Any, folder: Path):
        self._manager, self._folder = manager, folder
        self.manual_dir = manager.download_dir / "manual"

    def download_and_extract(self, urls: Any) -> Any:
        return self.extract(self._manager.download(urls))

    def extract(self, archives: Any) -> Any:
        import tree  # a dependency of TFDS

        return tree.map_structure(lambda archive: self._unpack(Path(archive)), archives)

    def _unpack(self, archive: Path) -> Path:
        target = self._folder / archive.name
        if target.exists():  # two splits may share an archive
            return target
        if archive.suffix == ".gz":  # one compressed file, no folder
            with gzip.open(archive) as packed, target.open("wb") as plain:
                shutil.copyfileobj(packed, plain)
        else:
            shutil.unpack_archive(archive, target, filter="data")
        return target


def _with_corpora(shared_task: Any, corpora: tuple[str, ...]) -> Any:
    """The configuration of a language pair with other training corpora; prepared in a folder named after them."""
    from tensorflow_datasets.translate import wmt

    foreign, english = shared_task.language_pair
    known = [name for name, c in wmt.DATASET_MAP.items() if c.target == english and foreign in c.sources]
    for name in corpora:
        if name not in known:
            near = suggestion(name, known) or f" It has {', '.join(known)}."
            raise ConfigError(f"data: corpora: TFDS has no {name!r} for {shared_task.name}.{near}")
    return wmt.WmtConfig(
        name="-".join(corpora),
        description=shared_task.description,
        url=shared_task.url,
        citation=shared_task.citation,
        language_pair=shared_task.language_pair,
        version=shared_task.version,
    )


def _builder_class(corpora: tuple[str, ...]) -> Any:
    """TFDS's builder of WMT14, or one like it that trains on other corpora."""
    shared_task = _import_wmt14()
    if not corpora:
        return shared_task

    class Wmt14Translate(shared_task, skip_registration=True):  # type: ignore[misc, valid-type, call-arg]
        """The prepared folder is named after the class."""

        @property
        def _subsets(self) -> Any:
            return super()._subsets | {"train": list(corpora)}

    return Wmt14Translate


def _prepare(builder: Any) -> None:
    """Download the archives and write the records. TFDS renames their folder into place when it is whole."""
    import requests
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError
    from tensorflow_datasets.translate import wmt

    pair, root = builder.builder_config.name, Path(builder.data_dir_root)
    failed = f"WMT14 {pair} could not be prepared in '{root}'"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _alone(root), tempfile.TemporaryDirectory(prefix=UNPACKED, dir=root) as folder:
            if builder.data_path.exists():  # another process has prepared it meanwhile
                return
            for leftover in (*root.glob(f"{UNPACKED}*"), *builder.data_path.parent.glob("incomplete.*")):
                if leftover != Path(folder):  # of a call that was killed
                    shutil.rmtree(leftover)

            class Wmt14Translate(type(builder), skip_registration=True):  # type: ignore[misc, call-arg]
                """TFDS's builder with `_Unpacker`; the prepared folder is named after the class."""

                def _split_generators(self, dl_manager: Any) -> Any:
                    return super()._split_generators(_Unpacker(dl_manager, Path(folder)))

            settings = tfds.download.DownloadConfig(try_download_gcs=False, force_checksums_validation=True)
            writer = Wmt14Translate(config=builder.builder_config, data_dir=root)
            writer.download_and_prepare(file_format="array_record", download_config=settings)
    except NonMatchingChecksumError as error:
        what = str(error).splitlines()[0].rstrip(":")
        raise DataError(f"{failed}. {what}: it is incomplete or altered. Delete it and run this again.") from None
    except (requests.RequestException, tfds.download.DownloadError) as error:
        request = getattr(error, "request", None)
        what = f"{type(error).__name__}: {request.url}" if request is not None else str(error)
        corpora = [wmt.DATASET_MAP[name] for names in builder.subsets.values() for name in names]
        urls = dict.fromkeys(
            url for corpus in corpora for url in corpus.get_url(builder.builder_config.language_pair[0])
        )
        raise DataError(
            f"{failed}: a download failed ({what}). Run this again with a connection, or put these archives, under "
            f"their own names, into '{root / 'downloads' / 'manual'}': {', '.join(urls)}."
        ) from None
    except Exception as error:  # a full disk, say, is an OSError, a RuntimeError or a ValueError, whoever meets it
        reason = " ".join(str(error).split()) or repr(error)
        raise DataError(f"{failed}: {reason}. Nothing half-prepared is kept.") from error


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Only one process at a time prepares; the others wait."""
    with (root / ".prepare.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _import_wmt14() -> Any:
    try:
        importlib.import_module("array_record.python.array_record_module")  # TFDS asks for it after the download only
        return importlib.import_module("tensorflow_datasets.translate.wmt14").Wmt14Translate
    except ImportError as error:
        packages = "tensorflow-datasets array_record importlib_resources"
        raise DataError(f"data: source='tfds' needs more packages ({error}): pip install {packages}") from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Drop TFDS's diary and announcements, and its progress bars too unless they go to a terminal."""
    import tensorflow_datasets as tfds

    diary = logging.getLogger("absl")
    level = diary.level
    diary.setLevel(logging.ERROR)
    if not console.is_terminal:
        tfds.disable_progress_bar()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        diary.setLevel(level)


def _line(text: bytes) -> str | None:
    try:
        return LINE_ENDS.sub(" ", text.decode("utf-8").strip("\r\n"))
    except UnicodeDecodeError:
        return None
