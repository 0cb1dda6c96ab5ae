"""What each verb takes on its command line: the fields are options, the docstrings their help."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from t2t_jax import config
from t2t_jax.launcher import Slurm
from t2t_jax.parallel.processes import Processes

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
class Sweep:
    """Every row of a table: train what is not done, several at a time or on Slurm, and print the table."""

    settings: Settings
    rows: Annotated[dict[str, config.Experiment], tyro.conf.Fixed, tyro.conf.Suppress] = field(default_factory=dict)
    """What the sweep file defines, with the settings given on the command line in every row."""
    workdir: Path | None = None
    """Directory with a run for each row and seed; runs/NAME of the file by default. The same command goes on."""
    jobs: int = 1
    """Rows trained at a time, each in a process of its own."""
    seeds: int = 1
    """Runs of each row: from its own training.seed and those that follow."""
    retry: bool = False
    """Try again what has failed before; without it, that is reported and left."""
    dry_run: bool = False
    """Print what each row is and needs, and train nothing: differences, parameters, FLOPs, time. Needs no data."""
    json: bool = False
    """Print one JSON object instead of the table."""
    launcher: Literal["local", "slurm"] = "local"
    """Where to run: here, or each row as a Slurm job that this command submits."""
    slurm: Slurm = field(default_factory=Slurm)


@dataclass(frozen=True)
class TrainRow:
    """Train one run of a sweep, as `sweep` has its processes and jobs do it: RUN is the name of its folder in DIR."""


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
    """Write the report of each run or sweep again from what its directory holds; keep it in results/; the ledger."""

    record: Path | None = None
    """Folder to keep the figures of the one run or sweep in, as results/NAME: what the ledger is made from."""
    ledger: Path | None = None
    """Page to write from the records in results/, as docs/reproduction.md; needs no target."""


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
