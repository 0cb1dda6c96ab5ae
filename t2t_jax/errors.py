"""Errors a person can act on. `launch.py` prints them without a traceback and exits with status 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """The request, the configuration or the data cannot work; the message says what is wrong and what to do."""


class ConfigError(UserError):
    """A setting that cannot work; the message names the field, its value and the remedy."""


class DataError(UserError):
    """Text, files or a store that cannot be used; the message names the place."""


class RunError(UserError):
    """A run directory that cannot be used for what was asked."""


class NonFiniteLoss(Exception):
    """Training met a NaN or an infinity. Not the user's mistake, so it is not a `UserError`: exit status 1."""


def exit_status(error: BaseException) -> int:
    """2 for the user's mistake, 1 for anything else."""
    return 2 if isinstance(error, UserError) else 1


def in_one_line(error: BaseException) -> str:
    """What an error says in its first line, after its type unless it speaks to the user."""
    told = str(error).strip().split("\n")[0][:500]
    return (
        told
        if isinstance(error, (UserError, NonFiniteLoss)) and told
        else f"{type(error).__name__}: {told}".rstrip(": ")
    )


def suggestion(word: str, known: Iterable[str]) -> str:
    """' Did you mean X?' for the nearest of `known`, or an empty string when nothing is near."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
