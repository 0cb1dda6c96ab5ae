"""The numbers of the paper's Tables 2, 3 and 4 as data, and what a model of Table 3 is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from t2t_jax.config import Experiment

HARDWARE = "8 P100"

Facts = Mapping[str, float | str]

BASE: Facts = MappingProxyType(
    {
        "num_layers": 6,
        "d_model": 512,
        "d_ff": 2048,
        "num_heads": 8,
        "d_k": 64,
        "d_v": 64,
        "dropout": 0.1,
        "label_smoothing": 0.1,
        "positions": "sinusoidal",
    }
)
"""The columns of Table 3 that say what is trained, for the base model."""


@dataclass(frozen=True)
class Table3Row:
    """A variation of the base model, scored on newstest2013: per-wordpiece perplexity, BLEU, parameters in millions."""

    changes: Facts
    perplexity: float
    bleu: float
    millions: int | None = None
    """None where the paper leaves the column empty, as the model is as large as base."""

    @property
    def facts(self) -> Facts:
        """All columns that say what is trained."""
        return {**BASE, **self.changes}


def _heads(number: int, width: int) -> Facts:
    return {"num_heads": number, "d_k": width, "d_v": width}


TABLE_3: Mapping[str, Table3Row] = MappingProxyType(
    {
        "base": Table3Row({}, 4.92, 25.8, 65),
        "A h=1": Table3Row(_heads(1, 512), 5.29, 24.9),
        "A h=4": Table3Row(_heads(4, 128), 5.00, 25.5),
        "A h=16": Table3Row(_heads(16, 32), 4.91, 25.8),
        "A h=32": Table3Row(_heads(32, 16), 5.01, 25.4),
        "B d_k=16": Table3Row({"d_k": 16}, 5.16, 25.1, 58),
        "B d_k=32": Table3Row({"d_k": 32}, 5.01, 25.4, 60),
        "C N=2": Table3Row({"num_layers": 2}, 6.11, 23.7, 36),
        "C N=4": Table3Row({"num_layers": 4}, 5.19, 25.3, 50),
        "C N=8": Table3Row({"num_layers": 8}, 4.88, 25.5, 80),
        "C d_model=256": Table3Row({"d_model": 256, "d_k": 32, "d_v": 32}, 5.75, 24.5, 28),
        "C d_model=1024": Table3Row({"d_model": 1024, "d_k": 128, "d_v": 128}, 4.66, 26.0, 168),
        "C d_ff=1024": Table3Row({"d_ff": 1024}, 5.12, 25.4, 53),
        "C d_ff=4096": Table3Row({"d_ff": 4096}, 4.75, 26.2, 90),
        "D P_drop=0.0": Table3Row({"dropout": 0.0}, 5.77, 24.6),
        "D P_drop=0.2": Table3Row({"dropout": 0.2}, 4.95, 25.5),
        "D eps_ls=0.0": Table3Row({"label_smoothing": 0.0}, 4.67, 25.3),
        "D eps_ls=0.2": Table3Row({"label_smoothing": 0.2}, 5.47, 25.7),
        "E learned positions": Table3Row({"positions": "learned"}, 4.92, 25.7),
        "big": Table3Row({"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3}, 4.33, 26.4, 213),
    }
)
"""By the names of the rows of experiments/table3.py."""


def facts(experiment: Experiment) -> Facts:
    """What Table 3 would say of an experiment: its columns, with the widths of heads worked out."""
    model = experiment.model
    return {
        "num_layers": model.num_layers,
        "d_model": model.d_model,
        "d_ff": model.d_ff,
        "num_heads": model.num_heads,
        "d_k": model.key_width,
        "d_v": model.value_width,
        "dropout": model.dropout,
        "label_smoothing": experiment.training.label_smoothing,
        "positions": model.positions,
    }


def row_of(experiment: Experiment) -> str | None:
    """The row of Table 3 that an experiment trains: the same columns, on WMT14 English-German; None if it is none."""
    data = experiment.data
    if (data.source, data.source_language, data.target_language) != ("tfds", "en", "de"):
        return None
    own = facts(experiment)
    return next((name for name, row in TABLE_3.items() if row.facts == own), None)


PAIRS = ("en-de", "en-fr")


@dataclass(frozen=True)
class Table2Row:
    """BLEU on newstest2014 and training FLOPs by language pair, as they are printed; empty where nothing is."""

    bleu: tuple[str, str]
    flops: tuple[str, str]
    size: str | None = None
    """Of ours, base or big; None for other people's models."""
    time: str = ""
    """Of training on `HARDWARE`."""

    def experiment(self, pair: str) -> str | None:
        """The file that trains it here."""
        return f"experiments/wmt14_{pair.replace('-', '')}_{self.size}.py" if self.size else None


# The paper prints the Transformer's FLOPs once, in the middle of the two columns.
TABLE_2: Mapping[str, Table2Row] = MappingProxyType(
    {
        "ByteNet": Table2Row(("23.75", ""), ("", "")),
        "Deep-Att + PosUnk": Table2Row(("", "39.2"), ("", "1.0e20")),
        "GNMT + RL": Table2Row(("24.6", "39.92"), ("2.3e19", "1.4e20")),
        "ConvS2S": Table2Row(("25.16", "40.46"), ("9.6e18", "1.5e20")),
        "MoE": Table2Row(("26.03", "40.56"), ("2.0e19", "1.2e20")),
        "Deep-Att + PosUnk, ensemble": Table2Row(("", "40.4"), ("", "8.0e20")),
        "GNMT + RL, ensemble": Table2Row(("26.30", "41.16"), ("1.8e20", "1.1e21")),
        "ConvS2S, ensemble": Table2Row(("26.36", "41.29"), ("7.7e19", "1.2e21")),
        "Transformer base": Table2Row(("27.3", "38.1"), ("3.3e18", "3.3e18"), "base", "12 h"),
        "Transformer big": Table2Row(("28.4", "41.8"), ("2.3e19", "2.3e19"), "big", "3.5 days"),
    }
)


@dataclass(frozen=True)
class Table4Row:
    """Parsing English: F1 on section 23 of the Wall Street Journal part of the Penn Treebank."""

    training: str
    f1: float
    experiment: str | None = None
    """File that trains it here; None for other people's models."""


TABLE_4: Mapping[str, Table4Row] = MappingProxyType(
    {
        "Vinyals & Kaiser et al. (2014)": Table4Row("WSJ only", 88.3),
        "Petrov et al. (2006)": Table4Row("WSJ only", 90.4),
        "Zhu et al. (2013)": Table4Row("WSJ only", 90.4),
        "Dyer et al. (2016)": Table4Row("WSJ only", 91.7),
        "Transformer (4 layers)": Table4Row("WSJ only", 91.3, "experiments/parsing_wsj.py"),
        "Zhu et al. (2013), semi-supervised": Table4Row("semi-supervised", 91.3),
        "Huang & Harper (2009)": Table4Row("semi-supervised", 91.3),
        "McClosky et al. (2006)": Table4Row("semi-supervised", 92.1),
        "Vinyals & Kaiser et al. (2014), semi-supervised": Table4Row("semi-supervised", 92.1),
        "Transformer (4 layers), semi-supervised": Table4Row(
            "semi-supervised", 92.7, "experiments/parsing_semisupervised.py"
        ),
        "Luong et al. (2015)": Table4Row("multi-task", 93.0),
        "Dyer et al. (2016), generative": Table4Row("generative", 93.3),
    }
)


@dataclass(frozen=True)
class Published:
    """A number that others published about a model that trains on two cores, and what trains it here."""

    what: str
    bleu: float
    protocol: str
    experiment: str
    arguments: str
    """Of the command, after the file."""
    hardware: str


PUBLISHED = (
    Published(
        "Multi30k test 2016, English-German: fairseq's transformer_tiny, lower-cased and tokenised BLEU-4, in "
        "Wu et al. (2021), “Good for Misconceived Reasons”",
        41.02,
        "none",
        "experiments/multi30k_published.py",
        "--data.directory DIR",
        "two CPU cores, one to three hours a seed",
    ),
)
