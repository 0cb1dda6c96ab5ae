"""Experiment files: Python that defines `get_config()`. Only the one named on the command line is ever run."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
import traceback
from pathlib import Path

from t2t_jax import config
from t2t_jax.errors import ConfigError, suggestion


def load_experiment(path: str | Path) -> config.Experiment:
    """Run the experiment file at `path` and return what its `get_config()` returns.

    Raises:
      ConfigError: no such file, no `get_config`, or a config that does not validate.
    """
    path = Path(path)
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
        get_config = getattr(module, "get_config", None)
        if get_config is None:
            raise ConfigError(f"{str(path)!r} defines no get_config().")
        experiment = get_config()
    except SyntaxError as error:
        raise ConfigError(f"{str(path)!r}, line {error.lineno}: {error.msg}.") from None
    except ConfigError:
        raise
    except Exception as error:
        raise _explain(path, error) from error
    if not isinstance(experiment, config.Experiment):
        raise ConfigError(
            f"get_config() in {str(path)!r} must return a t2t_jax.config.Experiment, not {experiment!r:.80}."
        )
    return experiment


def _explain(path: Path, error: Exception) -> ConfigError:
    """Whatever an experiment file raises, in a sentence; an unknown field with the nearest one there is."""
    match = re.search(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(error))
    settings = getattr(config, match[1], None) if match else None
    if match is not None and dataclasses.is_dataclass(settings):
        known = [field.name for field in dataclasses.fields(settings)]
        return ConfigError(f"{str(path)!r}: {match[1]} has no field {match[2]!r}.{suggestion(match[2], known)}")
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    place = f", line {lines[-1]}" if lines else ""
    return ConfigError(f"{str(path)!r}{place}: {type(error).__name__}: {error}")
