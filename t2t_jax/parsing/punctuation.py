"""Which tags a mark of punctuation can have, as the Penn treebank and GUM tag English.

EVALB leaves punctuation out by tag. If a parser calls a comma a noun, or a noun a comma, the words that are left differ
from the right tree's, and the whole sentence is an error; a parser that reads the words can do better.
"""

from __future__ import annotations

from t2t_jax.parsing.linear import UNKNOWN_TAG

LEFT_OUT = frozenset((",", ":", "``", "''", ".", "-NONE-"))  # tags of words that EVALB does not count

TAGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((",",), (",",)),
    **dict.fromkeys((".", "?", "!"), (".",)),
    **dict.fromkeys((":", ";", "--"), (":",)),
    **dict.fromkeys(("...", "..", "…", "—"), (":", ".", "SYM")),
    **dict.fromkeys(("-", "–"), ("HYPH", ":", "SYM")),
    **dict.fromkeys(('"', "``", "`", "“", "‘"), ("``", "''")),
    **dict.fromkeys(("''", "”"), ("''", "``")),
    **dict.fromkeys(("'", "’"), ("POS", "''", "``")),
}
"""The commonest first."""


def may_have(word: str, tag: str) -> bool:
    """Whether a word can have a tag, as far as punctuation tells: a mark has one of its own, a word none of theirs."""
    return tag in TAGS[word] if word in TAGS else tag not in LEFT_OUT


def tag_for(word: str, tag: str) -> str:
    """The tag, or if the word cannot have it the commonest that it can."""
    return tag if may_have(word, tag) else TAGS[word][0] if word in TAGS else UNKNOWN_TAG
