"""The command line: verbs, their options, and settings overridden by name. Parses and dispatches, nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import os
import shlex
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from t2t_jax import config
from t2t_jax.errors import NonFiniteLoss, UserError, exit_status, suggestion
from t2t_jax.experiment_file import load_experiment
from t2t_jax.launcher import Slurm, job_folder, submit
from t2t_jax.parallel.processes import Processes

DONE, FAILED, USER_ERROR, STOPPED = 0, 1, 2, 75

Options = TypeVar("Options")
# Settings appear under their own names (--model.d-ff), not below a name of the options that hold them.
Settings = Annotated[config.Experiment, tyro.conf.arg(name="")]
DecodingSettings = Annotated[config.Decoding, tyro.conf.arg(name="decoding")]
# --coordinator, --num-processes, --process-id
ThisProcess = Annotated[Processes, tyro.conf.arg(name="")]
Beam = Annotated[int | None, tyro.conf.arg(help="Short for --decoding.beam-size.")]
Alpha = Annotated[float | None, tyro.conf.arg(help="Short for --decoding.alpha.")]


@dataclass(frozen=True)
class Train:
    """Prepare the data if needed, train or go on training, average, evaluate, write the report."""

    settings: Settings
    workdir: Path | None = None
    """Run directory; runs/NAME by default. The same command again goes on where it stopped."""
    process: ThisProcess = field(default_factory=Processes)
    beam: Beam = None
    alpha: Alpha = None
    launcher: Literal["local", "slurm"] = "local"
    """Where to run: here, or as a Slurm job that this command submits."""
    slurm: Slurm = field(default_factory=Slurm)


@dataclass(frozen=True)
class Prepare:
    """Prepare the data only; says what was kept and dropped, and how full the batches are."""

    settings: Settings
    workdir: Path | None = None
    """Run directory; runs/NAME by default."""


@dataclass(frozen=True)
class Evaluate:
    """Loss, perplexity, BLEU by all protocols and chrF of a run."""

    decoding: DecodingSettings
    split: Literal["validation", "test"] | None = None
    """Split to score; the run's evaluation.splits by default."""
    json: bool = False
    """Print one JSON object instead of the table."""
    process: ThisProcess = field(default_factory=Processes)
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
    process: ThisProcess = field(default_factory=Processes)
    beam: Beam = None
    alpha: Alpha = None


@dataclass(frozen=True)
class Export:
    """Write a run's averaged model as CTranslate2 or Hugging Face's transformers load it."""

    format: Literal["ctranslate2", "marian"] | None = None
    """Tool it is for."""
    output: Path | None = None
    """Directory to make; nothing that exists is overwritten."""
    quantization: Literal["float32", "int8"] = "float32"
    """ctranslate2: type of the weights on disk."""


@dataclass(frozen=True)
class Import:
    """Make a run directory of a Marian model of Hugging Face's transformers, to translate with and to train on."""

    format: Literal["marian"] | None = None
    """Tool it comes from."""
    output: Path | None = None
    """Run directory to make; nothing that exists is overwritten."""
    test_source: Path | None = None
    """Text in the source language that `evaluate` is to translate, one sentence a line."""
    test_target: Path | None = None
    """Its reference translation."""


@dataclass(frozen=True)
class Report:
    """Write report.html of each run again from what its directory holds."""


@dataclass(frozen=True)
class Verb:
    """A sub-command: what its target is, what it takes, what runs it (a function of `t2t_jax.commands`)."""

    target: Literal["EXPERIMENT", "RUN", "RUN…", "DIR"]
    options: type
    function: str | None = None
    """Where it differs from the verb."""


VERBS = {
    "train": Verb("EXPERIMENT", Train),
    "prepare": Verb("EXPERIMENT", Prepare),
    "evaluate": Verb("RUN", Evaluate),
    "translate": Verb("RUN", Translate),
    "export": Verb("RUN", Export),
    "import": Verb("DIR", Import, "import_model"),
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
    if not targets and not wants_help:
        raise UserError(f"`{name}` needs a target: python launch.py {name} {verb.target}.")
    if len(targets) > 1 and verb.target != "RUN…":
        raise UserError(f"`{name}` takes one target, not {', '.join(map(repr, targets))}.")
    options = _parse(name, verb, targets, rest)
    if getattr(options, "launcher", "local") == "slurm":
        return _submit(arguments, options)

    from t2t_jax import commands  # brings JAX in, which --help and mistakes need not wait for

    run: Callable[..., int] = getattr(commands, verb.function or name)
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
    if "settings" in fields:
        defaults["settings"] = load_experiment(targets[0]) if targets else config.Experiment()
    if "decoding" in fields:
        defaults["decoding"] = _run_config(Path(targets[0])).decoding if targets else config.Decoding()
    default = options(**defaults)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            parsed, unknown = tyro.cli(
                options,
                args=arguments,
                default=default,
                prog=f"launch.py {name} {verb.target}",
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
    return _apply_short_names(parsed)


def _sentence(box: str) -> str:
    """What tyro says in the first paragraph of a box, as a sentence."""
    inside = (line.strip("│ ") for line in box.splitlines()[1:])
    return " ".join(itertools.takewhile(lambda line: not line.startswith("─"), inside)).strip().rstrip(".") + "."


def _flags(default: Any) -> list[str]:
    """The name of every option of a verb as it is typed, from the verb's options with their defaults."""
    names: list[str] = []
    for option in dataclasses.fields(default):
        value = getattr(default, option.name)
        if isinstance(value, config.Experiment):
            names += config.flatten(value)
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
