"""Checks of a settings dataclass's values, whose complaints name the section and the field."""

from __future__ import annotations

import math
import types
import typing
from typing import Any, Literal

from t2t_jax.errors import ConfigError


def hints_of(cls: type) -> dict[str, Any]:
    """The types of a dataclass's fields by name."""
    return typing.get_type_hints(cls)


def check_types(config: Any) -> None:
    """Raise `ConfigError` for the first field whose value is not of the type it is declared with."""
    room = type(config).__name__.lower()
    for name, hint in hints_of(type(config)).items():
        value = getattr(config, name)
        if not _is_a(value, hint):
            raise ConfigError(f"{room}: {name}={value!r} must be {_describe(hint)}.")


def _is_a(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return value in arguments and type(value) in {type(a) for a in arguments}
    if origin in (types.UnionType, typing.Union):
        return any(_is_a(value, a) for a in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(_is_a(v, arguments[0]) for v in value)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _describe(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " or ".join(repr(a) for a in arguments)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_describe(a) for a in arguments)
    if origin is tuple:
        return f"a tuple of {_describe(arguments[0])}"
    names = {int: "an integer", float: "a finite number", str: "a string", bool: "True or False", type(None): "None"}
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def check_positive(config: Any, *names: str) -> None:
    """Raise `ConfigError` unless these fields are None or above 0."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not value > 0:
            raise ConfigError(f"{type(config).__name__.lower()}: {name}={value} must be greater than 0.")


def check_probability(config: Any, *names: str) -> None:
    """Raise `ConfigError` unless these fields lie in [0, 1)."""
    for name in names:
        value = getattr(config, name)
        if not 0 <= value < 1:
            raise ConfigError(f"{type(config).__name__.lower()}: {name}={value} must be at least 0 and below 1.")
