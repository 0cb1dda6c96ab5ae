"""Text to token ids and back: SentencePiece BPE, or a white-space vocabulary for text segmented elsewhere."""

from __future__ import annotations

import collections
import io
import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import sentencepiece

from t2t_jax import config
from t2t_jax.errors import ConfigError, DataError, RunError
from t2t_jax.symbols import BOS_ID, EOS_ID, PAD_ID, SPECIAL_SYMBOLS, UNK_ID

SENTENCEPIECE_FILE, WHITESPACE_FILE = "tokenizer.model", "tokenizer.vocabulary"


class Tokenizer(Protocol):
    """A reversible map between a line of text and token ids without end of sentence."""

    @property
    def size(self) -> int:
        """Entries of the vocabulary, special symbols included."""
        ...

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Ids of each line; never pad, begin or end of sentence."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The line that `ids` spell: one line, whatever the ids."""
        ...

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each id's own text, for pictures."""
        ...

    def save(self, directory: Path) -> Path:
        """Write the vocabulary into `directory`; `load` reads it back."""
        ...


class SentencePieceTokenizer:
    """Byte-pair encoding over raw text, spaces included; what was text before is text after.

    One character is the exception: U+2581, which SentencePiece uses for a space, comes back as a space.
    """

    def __init__(self, model: bytes):
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @property
    def size(self) -> int:
        return int(self._processor.get_piece_size())

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return self._processor.encode(list(lines), out_type=int)

    def decode(self, ids: Sequence[int]) -> str:
        # Bytes can spell a line end that no training text had; a translation stays one line.
        return " ".join(re.split(r"[\r\n]+", self._processor.decode([int(i) for i in ids])))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._processor.id_to_piece(int(i)) for i in ids]

    def save(self, directory: Path) -> Path:
        path = directory / SENTENCEPIECE_FILE
        path.write_bytes(self._model)
        return path


class WhitespaceTokenizer:
    """One entry per white-space separated token; subword-nmt's '@@ ' marks are joined again on decoding."""

    def __init__(self, entries: Sequence[str]):
        self._entries = list(entries)
        self._ids = {entry: i for i, entry in enumerate(entries)}

    @property
    def size(self) -> int:
        return len(self._entries)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [[self._ids.get(token, UNK_ID) for token in line.split()] for line in lines]

    def decode(self, ids: Sequence[int]) -> str:
        return re.sub(r"@@( |$)", "", " ".join(self.pieces(ids)))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._entries[int(i)] for i in ids]

    def save(self, directory: Path) -> Path:
        path = directory / WHITESPACE_FILE
        path.write_text("\n".join(self._entries) + "\n", encoding="utf-8", newline="\n")
        return path


def train(data: config.Data, lines: Iterable[str]) -> Tokenizer:
    """A vocabulary of both languages' training lines; the same lines give the same vocabulary.

    Raises:
      ConfigError: `vocabulary_size` is larger than the text can give, or too small for its characters.
      DataError: there is no text.
    """
    lines = (line for line in lines if line.strip())
    first = next(iter(lines), None)
    if first is None:
        raise DataError("There is no training text to make a vocabulary from.")
    lines = itertools.chain([first], lines)
    return _train_whitespace(data, lines) if data.tokenizer == "whitespace" else _train_sentencepiece(data, lines)


def load(path: Path) -> Tokenizer:
    """The tokenizer saved at `path`: a run directory or a tokenizer file.

    Raises:
      RunError: there is none, or it is damaged.
    """
    candidates = [path / SENTENCEPIECE_FILE, path / WHITESPACE_FILE] if path.is_dir() else [path]
    file = next((p for p in candidates if p.is_file()), None)
    if file is None:
        raise RunError(f"There is no tokenizer at {str(path)!r}; expected {SENTENCEPIECE_FILE} or {WHITESPACE_FILE}.")
    if file.suffix == ".vocabulary":
        entries = file.read_text(encoding="utf-8").split("\n")[:-1]
        if tuple(entries[: len(SPECIAL_SYMBOLS)]) != SPECIAL_SYMBOLS:
            raise RunError(f"{str(file)!r} is damaged: it must begin with {', '.join(SPECIAL_SYMBOLS)}.")
        return WhitespaceTokenizer(entries)
    try:
        tokenizer = SentencePieceTokenizer(file.read_bytes())
    except RuntimeError:
        raise RunError(f"{str(file)!r} is not a SentencePiece model.") from None
    processor = tokenizer._processor
    ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    if ids != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
        raise RunError(
            f"{str(file)!r} has pad, unk, bos and eos at {ids}; this project needs {(PAD_ID, UNK_ID, BOS_ID, EOS_ID)}."
        )
    return tokenizer


def _train_whitespace(data: config.Data, lines: Iterable[str]) -> WhitespaceTokenizer:
    counts = collections.Counter(token for line in lines for token in line.split())
    for symbol in SPECIAL_SYMBOLS:
        counts.pop(symbol, None)
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    return WhitespaceTokenizer([*SPECIAL_SYMBOLS, *ranked[: data.vocabulary_size - len(SPECIAL_SYMBOLS)]])


def _train_sentencepiece(data: config.Data, lines: Iterable[str]) -> SentencePieceTokenizer:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type="bpe",
            vocab_size=data.vocabulary_size,
            character_coverage=data.character_coverage,
            byte_fallback=data.byte_fallback,
            normalization_rule_name="identity",  # the text itself is the reference, so nothing may be folded
            remove_extra_whitespaces=False,
            split_digits=False,
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            num_threads=1,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise _explain(data, str(error)) from None
    return SentencePieceTokenizer(model.getvalue())


def _explain(data: config.Data, message: str) -> Exception:
    size = data.vocabulary_size
    if match := re.search(r"Vocabulary size too high.*?<= (\d+)", message):
        return ConfigError(
            f"data: vocabulary_size={size} is more than this training text can give; set it to at most {match[1]}."
        )
    if match := re.search(
        r"(?:Vocabulary size is smaller than required_chars|required_chars).*?(\d+) vs (\d+)", message
    ):
        return ConfigError(
            f"data: vocabulary_size={size} is too small for the {match[2]} characters and special symbols of the "
            "training text; raise it, or lower data.character_coverage."
        )
    return DataError(f"SentencePiece could not make a vocabulary of {size}: {message}")
