"""Verbs that take models to other tools and fetch them from there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from t2t_jax.command_line import DONE
from t2t_jax.errors import ConfigError, UserError
from t2t_jax.export import ctranslate2, marian, marian_import
from t2t_jax.export.target import new_directory
from t2t_jax.options import Export, Import
from t2t_jax.training import trained


def export(targets: Sequence[Path], options: Export) -> int:
    """Write a run for another tool and print where."""
    (run,) = targets
    if options.format == "marian" and options.quantization != "float32":
        raise ConfigError(f"quantization={options.quantization!r} is CTranslate2's; a Marian export is float32.")
    with new_directory(options.output) as directory:
        model = trained.load(run)
        if options.format == "ctranslate2":
            ctranslate2.write(model, directory, options.quantization)
        else:
            marian.write(model, directory)
    print(options.output)
    return DONE


def import_model(targets: Sequence[Path], options: Import) -> int:
    """Make a run directory of another tool's model and print where."""
    (source,) = targets
    if (options.test_source is None) != (options.test_target is None):
        raise UserError("`import` takes --test-source and --test-target together.")
    with new_directory(options.output) as directory:
        marian_import.read(source, directory, options.test_source, options.test_target)
    print(options.output)
    return DONE
