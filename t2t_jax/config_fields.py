"""An experiment as its fields by name: to JSON and strictly back, flat, and with some of them replaced."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping
from typing import Any

from t2t_jax import config
from t2t_jax.checks import hints_of
from t2t_jax.errors import ConfigError, suggestion


def to_json(experiment: config.Experiment) -> str:
    """The config as indented JSON; `from_json` gives an equal one back."""
    return json.dumps(dataclasses.asdict(experiment), indent=2) + "\n"


def from_json(text: str) -> config.Experiment:
    """Parse `to_json`'s output.

    Raises:
      ConfigError: not JSON, an unknown field (the nearest one is named), a value of the wrong type or range.
    """
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"The config is not valid JSON: {error}.") from None
    return _from_tree(config.Experiment, tree, "")


def flatten(experiment: config.Experiment) -> dict[str, Any]:
    """{'name': ..., 'model.num_layers': ..., ...} in the order of the fields."""
    flat: dict[str, Any] = {}
    for name, value in dataclasses.asdict(experiment).items():
        flat.update({f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value})
    return flat


def replace(experiment: config.Experiment, changes: Mapping[str, Any]) -> config.Experiment:
    """The config with fields changed, each by its dotted name ('model.num_layers'), all at once.

    Raises:
      ConfigError: no such field (the nearest one is named), or values that do not go together.
    """
    flat = flatten(experiment)
    for path in changes:
        if path not in flat:
            raise ConfigError(f"There is no field {path!r}.{suggestion(path, flat)}")
    sections: dict[str, dict[str, Any]] = {}
    for path, value in changes.items():
        section, _, name = path.rpartition(".")
        sections.setdefault(section, {})[name] = value
    new = sections.pop("", {})
    new |= {
        section: dataclasses.replace(getattr(experiment, section), **fields) for section, fields in sections.items()
    }
    return dataclasses.replace(experiment, **new)


def _from_tree(cls: type, tree: Any, path: str) -> Any:
    if not isinstance(tree, dict):
        raise ConfigError(f"The config's {path or 'top level'} must be an object, not {tree!r:.80}.")
    hints = hints_of(cls)
    arguments = {}
    for name, value in tree.items():
        if name not in hints:
            raise ConfigError(f"The config has an unknown field {path + name!r}.{suggestion(name, hints)}")
        if dataclasses.is_dataclass(hints[name]):
            value = _from_tree(typing.cast(type, hints[name]), value, f"{path}{name}.")
        elif isinstance(value, list):
            value = tuple(value)
        arguments[name] = value
    return cls(**arguments)
