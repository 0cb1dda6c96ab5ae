"""Labelled bracketing scores of trees by the rules of EVALB (Sekine and Collins), to the printed digit."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from t2t_jax.errors import DataError, suggestion

SPACE = r"[ \t\n\v\f\r]"
LEAF_OR_OPEN = re.compile(rf"\(([^() \t\n\v\f\r]*)(?:{SPACE}+([^() \t\n\v\f\r]*){SPACE}*\))?")
BEHIND_LABEL = re.compile(rf"{SPACE}*([^() \t\n\v\f\r])")
BLANK = re.compile(rf"{SPACE}*")


@dataclass(frozen=True)
class Parameters:
    """What EVALB's parameter files set. The defaults are those of COLLINS.prm, by which published scores are made."""

    labelled: bool = True
    """LABELED: labels must agree, not spans alone."""
    deleted: frozenset[str] = frozenset(("TOP", "-NONE-", ",", ":", "``", "''", "."))
    """DELETE_LABEL: tags whose words do not count, and constituents that do not."""
    deleted_for_length: frozenset[str] = frozenset(("-NONE-",))
    """DELETE_LABEL_FOR_LENGTH: tags whose words do not count for a sentence's length."""
    equal_labels: frozenset[frozenset[str]] = frozenset((frozenset(("ADVP", "PRT")),))
    """EQ_LABEL: pairs of labels that count as one."""
    equal_words: frozenset[frozenset[str]] = frozenset()
    """EQ_WORD: pairs of words that count as one."""
    cutoff: int = 40
    """CUTOFF_LEN: sentences up to this length are also scored apart."""
    max_errors: int = 10
    """MAX_ERROR: errors after which EVALB gives up; here all sentences are scored, and one is told."""

    @classmethod
    def parse(cls, text: str, name: str) -> Parameters:
        """The parameters that a file sets; as in EVALB, labels and words that it does not list are not treated so.

        Raises:
          DataError: a keyword or value that EVALB does not have; says the line.
        """
        lists = collections.defaultdict[str, list[str]](list)
        pairs = collections.defaultdict[str, list[frozenset[str]]](list)
        numbers = {"LABELED": 1, "CUTOFF_LEN": 40, "MAX_ERROR": 10, "DEBUG": 0}
        for number, line in enumerate(text.split("\n"), start=1):
            if line.startswith("#") or not line.strip():
                continue
            keyword, *values = line.split(None, 1)
            value = values[0].strip() if values else ""
            if keyword in ("DELETE_LABEL", "DELETE_LABEL_FOR_LENGTH") and value:
                lists[keyword].append(value)
            elif keyword in ("EQ_LABEL", "EQ_WORD") and len(value.split()) == 2:
                pairs[keyword].append(frozenset(value.split()))
            elif keyword in numbers and re.fullmatch(r"-?[0-9]{1,9}", value):
                numbers[keyword] = int(value)
            else:
                known = {*numbers, "DELETE_LABEL", "DELETE_LABEL_FOR_LENGTH", "EQ_LABEL", "EQ_WORD"}
                wrong = f"{keyword!r} cannot be {value!r}" if keyword in known else f"there is no parameter {keyword!r}"
                near = "" if keyword in known else suggestion(keyword, known)
                raise DataError(f"{name}, line {number:,}: {wrong}.{near}")
        return cls(
            labelled=numbers["LABELED"] != 0,
            deleted=frozenset(lists["DELETE_LABEL"]),
            deleted_for_length=frozenset(lists["DELETE_LABEL_FOR_LENGTH"]),
            equal_labels=frozenset(pairs["EQ_LABEL"]),
            equal_words=frozenset(pairs["EQ_WORD"]),
            cutoff=numbers["CUTOFF_LEN"],
            max_errors=numbers["MAX_ERROR"],
        )

    def same_label(self, one: str, other: str) -> bool:
        """Whether two labels count as one."""
        return one == other or frozenset((one, other)) in self.equal_labels

    def same_word(self, one: str, other: str) -> bool:
        """Whether two words count as one."""
        return one == other or frozenset((one, other)) in self.equal_words

    def counts(self, bracket: Bracket) -> bool:
        """Whether a constituent counts: there is a word in it, and its label is not deleted."""
        deleted = any(self.same_label(bracket.label, label) for label in self.deleted)
        return bracket.start < bracket.end and not deleted


COLLINS = Parameters()


class Bracket(NamedTuple):
    """A constituent over words `start` to before `end`."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Sentence:
    """What EVALB prints of one sentence, a line of its table."""

    length: int
    """Words of the gold tree, but for those deleted for length."""
    status: Literal[0, 1, 2]
    """0 scored, 1 error (other words, or other numbers of them), 2 skipped (no words in the test tree)."""
    matched: int = 0
    gold: int = 0
    test: int = 0
    crossing: int = 0
    """Test constituents that overlap with a gold one without nesting."""
    words: int = 0
    tags: int = 0
    """Words with the right tag."""
    error: str = ""
    """What EVALB says on standard error."""

    def as_text(self, number: int) -> str:
        """The line, with the sentence's number in front."""
        return (
            f"{number:4d}  {self.length:3d}    {self.status:d}  "
            f"{_percent(self.matched, self.gold):6.2f} {_percent(self.matched, self.test):6.2f}   {self.matched:3d}    "
            f"{self.gold:3d}  {self.test:3d}    {self.crossing:3d}   {self.words:4d}  {self.tags:4d}   "
            f"{_percent(self.tags, self.words):6.2f}"
        )


@dataclass(frozen=True)
class Summary:
    """Scores over sentences, in percent where they are shares."""

    sentences: int
    errors: int
    skipped: int
    matched: int
    gold: int
    test: int
    crossing: int
    words: int
    tags: int
    complete: int
    """Sentences all of whose constituents match."""
    uncrossed: int
    """Sentences without crossing."""
    hardly_crossed: int
    """Sentences with two crossing constituents at most."""

    @classmethod
    def of(cls, sentences: Iterable[Sentence]) -> Summary:
        """The sums over sentences; those with errors and skipped ones are counted and left out."""
        every = list(sentences)
        valid = [sentence for sentence in every if sentence.status == 0]
        columns = ("matched", "gold", "test", "crossing", "words", "tags")
        return cls(
            sentences=len(every),
            errors=sum(sentence.status == 1 for sentence in every),
            skipped=sum(sentence.status == 2 for sentence in every),
            **{column: sum(getattr(sentence, column) for sentence in valid) for column in columns},
            complete=sum(sentence.gold == sentence.test == sentence.matched for sentence in valid),
            uncrossed=sum(sentence.crossing == 0 for sentence in valid),
            hardly_crossed=sum(sentence.crossing <= 2 for sentence in valid),
        )

    @property
    def valid(self) -> int:
        """Sentences that were scored."""
        return self.sentences - self.errors - self.skipped

    @property
    def recall(self) -> float:
        """Gold constituents that the test has."""
        return _percent(self.matched, self.gold)

    @property
    def precision(self) -> float:
        """Test constituents that are gold ones."""
        return _percent(self.matched, self.test)

    @property
    def f1(self) -> float:
        """Harmonic mean of the two; 0 if nothing matches, where EVALB prints nan."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

    @property
    def tagging_accuracy(self) -> float:
        """Words with the right tag, among those that count."""
        return _percent(self.tags, self.words)

    @property
    def complete_match(self) -> float:
        """Sentences all of whose constituents match."""
        return _percent(self.complete, self.valid)

    def as_json(self) -> dict[str, float | int]:
        """The scores to two decimals, and what they are made of."""
        return {
            "sentences": self.sentences,
            "errors": self.errors,
            "skipped": self.skipped,
            "valid": self.valid,
            "recall": round(self.recall, 2),
            "precision": round(self.precision, 2),
            "f1": round(self.f1, 2),
            "complete_match": round(self.complete_match, 2),
            "average_crossing": round(self.crossing / self.valid, 2) if self.valid else 0.0,
            "no_crossing": round(_percent(self.uncrossed, self.valid), 2),
            "two_or_less_crossing": round(_percent(self.hardly_crossed, self.valid), 2),
            "tagging_accuracy": round(self.tagging_accuracy, 2),
        }

    def as_text(self, title: str) -> str:
        """A section of EVALB's summary."""
        crossing = self.crossing / self.valid if self.valid else 0.0
        return (
            f"-- {title} --\n"
            f"Number of sentence        = {self.sentences:6d}\n"
            f"Number of Error sentence  = {self.errors:6d}\n"
            f"Number of Skip  sentence  = {self.skipped:6d}\n"
            f"Number of Valid sentence  = {self.valid:6d}\n"
            f"Bracketing Recall         = {self.recall:6.2f}\n"
            f"Bracketing Precision      = {self.precision:6.2f}\n"
            f"Bracketing FMeasure       = {self.f1:6.2f}\n"
            f"Complete match            = {self.complete_match:6.2f}\n"
            f"Average crossing          = {crossing:6.2f}\n"
            f"No crossing               = {_percent(self.uncrossed, self.valid):6.2f}\n"
            f"2 or less crossing        = {_percent(self.hardly_crossed, self.valid):6.2f}\n"
            f"Tagging accuracy          = {self.tagging_accuracy:6.2f}\n"
        )


@dataclass(frozen=True)
class Result:
    """Scores of a test file against a gold file."""

    sentences: list[Sentence]
    parameters: Parameters
    all: Summary = field(init=False)
    short: Summary = field(init=False)
    """Of the sentences up to `parameters.cutoff` words."""

    def __post_init__(self) -> None:
        short = [sentence for sentence in self.sentences if sentence.length <= self.parameters.cutoff]
        object.__setattr__(self, "all", Summary.of(self.sentences))
        object.__setattr__(self, "short", Summary.of(short))

    def summary(self) -> str:
        """EVALB's summary."""
        short = self.short.as_text(f"len<={self.parameters.cutoff}")
        return f"=== Summary ===\n\n{self.all.as_text('All')}\n{short}"

    def table(self) -> str:
        """EVALB's table of sentences with its sums."""
        rows = "".join(f"{sentence.as_text(i)}\n" for i, sentence in enumerate(self.sentences, start=1))
        line, total = "=" * 76, self.all
        sums = (
            f"                {total.recall:6.2f} {total.precision:6.2f} {total.matched:6d} {total.gold:5d} "
            f"{total.test:5d}  {total.crossing:5d}"
        )
        return (
            "  Sent.                        Matched  Bracket   Cross        Correct Tag\n"
            " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy\n"
            f"{line}\n{rows}{line}\n{sums if total.gold and total.test else ''}"
            f"  {total.words:5d} {total.tags:5d}   {total.tagging_accuracy:6.2f}\n"
        )


class Parse(NamedTuple):
    """What EVALB sees of a line of brackets: words and tags that count, constituents, the sentence's length."""

    words: list[str]
    tags: list[str]
    brackets: list[Bracket]
    length: int


def score(
    gold: Sequence[str],
    test: Sequence[str],
    parameters: Parameters = COLLINS,
    names: tuple[str, str] = ("gold", "test"),
) -> Result:
    """Compare trees, one a line, line by line; of unequal numbers of lines, those that both have.

    Args:
      gold, test: brackets, several roots and blank lines allowed.
      parameters: EVALB's.
      names: what complaints call the two.

    Raises:
      DataError: a line is not brackets; says line and column.
    """
    sentences = []
    for number, lines in enumerate(zip(gold, test, strict=False), start=1):
        right, guess = (
            read(line, parameters, f"{name}, line {number:,}") for line, name in zip(lines, names, strict=True)
        )
        sentences.append(_compare(right, guess, parameters))
    return Result(sentences, parameters)


def unmatched(line: str, other: str, parameters: Parameters = COLLINS) -> set[Bracket]:
    """Constituents of a tree that the other tree of the same sentence lacks, over all words, deleted ones too.

    Raises:
      DataError: a line is not brackets.
    """
    found = set(_counted(read(other, parameters, "text"), parameters))
    everything = read(line, dataclasses.replace(parameters, deleted=frozenset()), "text").brackets
    counted = read(line, parameters, "text").brackets  # the same constituents, over the words that count
    return {
        whole
        for whole, bracket in zip(everything, map(_plain, counted), strict=True)
        if parameters.counts(bracket) and bracket not in found
    }


def read(line: str, parameters: Parameters, place: str) -> Parse:
    """Read a line as EVALB does.

    Raises:
      DataError: it is not brackets; says `place` and column.
    """
    words: list[str] = []
    tags: list[str] = []
    brackets: list[Bracket] = []
    opened: list[int] = []  # places among the brackets
    columns: list[int] = []
    length = 0
    at = BLANK.match(line).end()  # type: ignore[union-attr]
    while at < len(line):
        if line[at] == ")":
            if not opened:
                raise DataError(f"{place}, column {at + 1:,}: a closing bracket without its opening one.")
            columns.pop()
            closed = opened.pop()
            brackets[closed] = brackets[closed]._replace(end=len(words))
            at += 1
        elif match := LEAF_OR_OPEN.match(line, at):
            label, word = match.groups()
            if word is not None:
                length += label not in parameters.deleted_for_length
                if label not in parameters.deleted:
                    words.append(word)
                    tags.append(label)
            else:
                if beside := BEHIND_LABEL.match(line, match.end()):
                    raise DataError(
                        f"{place}, column {beside.start(1) + 1:,}: a bracket holds brackets, or one tag and one word."
                    )
                opened.append(len(brackets))
                columns.append(at)
                brackets.append(Bracket(len(words), -1, label))
            at = match.end()
        else:
            raise DataError(f"{place}, column {at + 1:,}: text between brackets.")
        at = BLANK.match(line, at).end()  # type: ignore[union-attr]
    if opened:
        raise DataError(f"{place}, column {columns[-1] + 1:,}: this bracket is never closed.")
    return Parse(words, tags, brackets, length)


def _compare(gold: Parse, test: Parse, parameters: Parameters) -> Sentence:
    if not test.words:
        return Sentence(gold.length, 2)
    if len(gold.words) != len(test.words):
        return Sentence(gold.length, 1, error=f"Length unmatch ({len(gold.words)}|{len(test.words)})")
    for right, guess in zip(gold.words, test.words, strict=True):
        if not parameters.same_word(right, guess):
            return Sentence(gold.length, 1, error=f"Words unmatch ({right}|{guess})")
    golden, tested = (_counted(parse, parameters) for parse in (gold, test))
    return Sentence(
        length=gold.length,
        status=0,
        matched=_matched(golden, tested, parameters),
        gold=len(golden),
        test=len(tested),
        crossing=_crossing(golden, tested, len(gold.words)),
        words=len(gold.words),
        tags=sum(map(parameters.same_label, gold.tags, test.tags)),
    )


def _counted(parse: Parse, parameters: Parameters) -> list[Bracket]:
    """The constituents that count, their labels without function tags and indices."""
    return [bracket for bracket in map(_plain, parse.brackets) if parameters.counts(bracket)]


def _plain(bracket: Bracket) -> Bracket:
    return bracket._replace(label=re.split("[-=]", bracket.label)[0])


def _matched(gold: Sequence[Bracket], test: Sequence[Bracket], parameters: Parameters) -> int:
    """Gold constituents that find a partner; each takes the first of the test's that is still free."""
    free = collections.defaultdict[tuple[int, int], list[str]](list)
    for bracket in test:
        free[bracket.start, bracket.end].append(bracket.label)
    matched = 0
    for bracket in gold:
        labels = free[bracket.start, bracket.end]
        for i, label in enumerate(labels):
            if not parameters.labelled or parameters.same_label(bracket.label, label):
                del labels[i]
                matched += 1
                break
    return matched


def _crossing(gold: Sequence[Bracket], test: Sequence[Bracket], words: int) -> int:
    """Test constituents that begin inside a gold one and end behind it, or the other way round."""
    first = [words] * (words + 1)  # where the longest gold constituent that ends here begins
    last = [0] * (words + 1)  # where the longest gold constituent that begins here ends
    for bracket in gold:
        first[bracket.end] = min(first[bracket.end], bracket.start)
        last[bracket.start] = max(last[bracket.start], bracket.end)
    return sum(
        min(first[bracket.start + 1 : bracket.end], default=words) < bracket.start
        or max(last[bracket.start + 1 : bracket.end], default=0) > bracket.end
        for bracket in test
    )


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0
