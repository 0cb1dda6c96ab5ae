"""The command line: verbs, their options, and settings overridden by name. Parses and dispatches, nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import itertools
import os
import shlex
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import tyro

from t2t_jax import config, config_fields, experiment_file
from t2t_jax.errors import ConfigError, NonFiniteLoss, UserError, exit_status, suggestion
from t2t_jax.launcher import job_folder, submit
from t2t_jax.options import (
    Bleu,
    Brackets,
    Compare,
    Evaluate,
    Export,
    Import,
    Parse,
    Plan,
    Prepare,
    Report,
    Score,
    Sweep,
    Train,
    TrainRow,
    Translate,
)
from t2t_jax.parallel.processes import Processes

DONE, FAILED, USER_ERROR, STOPPED = 0, 1, 2, 75

Options = TypeVar("Options")


@dataclass(frozen=True)
class Verb:
    """A sub-command: what its target is, what it takes, where in `t2t_jax.commands` the function of its name is."""

    target: Literal["EXPERIMENT", "RUN", "RUN…", "[RUN…]", "DIR", "DIR RUN", "SYSTEM SYSTEM", ""]
    """One word for each target; `…` after the last allows more of them."""
    options: type
    module: str
    function: str | None = None
    """Its name, where that is not the verb."""


VERBS = {
    "train": Verb("EXPERIMENT", Train, "training"),
    "prepare": Verb("EXPERIMENT", Prepare, "training"),
    "plan": Verb("EXPERIMENT", Plan, "training"),
    "sweep": Verb("EXPERIMENT", Sweep, "sweeping"),
    "train-row": Verb("DIR RUN", TrainRow, "sweeping", "train_row"),
    "evaluate": Verb("RUN", Evaluate, "scoring"),
    "translate": Verb("RUN…", Translate, "translating"),
    "parse": Verb("RUN", Parse, "translating"),
    "score": Verb("RUN…", Score, "translating"),
    "export": Verb("RUN", Export, "exchange"),
    "import": Verb("DIR", Import, "exchange", "import_model"),
    "report": Verb("[RUN…]", Report, "reporting"),
    "bleu": Verb("", Bleu, "scoring"),
    "brackets": Verb("", Brackets, "scoring"),
    "compare": Verb("SYSTEM SYSTEM", Compare, "scoring"),
}
COUNTED = ("no target", "one target", "two targets")


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status.

    0 done; 2 the user's mistake, told in a sentence; 75 stopped on request with a checkpoint saved; 1 anything else.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that can't show a character is no reason to fail
    try:
        return _dispatch(list(arguments))
    except (UserError, NonFiniteLoss) as error:
        print(f"error: {error}", file=sys.stderr)
        return exit_status(error)
    except KeyboardInterrupt:
        return FAILED
    except BrokenPipeError:  # whoever read our output has seen enough; nothing may try to flush the rest
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return DONE if arguments else USER_ERROR
    name, *rest = arguments
    if name not in VERBS:
        raise UserError(f"There is no verb {name!r}.{suggestion(name, VERBS)} The verbs are {', '.join(VERBS)}.")
    verb = VERBS[name]
    targets = _leading_words(rest)
    rest = rest[len(targets) :]
    wants_help = bool({"-h", "--help"} & set(rest))
    wanted = sum(not word.startswith("[") for word in verb.target.split())
    if len(targets) < wanted and not wants_help:
        raise UserError(
            f"`{name}` needs {'a target' if wanted == 1 else COUNTED[wanted]}: python launch.py {name} {verb.target}."
        )
    if len(targets) > wanted and "…" not in verb.target:
        raise UserError(f"`{name}` takes {COUNTED[wanted]}, not {', '.join(map(repr, targets))}.")
    options = _parse(name, verb, targets, rest)
    if isinstance(options, Train) and options.launcher == "slurm":
        return _submit(arguments, options)

    # These bring JAX in, which --help and mistakes need not wait for.
    from t2t_jax.parallel.platform import choose_platform

    choose_platform()
    module = importlib.import_module(f"t2t_jax.commands.{verb.module}")
    run: Callable[..., int] = getattr(module, verb.function or name)
    return run([Path(target) for target in targets], options)


def _submit(arguments: list[str], options: Train) -> int:
    """Queue this same command line, to run where the job is, and say how to follow it."""
    run = options.workdir or Path("runs") / options.settings.name
    _refuse_another_trajectory(run, options.settings)
    folder = job_folder(run, options.slurm)
    job = submit([*arguments, "--launcher", "local"], run.resolve().name, folder, options.slurm)
    print(f"job:     {job.job}")
    print(f"log:     {job.errors}")
    print(f"output:  {job.output}")
    print(f"watch:   squeue --jobs={job.job}; tail -F {shlex.quote(str(job.errors))}")
    print(f"cancel:  scancel {job.job}")
    return DONE


def _refuse_another_trajectory(run: Path, experiment: config.Experiment) -> None:
    """What the job would be refused for when its turn comes, as far as a look at the run directory shows it."""
    from t2t_jax import run_directory

    if run_directory.finished_steps(run):
        run_directory.refuse_differences(run, run_directory.load_config(run), experiment)


def _leading_words(arguments: Sequence[str]) -> list[str]:
    words = []
    for word in arguments:
        if word.startswith("-"):
            break
        words.append(word)
    return words


def _parse(name: str, verb: Verb, targets: Sequence[str], arguments: list[str]) -> Any:
    """The verb's options, with the settings of its target as defaults."""
    options = verb.options
    fields = {option.name for option in dataclasses.fields(options)}
    defaults: dict[str, Any] = {}
    rows = experiment_file.load_sweep(targets[0]) if targets and options is Sweep else {}
    if "settings" in fields:
        defaults["settings"] = config.Experiment()
        if rows:
            defaults["settings"] = next(iter(rows.values()))
        elif targets:
            defaults["settings"] = experiment_file.load_experiment(targets[0])
    if "decoding" in fields:
        defaults["decoding"] = _run_config(Path(targets[0])).decoding if targets else config.Decoding()
    default = options(**defaults)
    needed = [f"--{option.name}" for option in dataclasses.fields(options) if option.default is tyro.MISSING]
    if missing := [flag for flag in needed if not {flag, "-h", "--help"} & {word.split("=")[0] for word in arguments}]:
        raise UserError(f"`{name}` needs {' and '.join(missing)}; `launch.py {name} --help` explains them.")
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            parsed, unknown = tyro.cli(
                options,
                args=arguments,
                default=default,
                prog=f"launch.py {name} {verb.target}".rstrip(),
                description=_help_of(options),
                return_unknown_args=True,
            )
    except SystemExit as leaving:
        if leaving.code in (None, 0):  # it was --help
            raise
        raise UserError(f"{_sentence(complaint.getvalue())} `launch.py {name} --help` explains the options.") from None
    if unknown:
        near = suggestion(unknown[0].split("=")[0].replace("_", "-"), _flags(default))
        raise UserError(f"`{name}` has no option {unknown[0]!r}.{near} `launch.py {name} --help` lists them.")
    if rows:
        return dataclasses.replace(parsed, rows=_overridden(rows, parsed.settings, arguments))
    return _apply_short_names(parsed)


def _overridden(
    rows: dict[str, config.Experiment], settings: config.Experiment, arguments: Sequence[str]
) -> dict[str, config.Experiment]:
    """The rows of a sweep with what `settings` has of the fields named in `arguments`, in every one."""
    typed = {word.split("=")[0].lstrip("-").replace("-", "_").replace(".no_", ".") for word in arguments}
    changes = {path: value for path, value in config_fields.flatten(settings).items() if path in typed}
    changed = {}
    for name, experiment in rows.items():
        try:
            changed[name] = config_fields.replace(experiment, changes)
        except ConfigError as error:
            raise ConfigError(f"The row {name!r}: {error}") from None
    return changed


def _sentence(box: str) -> str:
    """What tyro says in the first paragraph of a box, as a sentence."""
    inside = (line.strip("│ ") for line in box.splitlines()[1:])
    return " ".join(itertools.takewhile(lambda line: not line.startswith("─"), inside)).strip().rstrip(".") + "."


def _flags(default: Any) -> list[str]:
    """The name of every option of a verb as it is typed, from the verb's options with their defaults."""
    names: list[str] = []
    for option in dataclasses.fields(default):
        value = getattr(default, option.name)
        if isinstance(value, dict):  # the rows of a sweep, which are not typed
            continue
        if isinstance(value, config.Experiment):
            names += config_fields.flatten(value)
        elif dataclasses.is_dataclass(value):
            prefix = "" if isinstance(value, Processes) else f"{option.name}."
            names += [prefix + inner.name for inner in dataclasses.fields(value)]
        else:
            names.append(option.name)
    return [f"--{name.replace('_', '-')}" for name in names]


def _run_config(run: Path) -> config.Experiment:
    from t2t_jax.run_directory import load_config

    return load_config(run)


def _apply_short_names(options: Options) -> Options:
    """--beam and --alpha into the decoding settings they are short for."""
    changes: dict[str, Any] = {}
    if getattr(options, "beam", None) is not None:
        changes["beam_size"] = options.beam  # type: ignore[attr-defined]
    if getattr(options, "alpha", None) is not None:
        changes["alpha"] = options.alpha  # type: ignore[attr-defined]
    if not changes:
        return options
    if hasattr(options, "settings"):
        decoding = dataclasses.replace(options.settings.decoding, **changes)
        settings = dataclasses.replace(options.settings, decoding=decoding)
        return dataclasses.replace(options, settings=settings)  # type: ignore[type-var]
    return dataclasses.replace(options, decoding=dataclasses.replace(options.decoding, **changes))  # type: ignore


def _help_of(options: type) -> str:
    return textwrap.dedent(options.__doc__ or "").strip()


def _overview() -> str:
    width, wide = max(map(len, VERBS)), max(len(verb.target) for verb in VERBS.values())
    lines = [f"  {name:<{width}}  {verb.target:<{wide}}  {_help_of(verb.options)}" for name, verb in VERBS.items()]
    return "\n".join(
        [
            "python launch.py VERB TARGET [--field.sub value …]",
            "",
            *lines,
            "",
            "Start with:  python launch.py train experiments/quickstart.py",
            "Settings:    python launch.py train experiments/quickstart.py --help",
        ]
    )
