"""Experiment files: Python that defines `get_config()`, or `get_sweep()`. Only the one that was named is ever run."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
import traceback
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.errors import ConfigError, suggestion

# What a file may define instead, and which verb would take it then.
OTHER = {
    "get_config": ("get_sweep", " but get_sweep(), so `sweep` takes it."),
    "get_sweep": ("get_config", " but get_config(): it is one experiment, which `train` takes."),
}


def load_experiment(path: str | Path) -> config.Experiment:
    """Run the experiment file at `path` and return what its `get_config()` returns.

    Raises:
      ConfigError: no such file, no `get_config`, or a config that does not validate.
    """
    experiment = _result_of(Path(path), "get_config")
    if not isinstance(experiment, config.Experiment):
        raise ConfigError(
            f"get_config() in {str(path)!r} must return a t2t_jax.config.Experiment, not {experiment!r:.80}."
        )
    return experiment


def load_sweep(path: str | Path) -> dict[str, config.Experiment]:
    """Run the sweep file at `path` and return what its `get_sweep()` returns: experiments by the names of their rows.

    Raises:
      ConfigError: no such file, no `get_sweep`, no rows, or a row that does not validate.
    """
    rows = _result_of(Path(path), "get_sweep")
    if not isinstance(rows, dict) or not rows:
        raise ConfigError(f"get_sweep() in {str(path)!r} must return a dict of at least one row, not {rows!r:.80}.")
    for name, experiment in rows.items():
        if not isinstance(name, str) or not isinstance(experiment, config.Experiment):
            raise ConfigError(
                f"get_sweep() in {str(path)!r}: the row {name!r} must be a t2t_jax.config.Experiment under a string, "
                f"not {experiment!r:.80}."
            )
    return rows


def _result_of(path: Path, function: str) -> Any:
    """What `function` of the file at `path` returns."""
    if not path.is_file():
        near = suggestion(path.name, [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else [])
        raise ConfigError(f"There is no experiment file {str(path)!r}.{near}")
    spec = importlib.util.spec_from_file_location(f"experiment_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{str(path)!r} is not a Python file; an experiment file ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        found = getattr(module, function, None)
        if found is None:
            other, hint = OTHER[function]
            raise ConfigError(f"{str(path)!r} defines no {function}(){hint if hasattr(module, other) else '.'}")
        return found()
    except SyntaxError as error:
        raise ConfigError(f"{str(path)!r}, line {error.lineno}: {error.msg}.") from None
    except ConfigError:
        raise
    except Exception as error:
        raise _explain(path, error) from error


def _explain(path: Path, error: Exception) -> ConfigError:
    """Whatever an experiment file raises, in a sentence; an unknown field with the nearest one there is."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    place = f"{str(path)!r}, line {lines[-1]}" if lines else repr(str(path))
    match = re.search(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(error))
    settings = getattr(config, match[1], None) if match else None
    if match is not None and dataclasses.is_dataclass(settings):
        known = [field.name for field in dataclasses.fields(settings)]
        return ConfigError(f"{place}: {match[1]} has no field {match[2]!r}.{suggestion(match[2], known)}")
    return ConfigError(f"{place}: {type(error).__name__}: {error}")
