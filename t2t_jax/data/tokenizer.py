"""Text to token ids and back: SentencePiece BPE, a white-space vocabulary for text segmented elsewhere, or brackets."""

from __future__ import annotations

import base64
import collections
import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import sentencepiece

from t2t_jax import config
from t2t_jax.errors import ConfigError, DataError, RunError
from t2t_jax.files import write_atomically
from t2t_jax.parsing.linear import UNKNOWN_TAG
from t2t_jax.symbols import BOS_ID, EOS_ID, PAD_ID, SPECIAL_SYMBOLS, UNK_ID

SENTENCEPIECE_FILE, WHITESPACE_FILE, MARIAN_FILE = "tokenizer.model", "tokenizer.vocabulary", "tokenizer.marian.json"
BRACKETS_FILE = "tokenizer.brackets.json"
FILES = (SENTENCEPIECE_FILE, WHITESPACE_FILE, MARIAN_FILE, BRACKETS_FILE)

Side = Literal["source", "target"]
T = TypeVar("T")


class Tokenizer(Protocol):
    """A reversible map between a line of text and token ids without end of sentence; equal if it maps alike."""

    @property
    def size(self) -> int:
        """Entries of the vocabulary, special symbols included."""
        ...

    def encode(self, lines: Sequence[str], side: Side = "source") -> list[list[int]]:
        """Ids of each line; never pad, begin or end of sentence. Most vocabularies treat both sides alike."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The line that `ids` spell: one line, whatever the ids."""
        ...

    def plain(self, line: str) -> str:
        """The line as `decode` would write it: what a translation is compared with."""
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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SentencePieceTokenizer) and self._model == other._model

    @property
    def models(self) -> dict[Side, bytes]:
        """The serialized SentencePiece model of each side."""
        return {"source": self._model, "target": self._model}

    @property
    def size(self) -> int:
        return int(self._processor.get_piece_size())

    def encode(self, lines: Sequence[str], side: Side = "source") -> list[list[int]]:
        return self._processor.encode(list(lines), out_type=int)

    def decode(self, ids: Sequence[int]) -> str:
        return _one_line(self._processor.decode([int(i) for i in ids]))

    def plain(self, line: str) -> str:
        return line

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._processor.id_to_piece(int(i)) for i in ids]

    def save(self, directory: Path) -> Path:
        path = directory / SENTENCEPIECE_FILE
        write_atomically(path, self._model)
        return path


class WhitespaceTokenizer:
    """One entry per white-space separated token; subword-nmt's '@@ ' marks are joined again on decoding."""

    def __init__(self, entries: Sequence[str]):
        self._entries = list(entries)
        self._ids = {entry: i for i, entry in enumerate(entries) if i >= len(SPECIAL_SYMBOLS)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WhitespaceTokenizer) and self._entries == other._entries

    @property
    def size(self) -> int:
        return len(self._entries)

    def encode(self, lines: Sequence[str], side: Side = "source") -> list[list[int]]:
        return [[self._ids.get(token, UNK_ID) for token in _tokens(line)] for line in lines]

    def decode(self, ids: Sequence[int]) -> str:
        return self.plain(" ".join(self.pieces(ids)))

    def plain(self, line: str) -> str:
        return _one_line(re.sub(r"@@( |$)", "", line))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._entries[int(i)] for i in ids]

    def save(self, directory: Path) -> Path:
        path = directory / WHITESPACE_FILE
        write_atomically(path, "".join(f"{entry}\n" for entry in self._entries))
        return path


class MarianTokenizer:
    """A SentencePiece model for each language, and one list of pieces for both: what OPUS-MT's models come with."""

    def __init__(self, models: Mapping[Side, bytes], entries: Sequence[str]):
        self.models, self._entries = dict(models), list(entries)
        self._processors = {
            side: sentencepiece.SentencePieceProcessor(model_proto=model) for side, model in models.items()
        }
        self._ids = {entry: i for i, entry in enumerate(entries) if i >= len(SPECIAL_SYMBOLS)}

    @classmethod
    def parse(cls, file: Path) -> MarianTokenizer:
        """Read what `save` wrote."""
        try:
            saved = json.loads(file.read_bytes())
            sides: tuple[Side, ...] = ("source", "target")
            return cls({side: base64.b64decode(saved[side]) for side in sides}, saved["pieces"])
        except (ValueError, KeyError, TypeError, RuntimeError):
            raise RunError(f"{str(file)!r} is damaged; import the model again.") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MarianTokenizer) and (self.models, self._entries) == (other.models, other._entries)

    @property
    def size(self) -> int:
        return len(self._entries)

    def encode(self, lines: Sequence[str], side: Side = "source") -> list[list[int]]:
        return [[self._ids.get(piece, UNK_ID) for piece in self._split(line, side)] for line in lines]

    def _split(self, line: str, side: Side) -> list[str]:
        """The pieces of a line; a language code (>>fra<<) at its beginning is one piece."""
        code = re.match(r">>[^<]*<<", line) if side == "source" else None
        start = code.end() if code else 0
        return [line[:start]] * bool(code) + self._processors[side].encode(line[start:], out_type=str)

    def decode(self, ids: Sequence[int]) -> str:
        return _one_line(self._processors["target"].decode_pieces(self.pieces(ids))).strip()

    def plain(self, line: str) -> str:
        return line

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._entries[int(i)] for i in ids]

    def save(self, directory: Path) -> Path:
        path = directory / MARIAN_FILE
        models = {side: base64.b64encode(model).decode() for side, model in self.models.items()}
        write_atomically(path, json.dumps(models | {"pieces": self._entries}) + "\n")
        return path


class BracketTokenizer:
    """SentencePiece for sentences; behind its pieces in the same vocabulary, one entry for each token of trees.

    Sentences and trees share no entry, so no piece of a word can be taken for a bracket or tag.
    """

    def __init__(self, model: bytes, brackets: Sequence[str]):
        self._model, self._brackets = model, list(brackets)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._first = int(self._processor.get_piece_size())
        self._ids = {bracket: self._first + i for i, bracket in enumerate(brackets)}

    @classmethod
    def parse(cls, file: Path) -> BracketTokenizer:
        """Read what `save` wrote."""
        try:
            saved = json.loads(file.read_bytes())
            return cls(base64.b64decode(saved["source"]), [str(bracket) for bracket in saved["brackets"]])
        except (ValueError, KeyError, TypeError, RuntimeError):
            raise RunError(f"{str(file)!r} is damaged.") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BracketTokenizer) and (self._model, self._brackets) == (other._model, other._brackets)

    @property
    def size(self) -> int:
        return self._first + len(self._brackets)

    def encode(self, lines: Sequence[str], side: Side = "source") -> list[list[int]]:
        if side == "source":
            return self._processor.encode(list(lines), out_type=int)
        return [[self._ids.get(token, UNK_ID) for token in _tokens(line)] for line in lines]

    def decode(self, ids: Sequence[int]) -> str:
        """The tokens of a tree; what is no such token stands for a word of unknown tag."""
        return " ".join(self._brackets[i - self._first] if i >= self._first else UNKNOWN_TAG for i in map(int, ids))

    def plain(self, line: str) -> str:
        return line

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [
            self._brackets[i - self._first] if i >= self._first else self._processor.id_to_piece(i)
            for i in map(int, ids)
        ]

    def save(self, directory: Path) -> Path:
        path = directory / BRACKETS_FILE
        source = base64.b64encode(self._model).decode()
        write_atomically(path, json.dumps({"source": source, "brackets": self._brackets}) + "\n")
        return path


def train_on_trees(data: config.Data, pairs: Iterable[tuple[str, str]]) -> BracketTokenizer:
    """A vocabulary of `vocabulary_size` entries of sentences and the tokens of their trees; all of these are in it.

    Raises:
      ConfigError: the vocabulary is larger than the text can give, or too small for its characters and brackets.
      DataError: there is no text.
    """
    sentences, counts = [], collections.Counter[str]()
    for sentence, tree in pairs:
        sentences.append(sentence)
        counts.update(_tokens(tree))
    if not sentences:
        raise DataError("There are no trees to make a vocabulary from.")
    brackets = sorted(counts, key=lambda token: (-counts[token], token))
    return BracketTokenizer(_train_sentencepiece(data, sentences, len(brackets)), brackets)


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
    if data.tokenizer == "whitespace":
        return _train_whitespace(data, lines)
    return SentencePieceTokenizer(_train_sentencepiece(data, lines))


def of_words(data: config.Data, words: Sequence[str]) -> WhitespaceTokenizer:
    """A vocabulary of these words, in this order.

    Raises:
      ConfigError: there are more than `vocabulary_size` leaves room for.
    """
    entries = [*SPECIAL_SYMBOLS, *words]
    if len(entries) > data.vocabulary_size:
        raise ConfigError(
            f"data: vocabulary_size={data.vocabulary_size} is too small for the {len(entries)} entries of "
            f"task={data.task!r}."
        )
    return WhitespaceTokenizer(entries)


def sample(items: Iterable[T], at_most: int) -> list[T]:
    """All items; or, of more than `at_most`, the first and every second, fourth, eighth … behind it."""
    found: list[T] = []
    distance = 1
    for number, item in enumerate(items):
        if number % distance == 0:
            found.append(item)
            if len(found) > at_most:
                found, distance = found[::2], 2 * distance
    return found


def load(path: Path) -> Tokenizer:
    """The tokenizer saved at `path`: a run directory or a tokenizer file.

    Raises:
      RunError: there is none, or it is damaged.
    """
    candidates = [path / name for name in FILES] if path.is_dir() else [path]
    file = next((p for p in candidates if p.is_file()), None)
    if file is None:
        raise RunError(f"There is no tokenizer at {str(path)!r}; expected {' or '.join(FILES)}.")
    if file.name.endswith(".marian.json"):
        return MarianTokenizer.parse(file)
    if file.name.endswith(".brackets.json"):
        return BracketTokenizer.parse(file)
    if file.suffix == ".vocabulary":
        try:
            entries = file.read_bytes().decode().removesuffix("\n").split("\n")  # as text, a CR would end a line too
        except UnicodeDecodeError:
            raise RunError(f"{str(file)!r} is damaged: it is not UTF-8.") from None
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


def _one_line(text: str) -> str:
    """Bytes and foreign tokens can spell a line end that no line of the training text had."""
    return " ".join(re.split(r"[\r\n]+", text))


def _tokens(line: str) -> list[str]:
    """Only spaces and tabs part tokens; U+00A0, U+2028 and their like are characters of one."""
    return re.findall(r"[^ \t]+", line)


def _train_whitespace(data: config.Data, lines: Iterable[str]) -> WhitespaceTokenizer:
    counts = collections.Counter(token for line in lines for token in _tokens(line))
    for symbol in SPECIAL_SYMBOLS:
        counts.pop(symbol, None)
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    return WhitespaceTokenizer([*SPECIAL_SYMBOLS, *ranked[: data.vocabulary_size - len(SPECIAL_SYMBOLS)]])


def _train_sentencepiece(data: config.Data, lines: Iterable[str], reserved: int = 0) -> bytes:
    """A model of `vocabulary_size` entries but for those `reserved`."""
    if data.vocabulary_size <= reserved + len(SPECIAL_SYMBOLS):
        raise ConfigError(
            f"data: vocabulary_size={data.vocabulary_size} leaves no entry for text beside the {reserved} of trees."
        )
    model = io.BytesIO()
    failures: list[Exception] = []

    def watched() -> Iterator[str]:
        """SentencePiece reports a failure of its input as one of its own."""
        try:
            yield from lines
        except Exception as error:
            failures.append(error)
            raise

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=watched(),
            model_writer=model,
            model_type="bpe",
            vocab_size=data.vocabulary_size - reserved,
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
        raise (failures[0] if failures else _explain(data, str(error), reserved)) from None
    return model.getvalue()


def _explain(data: config.Data, message: str, reserved: int) -> Exception:
    size = data.vocabulary_size
    if match := re.search(r"Vocabulary size too high.*?<= (\d+)", message):
        return ConfigError(
            f"data: vocabulary_size={size} is more than this training text can give; set it to at most "
            f"{int(match[1]) + reserved}."
        )
    if match := re.search(
        r"(?:Vocabulary size is smaller than required_chars|required_chars).*?(\d+) vs (\d+)", message
    ):
        return ConfigError(
            f"data: vocabulary_size={size} is too small for the {match[2]} characters and special symbols of the "
            "training text; raise it, or lower data.character_coverage."
        )
    return DataError(f"SentencePiece could not make a vocabulary of {size}: {message}")
