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
    profile: bool = False
    """Trace steps 11 to 15 of this call into RUN/profile, and print where their time went."""
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
    """Loss, perplexity, BLEU by all protocols and chrF of a run; of one that parses, EVALB's scores."""

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
    """Translate lines: standard input to standard output, one line out for every line in. Several runs vote."""

    decoding: DecodingSettings
    input: Path | None = None
    """File to read instead of standard input."""
    output: Path | None = None
    """File to write instead of standard output; appears when it is complete."""
    n_best: int = 1
    """Translations of each line, best first, as so many lines."""
    scores: bool = False
    """Put the score before each translation, and whether it came to its end or was cut: score, end|cut, text."""
    alignments: bool = False
    """Put behind each translation which source piece each of its pieces looked at most: 0-0 1-2 …, source first."""
    prefix: Path | None = None
    """File of as many lines as the input: what each translation must begin with."""
    sample: bool = False
    """Draw translations at random instead of searching for the best."""
    temperature: float = 1.0
    """With --sample: below 1 closer to the likeliest, above 1 wilder."""
    top_k: int | None = None
    """With --sample: draw each token among the likeliest so many."""
    top_p: float | None = None
    """With --sample: draw each token among the likeliest that together have this probability."""
    seed: int = 0
    """With --sample: decides the draws; a line's do not depend on its neighbours, and equal lines draw alike."""
    process: ThisProcess = field(default_factory=Processes)
    beam: Beam = None
    alpha: Alpha = None


@dataclass(frozen=True)
class Parse:
    """The constituency tree of each line: standard input to standard output, one tree over exactly the line's words."""

    decoding: DecodingSettings
    input: Path | None = None
    """File to read instead of standard input: a sentence a line, its words (and punctuation) parted by white space."""
    output: Path | None = None
    """File to write instead of standard output; appears when it is complete."""
    pictures: Path | None = None
    """Folder to draw the trees into, as SVG files named after their lines' numbers."""
    beam: Beam = None
    alpha: Alpha = None


@dataclass(frozen=True)
class Score:
    """Force a run to given translations: the log-probability of each target line, given its source line."""

    source: Path = tyro.MISSING
    """File of source lines."""
    target: Path = tyro.MISSING
    """File of as many target lines."""


@dataclass(frozen=True)
class Export:
    """Write a run's averaged model as CTranslate2 or Hugging Face's transformers load it."""

    format: Literal["ctranslate2", "marian"] = tyro.MISSING
    """Tool it is for."""
    output: Path = tyro.MISSING
    """Directory to make; nothing that exists is overwritten."""
    quantization: Literal["float32", "int8"] = "float32"
    """ctranslate2: type of the weights on disk."""


@dataclass(frozen=True)
class Import:
    """Make a run directory of a Marian model of Hugging Face's transformers, to translate with and to train on."""

    format: Literal["marian"] = tyro.MISSING
    """Tool it comes from."""
    output: Path = tyro.MISSING
    """Run directory to make; nothing that exists is overwritten."""
    test_source: Path | None = None
    """Text in the source language that `evaluate` is to translate, one sentence a line."""
    test_target: Path | None = None
    """Its reference translation."""


@dataclass(frozen=True)
class Report:
    """Write report.html of each run again from what its directory holds."""


@dataclass(frozen=True)
class Bleu:
    """BLEU of a file of translations, by the protocols for plain text or by one."""

    hypothesis: Path = tyro.MISSING
    """Translations, one a line; plain or gzipped, as is the reference."""
    reference: Path = tyro.MISSING
    """References; line n is that of the translations' line n."""
    protocol: Literal["all", "13a", "intl", "paper", "none"] = "all"
    """sacreBLEU's 13a or intl, the paper's own, or none for tokenised text; all is the first three."""
    join_subwords: bool = False
    """Take subword-nmt's '@@ ' marks out of both first."""
    target_language: str = "de"
    """Code of the language of both, for the paper's protocol."""
    straight_quotes: bool = True
    """The paper's protocol: „ counts as an ordinary quote, as in the reference behind the paper's scores."""
    json: bool = False
    """Print one JSON object instead of the table."""


@dataclass(frozen=True)
class Brackets:
    """EVALB's scores of a file of trees: labelled brackets, complete matches, crossing brackets, tags."""

    gold: Path = tyro.MISSING
    """Right trees, one a line; plain or gzipped, as are the others."""
    test: Path = tyro.MISSING
    """Trees to score; line n is that of the right trees' line n."""
    parameters: Path | None = None
    """EVALB's parameter file; by default the rules of its COLLINS.prm."""
    sentences: bool = False
    """Print EVALB's table of sentences before its summary."""
    json: bool = False
    """Print one JSON object instead."""


@dataclass(frozen=True)
class Compare:
    """Which of two systems (runs or files of translations) has the higher BLEU, and whether by chance."""

    reference: Path | None = None
    """References; by default those of a run."""
    split: Literal["validation", "test"] = "test"
    """Split whose translations a run stands for."""
    protocol: Literal["own", "13a", "intl", "paper", "none"] = "own"
    """sacreBLEU's 13a or intl, the paper's, or none for tokenised text; own is what the run reports, 13a for files."""
    target_language: str | None = None
    """Code of the language translated to, for the paper's protocol; a run's own by default, de for files."""
    json: bool = False
    """Print one JSON object instead of the table."""


@dataclass(frozen=True)
class Verb:
    """A sub-command: what its target is, what it takes, where in `t2t_jax.commands` the function of its name is."""

    target: Literal["EXPERIMENT", "RUN", "RUN…", "DIR", "SYSTEM SYSTEM", ""]
    """One word for each target; `…` after the last allows more of them."""
    options: type
    module: str
    function: str | None = None
    """Its name, where that is not the verb."""


VERBS = {
    "train": Verb("EXPERIMENT", Train, "training"),
    "prepare": Verb("EXPERIMENT", Prepare, "training"),
    "plan": Verb("EXPERIMENT", Plan, "training"),
    "evaluate": Verb("RUN", Evaluate, "scoring"),
    "translate": Verb("RUN…", Translate, "translating"),
    "parse": Verb("RUN", Parse, "translating"),
    "score": Verb("RUN…", Score, "translating"),
    "export": Verb("RUN", Export, "exchange"),
    "import": Verb("DIR", Import, "exchange", "import_model"),
    "report": Verb("RUN…", Report, "scoring"),
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
    wanted = len(verb.target.split())
    if len(targets) < wanted and not wants_help:
        raise UserError(
            f"`{name}` needs {'a target' if wanted == 1 else COUNTED[wanted]}: python launch.py {name} {verb.target}."
        )
    if len(targets) > wanted and not verb.target.endswith("…"):
        raise UserError(f"`{name}` takes {COUNTED[wanted]}, not {', '.join(map(repr, targets))}.")
    options = _parse(name, verb, targets, rest)
    if getattr(options, "launcher", "local") == "slurm":
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
    if "settings" in fields:
        defaults["settings"] = load_experiment(targets[0]) if targets else config.Experiment()
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
