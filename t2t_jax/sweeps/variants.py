"""Rows of a sweep as what they change in a base: by name, as all combinations, or side by side.

A field is given by its dotted name, `model.num_heads`, or by its last part where that is the only one: `num_heads`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from t2t_jax import config_fields
from t2t_jax.config import Experiment
from t2t_jax.errors import ConfigError, suggestion


def vary(base: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """`base` with fields changed.

    Raises:
      ConfigError: no such field (the nearest one is named), or values that do not go together.
    """
    return config_fields.replace(base, {_path(base, name): value for name, value in changes.items()})


def rows(base: Experiment, table: Mapping[str, Mapping[str, Any]]) -> dict[str, Experiment]:
    """A row for each entry of `table`, from its name to what it changes in `base`.

    Raises:
      ConfigError: as `vary`, naming the row.
    """
    made = {}
    for name, changes in table.items():
        try:
            made[name] = vary(base, changes)
        except ConfigError as error:
            raise ConfigError(f"The row {name!r}: {error}") from None
    return made


def product(base: Experiment, **fields: Sequence[Any]) -> dict[str, Experiment]:
    """A row for every combination of the fields' values, the last field's changing fastest: "num_heads=4 d_k=16"."""
    return rows(base, _named(fields, itertools.product(*fields.values())))


def zipped(base: Experiment, **fields: Sequence[Any]) -> dict[str, Experiment]:
    """A row for the fields' first values, one for their second ones, and so on: "num_heads=4 d_k=128".

    Raises:
      ConfigError: as `rows`, or the fields have different numbers of values.
    """
    if len(counts := {name: len(values) for name, values in fields.items()}) and len(set(counts.values())) > 1:
        raise ConfigError(f"zipped() needs as many values of each field, not {counts}.")
    return rows(base, _named(fields, zip(*fields.values(), strict=True)))


def _named(fields: Mapping[str, Any], combinations: Iterable[Sequence[Any]]) -> dict[str, dict[str, Any]]:
    changes = (dict(zip(fields, values, strict=True)) for values in combinations)
    return {" ".join(f"{name.split('.')[-1]}={value}" for name, value in one.items()): one for one in changes}


def _path(base: Experiment, name: str) -> str:
    """The dotted name of the field that is meant by `name`."""
    known = config_fields.flatten(base)
    found = [path for path in known if path == name or path.endswith(f".{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"The field {name!r} may be {' or '.join(found)}; give its full name.")
    near = suggestion(name, [*known, *(path.split(".")[-1] for path in known)])
    raise ConfigError(f"There is no field {name!r}.{near}")
