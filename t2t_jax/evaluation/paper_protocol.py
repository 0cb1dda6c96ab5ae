"""Text as the paper's BLEU counts it: punctuation normalised, tokenised by Moses' rules, compounds split at hyphens.

The printed scores came from a chain of Perl scripts that ended in multi-bleu; this is that chain without Perl. The
tokenizer is sacremoses's, which on newstest2014 gives what Moses' own gives, token for token.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
from collections.abc import Sequence

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

# Two neighbours that are no spaces, and the next match begins after the second: the `2` of 1-2-3 serves only once.
HYPHEN = re.compile(r"(\S)-(\S)")
COMPOUND = r"\1 ##AT##-##AT## \2"
# Moses' list of Unicode punctuation has “ and ”, but not the low quote that opens a German quotation.
STRAIGHT_QUOTES = str.maketrans("„“”‟", '""""')


def tokenized(lines: Sequence[str], language: str, straight_quotes: bool = True) -> list[str]:
    """Lines whose tokens, between single spaces, are those that BLEU counts.

    Args:
      lines: plain text, or text that Moses has tokenised already, with or without its escapes.
      language: code of their language; Moses has rules of its own for some, and English prefixes for the others.
      straight_quotes: make „ an ordinary quote too, as in the reference behind the paper's German scores. To be applied
        to both sides: hypotheses without „ score the same, and those with it are not punished for being right.
    """
    tokenizer = _tokenizer(language)
    return [split_compounds(tokenizer.tokenize(_normalized(line, straight_quotes), return_str=True)) for line in lines]


def split_compounds(line: str) -> str:
    """Each hyphen within a word becomes a token: `rich-text` is `rich ##AT##-##AT## text`."""
    return HYPHEN.sub(COMPOUND, line)


def signature(language: str, straight_quotes: bool = True) -> str:
    """The steps, as a part of a signature in sacreBLEU's style."""
    quotes = "straight" if straight_quotes else "kept"
    version = importlib.metadata.version("sacremoses")
    return f"norm:unicode-punct|quotes:{quotes}|tok:moses-{language}|compounds:split|sacremoses:{version}"


def _normalized(line: str, straight_quotes: bool) -> str:
    # The tokenizer ends by escaping &, <, >, quotes and brackets; what comes tokenised would be escaped twice.
    line = _unescaper().unescape_xml(line)
    if straight_quotes:
        line = line.translate(STRAIGHT_QUOTES)
    # Not `normalize`: it would move commas and full stops across quotes, which the paper's chain did not.
    return _normalizer().replace_unicode_punct(line)


@functools.cache
def _tokenizer(language: str) -> MosesTokenizer:
    return MosesTokenizer(lang=language)


@functools.cache
def _normalizer() -> MosesPunctNormalizer:
    return MosesPunctNormalizer()


@functools.cache
def _unescaper() -> MosesDetokenizer:
    return MosesDetokenizer()
