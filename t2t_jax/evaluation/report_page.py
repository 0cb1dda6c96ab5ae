"""report.html: one self-contained page about a run, made from the files of its directory alone."""

from __future__ import annotations

import functools
import importlib.resources
import json
import math
import statistics
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import jinja2
import numpy as np
from markupsafe import Markup

from t2t_jax import config, config_fields, run_directory, trajectory
from t2t_jax.data.sources import Split, read_lines
from t2t_jax.errors import DataError, RunError
from t2t_jax.evaluation import plots
from t2t_jax.evaluation.evaluate import ATTENTION
from t2t_jax.evaluation.tasks import Classification, Parsing, task_of
from t2t_jax.files import write_atomically
from t2t_jax.parsing.brackets import unmatched
from t2t_jax.parsing.pictures import IN_PAGE, draw
from t2t_jax.parsing.trees import parse
from t2t_jax.training import metrics
from t2t_jax.training.metrics import Entry

SAMPLES = 10
LONGEST_SAMPLE = 600  # characters of a line that are shown
LARGE, SMALL = (440, 270), (320, 190)  # plots in pixels


@dataclass(frozen=True)
class Plot:
    """Fields of metrics.jsonl to be drawn together."""

    caption: str
    unit: str
    training: str
    validation: str | None = None
    remark: str = ""
    """Of the training series, for the legend."""
    log: bool = False

    @property
    def large(self) -> bool:
        """What is also measured on held-out text is what the reader came for."""
        return self.validation is not None


PLOTS = (
    Plot("Loss", "nats per target token", "loss", "validation_loss", remark=", label-smoothed"),
    Plot("Perplexity", "per target token", "perplexity", "validation_perplexity", log=True),
    Plot("Learning rate", "", "learning_rate"),
    Plot("Speed", "target tokens per second", "tokens_per_second"),
    Plot("Gradient norm", "before clipping", "gradient_norm"),
)


def write_page(run: Path) -> Path:
    """Write RUN/report.html; returns its path.

    Raises:
      RunError: not a run directory, a damaged file in it, or the page cannot be written.
    """
    page = run / run_directory.PAGE
    text = render(run)
    try:
        write_atomically(page, text)
    except OSError as error:
        raise RunError(f"{str(page)!r} cannot be written: {error.strerror or error}.") from None
    return page


def render(run: Path) -> str:
    """The page of a run as HTML; a run in progress gets one too, without scores.

    Raises:
      RunError: not a run directory, or a damaged file in it.
    """
    experiment = run_directory.load_config(run)
    report = _read_json(run / run_directory.REPORT)
    entries = metrics.read(run)
    text = _template().render(
        name=experiment.name,
        report=report,
        status=_status(experiment, report, entries),
        scores=_headline_scores(experiment, report),
        facts=_facts(experiment, report, entries),
        table=_table(experiment, report or {}),
        curves=_curves(entries),
        languages=_languages(experiment),
        language_tags=_language_tags(experiment),
        samples=_samples(run, experiment, report or {}),
        attention=_attention(_read_json(run / ATTENTION) or []),
        data=_data(_read_json(run / run_directory.DATA)),
        schemes=_schemes(_read_json(run / run_directory.BATCHES) or []),
        settings=_settings(experiment),
    )
    # JSON can spell half a surrogate pair, which no file can hold.
    return text.encode("utf-8", errors="replace").decode("utf-8")


@functools.cache
def _template() -> jinja2.Template:
    source = importlib.resources.files("t2t_jax.evaluation").joinpath("report.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(source)


def _read_json(path: Path) -> Any:
    """The file's content, or None when there is no such file."""
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{str(path)!r} cannot be used: {error}. `evaluate` or `prepare` writes it again.") from None


def _status(experiment: config.Experiment, report: dict[str, Any] | None, entries: Sequence[Entry]) -> str | None:
    """What a reader must know before believing the numbers; None when they are complete and current."""
    planned, step = experiment.training.num_steps, int(entries[-1]["step"]) if entries else 0
    if report is None:
        return f"Training has reached step {step:,} of {planned:,}." if step else "Nothing has been logged yet."
    if step > (report.get("steps") or step):
        return f"The scores are those of step {report['steps']:,}; training has since reached step {step:,}."
    return None


def _parses(experiment: config.Experiment) -> bool:
    return experiment.data.task == "parsing"


def _counts_right(experiment: config.Experiment) -> bool:
    return isinstance(task_of(experiment), Classification | None)


def _languages(experiment: config.Experiment) -> tuple[str, str]:
    data = experiment.data
    if _counts_right(experiment):
        return ("image", "digit") if data.task == "digits" else ("text", data.target_language)
    return data.source_language, "trees" if _parses(experiment) else data.target_language


def _language_tags(experiment: config.Experiment) -> tuple[str | None, str | None]:
    """What a browser should take the two sides for; None where they are of no language, or of several."""
    data = experiment.data
    return (data.source_language, data.target_language) if data.task == "translation" else (None, None)


def _headline_scores(experiment: config.Experiment, report: dict[str, Any] | None) -> list[dict[str, str | None]]:
    """The three large numbers; their values are None before evaluation."""
    found = report or {}
    if _parses(experiment):
        return [
            {
                "label": "F1",
                "value": _fixed(found.get("f1")),
                "note": "labelled brackets, by EVALB’s rules (COLLINS.prm)",
            },
            {"label": "Complete match", "value": _fixed(found.get("complete_match")), "note": "% of sentences"},
            {"label": "Perplexity", "value": _fixed(found.get("perplexity")), "note": "per target token"},
        ]
    if _counts_right(experiment):
        return [
            {"label": "Accuracy", "value": _fixed(found.get("accuracy")), "note": "% of what is asked for"},
            {"label": "Perplexity", "value": _fixed(found.get("perplexity")), "note": "per target token"},
        ]
    if experiment.data.task == "text_to_text":
        tasks = found.get("tasks", {"": {"bleu": None}}).items()
        numbers = [(name, "f1" if "f1" in scores else "bleu", scores) for name, scores in tasks]
        return [{"label": key.upper(), "value": _fixed(scores[key]), "note": name} for name, key, scores in numbers]
    return [
        {"label": "BLEU", "value": _fixed(found.get("bleu")), "note": found.get("bleu_signature")},
        {"label": "Perplexity", "value": _fixed(found.get("perplexity")), "note": "per target token"},
        {"label": "chrF", "value": _fixed(found.get("chrf")), "note": "character n-gram F-score"},
    ]


def _facts(
    experiment: config.Experiment, report: dict[str, Any] | None, entries: Sequence[Entry]
) -> list[tuple[str, str | None]]:
    """Label and value of the small print; None is what evaluation has yet to tell."""
    last = entries[-1] if entries else {}
    logged = {
        "steps": last.get("step"),
        "epochs": last.get("epoch"),
        "training_seconds": sum(_finite(entry.get("seconds")) or 0 for entry in entries),
        "config_hash": trajectory.config_hash(experiment),
    }
    found = logged | {key: value for key, value in (report or {}).items() if value is not None}
    steps, parameters = found["steps"] or 0, found.get("parameters")
    planned = experiment.training.num_steps
    versions = [f"{name} {version}" for name, version in found.get("versions", {}).items()]
    return [
        ("Parameters", None if parameters is None else f"{parameters:,} ({parameters / 1e6:.1f} M)"),
        ("Steps", f"{steps:,}" + (f" of {planned:,}" if steps < planned else "")),
        ("Epochs", f"{found['epochs'] or 0:.1f}"),
        ("Time in training steps", _duration(found["training_seconds"])),
        ("Speed", _speed(entries)),
        ("Machine", found.get("machine")),
        ("Date", found.get("date")),
        *([("Command", found["command"])] if "command" in found else []),
        ("Config hash", found["config_hash"]),
        ("Versions", ", ".join(versions) or None),
    ]


def _speed(entries: Sequence[Entry]) -> str | None:
    """Medians over the log: a pause of the machine says nothing of the run."""

    def median(field: str) -> float | None:
        values = [value for entry in entries if (value := _finite(entry.get(field))) is not None]
        return statistics.median(values) if values else None

    flops, utilisation, waited = map(median, ("flops_per_second", "utilisation", "data_wait"))
    if flops is None:
        return None
    words = [f"{flops / 1e9:,.0f} GFLOP/s of model products"]
    if utilisation is not None:
        words.append(f"{utilisation:.1%} of device peak")
    if waited is not None:
        words.append(f"waiting for data {waited:.2%} of the time")
    return ", ".join(words)


def _table(experiment: config.Experiment, report: dict[str, Any]) -> dict[str, Any]:
    if experiment.data.task == "text_to_text":
        titles = ["BLEU", "chrF", "F1"]
        rows = []
        for split, scores in report.get("splits", {}).items():
            for name, own in scores["tasks"].items():
                bleu = next(iter(own.get("bleu", {}).values()), None)
                rows.append((f"{split}, {name}", [_fixed(x) for x in (bleu, own.get("chrf"), own.get("f1"))]))
        return {"lead": "Each task by its own scores.", "titles": titles, "rows": rows, "signatures": {}}
    if _counts_right(experiment):
        splits = report.get("splits", {}).items()
        rows = [(split, [_fixed(scores.get("accuracy")), *_common_numbers(scores)]) for split, scores in splits]
        lead = "Accuracy: % of answers that are right, or of tokens that are likeliest in their place."
        return {"lead": lead, "titles": ["Accuracy", *COMMON_TITLES], "rows": rows, "signatures": {}}
    return _bracket_table(report) if _parses(experiment) else _score_table(report)


def _score_table(report: dict[str, Any]) -> dict[str, Any]:
    """Scores by split and protocol, and the signatures they stand for."""
    splits: dict[str, dict[str, Any]] = report.get("splits", {})
    protocols = list(dict.fromkeys(name for scores in splits.values() for name in scores.get("bleu", {})))
    rows = []
    for split, scores in splits.items():
        numbers = [_fixed(scores.get("bleu", {}).get(name)) for name in protocols]
        numbers.append(_fixed(scores.get("chrf")))
        rows.append((split, numbers + _common_numbers(scores)))
    signatures: dict[str, str] = {}
    for scores in splits.values():
        signatures |= {f"BLEU {name}": text for name, text in scores.get("signatures", {}).items()}
        signatures |= {"chrF": scores["chrf_signature"]} if "chrf_signature" in scores else {}
    titles = [*(f"BLEU {protocol}" for protocol in protocols), "chrF", *COMMON_TITLES]
    return {"lead": "BLEU and chrF by sacreBLEU.", "titles": titles, "rows": rows, "signatures": signatures}


COMMON_TITLES = ("Perplexity", "NLL", "Smoothed loss", "Lines", "Target tokens", "Cut short")


def _common_numbers(scores: dict[str, Any]) -> list[str | None]:
    """Those of every task, as `COMMON_TITLES` has them."""
    numbers = [_fixed(scores.get("perplexity"))]
    numbers += [_fixed(scores.get(key), 3) for key in ("negative_log_likelihood", "loss")]
    return numbers + [_whole(scores.get(key)) for key in ("lines", "target_tokens", "cut")]


def _bracket_table(report: dict[str, Any]) -> dict[str, Any]:
    """Scores of trees by split, of all sentences and of those up to 40 words."""
    columns = {
        "F1": "f1",
        "Recall": "recall",
        "Precision": "precision",
        "Complete match": "complete_match",
        "Tags": "tagging_accuracy",
        "F1 ≤ 40": "f1_up_to_40",
    }
    counts = {"Errors": "errors", "Mended": "mended"}
    rows = []
    for split, scores in report.get("splits", {}).items():
        numbers = [_fixed(scores.get(key)) for key in columns.values()]
        numbers += [_whole(scores.get(key)) for key in counts.values()]
        rows.append((split, numbers + _common_numbers(scores)))
    lead = (
        "Labelled brackets as EVALB counts them with COLLINS.prm; ≤ 40: sentences of at most 40 words. Errors: "
        "sentences that EVALB leaves out because the two trees’ words differ once punctuation is removed by tag. "
        "Mended: trees that were not well-formed over the sentence’s words as the decoder wrote them."
    )
    return {"lead": lead, "titles": [*columns, *counts, *COMMON_TITLES], "rows": rows, "signatures": {}}


def _curves(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Each plot with its caption; those without a point are left out."""
    drawn = []
    for plot in PLOTS:
        lines, legend = [], []
        for series, colour in (("training", plots.TRAINING), ("validation", plots.VALIDATION)):
            key = getattr(plot, series)
            points = [(float(entry["step"]), y) for entry in entries if (y := _finite(entry.get(key))) is not None]
            if points:
                steps, values = zip(*points, strict=True)
                lines.append(plots.Line(steps, values, colour, dots=series == "validation"))
                legend.append({"series": series, "text": series + (plot.remark if series == "training" else "")})
        if lines:
            last = ", ".join(f"{item['series']} {line.y[-1]:.4g}" for item, line in zip(legend, lines, strict=True))
            description = f"{plot.caption} by step, up to step {lines[0].x[-1]:,.0f}. Last: {last}."
            size = LARGE if plot.large else SMALL
            svg = Markup(plots.curves(plot.caption, description, lines, *size, log=plot.log))
            drawn.append(
                {"caption": plot.caption, "unit": plot.unit, "legend": legend, "large": plot.large, "svg": svg}
            )
    return drawn


def _samples(run: Path, experiment: config.Experiment, report: dict[str, Any]) -> dict[str, Any] | None:
    """Triples from all over the headlined split: taken at equal distances, so that nobody chose them."""
    splits = experiment.evaluation.splits
    split = cast(Split, report.get("split") or (splits[0] if splits else "test"))
    try:
        sources, references = run_directory.evaluation_text(run, split)
    except RunError:
        return None
    path = run / "translations" / f"{split}.hypothesis"
    hypotheses = [line.decode("utf-8", errors="replace") for line in read_lines(path)] if path.is_file() else []
    if not hypotheses or len(hypotheses) != len(sources):
        return None
    distance = max(1, len(sources) // SAMPLES)
    numbers = range(1, len(sources) + 1, distance)[:SAMPLES]
    found = {"split": split, "lines": len(sources), "distance": distance, "trees": _parses(experiment)}
    if _parses(experiment):
        drawn = ((n, _drawn(sources[n - 1], references[n - 1], hypotheses[n - 1])) for n in numbers)
        return found | {"samples": [(n, pictures) for n, pictures in drawn if pictures]}
    sides = sources, references, hypotheses
    return found | {"samples": [(n, [_shown(side[n - 1]) for side in sides]) for n in numbers]}


def _drawn(source: str, target: str, found: str) -> list[Markup] | None:
    """The right tree and the run's own, in each what the other lacks marked; None if there are no such trees."""
    try:
        gold = Parsing().reference(source, target)
        trees = [parse(line) for line in (gold, found)]
        marked = unmatched(gold, found), unmatched(found, gold)
    except DataError:
        return None
    return [Markup(draw(tree, marks, IN_PAGE)) for tree, marks in zip(trees, marked, strict=True)]


def _shown(line: str) -> str:
    """A line as a page can show it: not too long, and without characters that would break it or the page."""
    line = line if len(line) <= LONGEST_SAMPLE else line[: LONGEST_SAMPLE - 1].rstrip() + "…"
    return "".join("�" if unicodedata.category(c) in ("Cc", "Zl", "Zp") and c != "\t" else c for c in line)


def _attention(samples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each sentence, the mean over heads with its tokens, and each head in small."""
    pictures = []
    for number, sample in enumerate(samples, start=1):
        weights = np.asarray(sample["weights"], float)  # [H, T, S]
        source, target = sample["source"], sample["target"]
        if weights.ndim != 3 or weights.shape[1:] != (len(target), len(source)):
            continue  # a source that was cut: its tokens and weights cannot be matched
        mean = weights.mean(axis=0)
        words = " ".join(target).replace("▁", "")
        description = f"Cross-attention, mean over {len(weights)} heads, of the translation: {words[:200]}"
        large = plots.labelled_heat_map(f"attention-{number}", description, mean, target, source)
        heads = [
            Markup(plots.heat_map(f"attention-{number}-{head}", f"Cross-attention of head {head}", part))
            for head, part in enumerate(weights, start=1)
        ]
        pictures.append({"mean": Markup(large), "strongest": f"{mean.max():.2f}", "heads": heads})
    return pictures


def _data(manifest: dict[str, Any] | None) -> dict[str, Any] | None:
    """What was kept and what was dropped."""
    if manifest is None:
        return None
    rows, dropped = [], []
    for split, facts in manifest["splits"].items():
        tokens = facts.get("tokens", {})
        rows.append((split, [_whole(facts["pairs"]), *(_whole(tokens.get(side)) for side in ("source", "target"))]))
        read = facts["pairs"] + sum(facts.get("dropped", {}).values())
        for reason, count in facts.get("dropped", {}).items():
            if count:
                dropped.append((split, reason, _whole(count), f"{100 * count / read:.3g}%"))
    facts = {"source": manifest["source"], "vocabulary": _whole(manifest["vocabulary"]), "hash": manifest.get("sha256")}
    return facts | {"rows": rows, "dropped": dropped}


def _schemes(found: Sequence[dict[str, Any]]) -> list[tuple[str, list[str | None]]]:
    """How full the batches are, the run's own first."""
    return [(s["name"], [_whole(s["shapes"]), f"{100 * s['efficiency']:.1f}%"]) for s in found]


def _settings(experiment: config.Experiment) -> dict[str, list[dict[str, Any]]]:
    """Every field by room, beside its default."""
    rooms: dict[str, list[dict[str, Any]]] = {}
    defaults = config_fields.flatten(config.Experiment())
    for path, value in config_fields.flatten(experiment).items():
        room, _, name = path.rpartition(".")
        differs = value != defaults[path]
        field = {"name": name, "value": _setting(value), "default": _setting(defaults[path]), "differs": differs}
        rooms.setdefault(room or "experiment", []).append(field)
    return rooms


def _setting(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _finite(value: Any) -> float | None:
    """The number, unless it is missing or one of the texts that stand for NaN and infinity."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _fixed(value: float | None, digits: int = 2) -> str | None:
    return None if value is None else f"{value:,.{digits}f}"


def _whole(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _duration(seconds: float) -> str:
    if not seconds:
        return "not recorded"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
