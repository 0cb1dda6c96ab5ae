"""The command line: verbs, their options, and settings overridden by name. Parses and dispatches, nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from t2t_jax import config
from t2t_jax.errors import NonFiniteLoss, UserError, suggestion
from t2t_jax.experiment_file import load_experiment

DONE, FAILED, USER_ERROR, STOPPED = 0, 1, 2, 75

Options = TypeVar("Options")
# Settings appear under their own names (--model.d-ff), not below a name of the options that hold them.
Settings = Annotated[config.Experiment, tyro.conf.arg(name="")]
DecodingSettings = Annotated[config.Decoding, tyro.conf.arg(name="decoding")]
Beam = Annotated[int | None, tyro.conf.arg(help="Short for --decoding.beam-size.")]
Alpha = Annotated[float | None, tyro.conf.arg(help="Short for --decoding.alpha.")]


@dataclass(frozen=True)
class Train:
    """Prepare the data if needed, train or go on training, average, evaluate, write the report."""

    settings: Settings
    workdir: Path | None = None
    """Run directory; runs/NAME by default. The same command again goes on where it stopped."""
    beam: Beam = None
    alpha: Alpha = None


@dataclass(frozen=True)
class Prepare:
    """Prepare the data only; says what was kept and dropped, and how full the batches are."""

    settings: Settings
    workdir: Path | None = None
    """Run directory; runs/NAME by default."""


@dataclass(frozen=True)
class Plan:
    """Compile the training step for accelerators that need not be here: memory, collectives, time, cost."""

    settings: Settings
    topology: str | None = None
    """Accelerators by name: v5e:2x4 (a grid of TPU chips), h100:8 (GPUs in a host), h100:16x8 (hosts x GPUs)."""
    compare: bool = False
    """Data-parallel, FSDP and tensor-parallel meshes in one table, instead of the experiment's mesh."""
    workdir: Path | None = None
    """Run directory whose prepared data gives the batch shapes; runs/NAME by default. Without one they are assumed."""
    json: bool = False
    """Print one JSON object instead of the table."""


@dataclass(frozen=True)
class Evaluate:
    """Loss, perplexity, BLEU by all protocols and chrF of a run."""

    decoding: DecodingSettings
    split: Literal["validation", "test"] | None = None
    """Split to score; the run's evaluation.splits by default."""
    json: bool = False
    """Print one JSON object instead of the table."""
    beam: Beam = None
    alpha: Alpha = None


@dataclass(frozen=True)
class Translate:
    """Translate lines: standard input to standard output, one line out for every line in."""

    decoding: DecodingSettings
    input: Path | None = None
    """File to read instead of standard input."""
    output: Path | None = None
    """File to write instead of standard output; appears when it is complete."""
    beam: Beam = None
    alpha: Alpha = None


@dataclass(frozen=True)
class Report:
    """Write report.html of each run again from what its directory holds."""


@dataclass(frozen=True)
class Verb:
    """A sub-command: what its target is, what it takes, what runs it (a function of `t2t_jax.commands`)."""

    target: Literal["EXPERIMENT", "RUN", "RUN…"]
    options: type


VERBS = {
    "train": Verb("EXPERIMENT", Train),
    "prepare": Verb("EXPERIMENT", Prepare),
    "plan": Verb("EXPERIMENT", Plan),
    "evaluate": Verb("RUN", Evaluate),
    "translate": Verb("RUN", Translate),
    "report": Verb("RUN…", Report),
}


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status.

    0 done; 2 the user's mistake, told in a sentence; 75 stopped on request with a checkpoint saved; 1 anything else.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that can't show a character is no reason to fail
    try:
        return _dispatch(list(arguments))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    except NonFiniteLoss as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
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
    if not targets and not wants_help:
        raise UserError(f"`{name}` needs a target: python launch.py {name} {verb.target}.")
    if len(targets) > 1 and verb.target != "RUN…":
        raise UserError(f"`{name}` takes one target, not {', '.join(map(repr, targets))}.")
    options = _parse(name, verb, targets, rest)

    # These bring JAX in, which --help and mistakes need not wait for.
    from t2t_jax import commands
    from t2t_jax.parallel.platform import choose_platform

    choose_platform()

    run: Callable[..., int] = getattr(commands, name)
    return run([Path(target) for target in targets], options)


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
    fields = {field.name for field in dataclasses.fields(options)}
    defaults: dict[str, Any] = {}
    if "settings" in fields:
        defaults["settings"] = load_experiment(targets[0]) if targets else config.Experiment()
    if "decoding" in fields:
        defaults["decoding"] = _run_config(Path(targets[0])).decoding if targets else config.Decoding()
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            parsed, unknown = tyro.cli(
                options,
                args=arguments,
                default=options(**defaults),
                prog=f"launch.py {name} {verb.target}",
                description=_help_of(options),
                return_unknown_args=True,
            )
    except SystemExit as leaving:
        if leaving.code in (None, 0):  # it was --help
            raise
        raise UserError(f"{_sentence(complaint.getvalue())} `launch.py {name} --help` explains the options.") from None
    if unknown:
        near = suggestion(unknown[0].split("=")[0].replace("_", "-"), _flags(options, defaults))
        raise UserError(f"`{name}` has no option {unknown[0]!r}.{near} `launch.py {name} --help` lists them.")
    return _apply_short_names(parsed)


def _sentence(box: str) -> str:
    """What tyro says in the first paragraph of a box, as a sentence."""
    inside = (line.strip("│ ") for line in box.splitlines()[1:])
    return " ".join(itertools.takewhile(lambda line: not line.startswith("─"), inside)).strip().rstrip(".") + "."


def _flags(options: type, defaults: dict[str, Any]) -> list[str]:
    """Every option's name as it is typed."""
    names = [field.name for field in dataclasses.fields(options) if field.name not in defaults]
    if "settings" in defaults:
        names += config.flatten(defaults["settings"])
    if "decoding" in defaults:
        names += [f"decoding.{field.name}" for field in dataclasses.fields(config.Decoding)]
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
    width = max(map(len, VERBS))
    lines = [f"  {name:<{width}}  {verb.target:<10}  {_help_of(verb.options)}" for name, verb in VERBS.items()]
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
