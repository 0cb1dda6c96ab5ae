"""The report of a sweep, from directories with made-up figures: what it says, what is missing, that it is harmless."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax import command_line
from t2t_jax.config import Experiment
from t2t_jax.errors import RunError
from t2t_jax.evaluation.tasks import Accuracy
from t2t_jax.experiment_file import load_experiment, load_sweep
from t2t_jax.sweeps import directions, ledger, paper_numbers, report, rows, table, variants
from t2t_jax.sweeps.pictures import beside, spaced
from tests.sweeps.conftest import Write

Plan = Callable[..., rows.Sweep]
ROOT = Path(__file__).parents[2]


def lines_of(sweep: rows.Sweep) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((sweep.directory / "table.csv").read_text(encoding="utf-8"))))


def text_of(sweep: rows.Sweep) -> str:
    """What a reader of the page sees."""
    page = (sweep.directory / "report.html").read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)))


def test_the_figures_of_two_seeds(plan: Plan, write_run: Write) -> None:
    sweep = plan({"base": {}, "h=1": {"num_heads": 1}}, seeds=2)
    figures = [(30.0, 5.0, 0), (31.0, 5.2, 0), (28.5, 5.5, 25), (28.5, 5.7, 25)]
    for row, (bleu, perplexity, worse) in zip(sweep.rows, figures, strict=True):
        write_run(row, bleu, perplexity, 1_234_567, worse)
    report.write(sweep.directory)

    base, one = lines_of(sweep)
    assert (base["row"], one["row"]) == ("base", "h=1")
    assert [line["config_hash"] for line in (base, one)] == [sweep.rows[0].config_hash, sweep.rows[2].config_hash]
    assert (base["parameters"], base["steps"], base["seeds_done"]) == ("1234567", "40", "2")
    assert (base["perplexity"], base["perplexity_sd"]) == ("5.10", "0.14")  # 0.1 * sqrt 2
    assert (base["bleu"], base["bleu_sd"]) == ("30.50", "0.71")  # 0.5 * sqrt 2
    assert (one["bleu"], one["bleu_sd"], one["perplexity"]) == ("28.50", "0.00", "5.60")
    assert (base["test_bleu_paper"], base["test_perplexity"]) == ("32.00", "6.10")
    assert base["training_flops"] == "2.0000e+11"  # 50 s at 4 GFLOP/s
    assert base["bleu_difference"] == base["p_bootstrap"] == base["paper_bleu"] == ""

    # Of the translations, not of the figures that were made up: 25 of 30 lines lack their last word.
    assert float(one["difference_low"]) < float(one["bleu_difference"]) < float(one["difference_high"]) < 0
    assert float(one["p_bootstrap"]) < 0.05 and float(one["p_randomization"]) < 0.05

    text = text_of(sweep)
    for said in (
        "All 2 rows are done.",
        "python launch.py sweep made_up.py --data.directory DIR",
        "base 5.10 ± 0.14 30.50 ± 0.71 1.2 done",
        "Mean ± standard deviation over 2 seeds.",
        f"h=1 worse {one['bleu_difference']} {one['difference_low']} … {one['difference_high']}",
        "base 1,234,567 40 2.000e11 2.500e11 – 0.8 200 100 50",  # 2 x 150 tokens in 2 x 3 s
        "Memory is what the largest training step takes of one device",
        "h=1 A h=1, A h=4 agrees agrees +0.50 +0.37 +0.08 -2.00 -0.9 -0.3",
        "Perplexity agrees in 1 of 1 rows and goes the other way in none. BLEU agrees in 1 of 1 rows",
        "base test 6.10 ± 0.14 31.50 ± 0.71 32.00 ± 0.71 55.50 ± 0.00",
        "signature:paper",
    ):
        assert said in text, said
    assert {path.stem for path in (sweep.directory / "plots").iterdir()} == {"curves", "differences", "heads"}


def test_reports_from_before_memory_and_decoding_speed_were_kept(plan: Plan, write_run: Write) -> None:
    sweep = plan({"base": {}, "new": {"dropout": 0.0}})
    for row in sweep.rows:
        write_run(row)
    path = sweep.rows[0].directory / "report.json"
    kept = json.loads(path.read_text())
    for name in ("training_memory_bytes", "decoding_seconds", "decoding_tokens"):
        del kept[name]
    path.write_text(json.dumps(kept))
    report.write(sweep.directory)
    assert "base 1,500,000 40 2.000e11 2.500e11 – 0.8 200 – –" in text_of(sweep)
    (sweep.rows[1].directory / "report.json").unlink()
    report.write(sweep.directory)
    assert "tokens/s base" in text_of(sweep) and "Memory is" not in text_of(sweep), "columns that nobody fills"


def test_the_same_runs_give_the_same_files(plan: Plan, write_run: Write) -> None:
    """But for times, which only the page and table.md tell."""
    sweeps = [plan({"base": {}, "h=1": {"num_heads": 1}}, name=name) for name in ("one", "two")]
    for sweep in sweeps:
        for row in sweep.rows:
            write_run(row, worse=3 * (row.name == "h=1"))
        report.write(sweep.directory)
    for name in ("table.csv", *(f"plots/{picture}.png" for picture in ("curves", "differences", "heads"))):
        one, two = ((sweep.directory / name).read_bytes() for sweep in sweeps)
        assert one == two, name
    assert not re.search(r"20\d\d-\d\d-\d\d", (sweeps[0].directory / "table.csv").read_text())


def test_a_half_finished_sweep_says_what_is_missing(plan: Plan, write_run: Write) -> None:
    sweep = plan(
        {"base": {}, "broken": {"dropout": 0.0}, "waits": {"dropout": 0.2}, "half": {"num_layers": 2}}, seeds=2
    )
    write_run(sweep.rows[0])
    write_run(sweep.rows[1])
    rows.record_failure(sweep.rows[2], "Out of memory.", 1)
    rows.record_failure(sweep.rows[3], "Out of memory.", 1)
    write_run(sweep.rows[6])
    report.write(sweep.directory)
    text = text_of(sweep)
    said = "1 of 4 rows are done; missing: broken (failed), waits (not begun), half (not begun)."
    assert f"Half-finished: {said}" in text
    assert "broken – – – 0 of 2 seeds done; seeds 1, 2 failed: Out of memory." in text
    assert "half 5.00 (1 seed) 30.00 (1 seed) 1.5 1 of 2 seeds done; seed 2 not begun" in text
    broken = lines_of(sweep)[1]
    assert (broken["row"], broken["perplexity"], broken["bleu"], broken["parameters"]) == ("broken", "", "", "")


class Brackets:
    """The scores of a parser, as far as a report needs them."""

    def __init__(self, f1: float):
        self.f1 = f1

    def headline(self) -> dict[str, Any]:
        return {"bleu": None, "bleu_signature": None, "f1": self.f1}

    def as_json(self) -> dict[str, Any]:
        return {"f1": self.f1}

    def lines(self) -> list[str]:
        return []


@pytest.mark.parametrize(
    ("file", "of", "title", "key"),
    [
        ("parsing_gum", Brackets, "F1", "f1"),
        ("digits", lambda points: Accuracy(points / 100), "accuracy", "accuracy"),
        ("language_model", lambda points: Accuracy(points / 100), "accuracy", "accuracy"),
    ],
)
def test_tasks_without_bleu_have_their_own_score(
    file: str, of: Callable[[float], Any], title: str, key: str, write_run: Write, tmp_path: Path, capsys
) -> None:
    base = load_experiment(ROOT / "experiments" / f"{file}.py")
    table = variants.rows(base, {"base": {"num_steps": 40}, "h=2": {"num_steps": 40, "num_heads": 2}})
    sweep = rows.plan_rows("made_up", tmp_path / "made_up", table)
    rows.save(sweep)
    for row, points in zip(sweep.rows, (81.25, 79.5), strict=True):
        write_run(row, scores=of(points))
    report.write(sweep.directory)
    assert [line[key] for line in lines_of(sweep)] == ["81.25", "79.50"]
    text = text_of(sweep)
    assert re.search(rf"row perplexity {title} parameters \(M\) state base 6.00 81.25 .*h=2 6.00 79.50", text)
    assert f"row split perplexity {title} base validation 5.00 81.25 base test 6.00 81.25" in text
    assert "BLEU" not in text
    assert {path.stem for path in (sweep.directory / "plots").iterdir()} == {"curves", "heads"}
    kept = tmp_path / "repository" / "results" / "made_up"
    assert command_line.main(["report", str(sweep.directory), "--record", str(kept)]) == 0
    assert f"| validation | {title} 81.25 | 5.00 |" in ledger.render(tmp_path / "repository")


def test_nothing_is_done_yet(plan: Plan) -> None:
    sweep = plan({"base": {}, "other": {"dropout": 0.0}})
    report.write(sweep.directory)
    assert "0 of 2 rows are done; missing: base (not begun), other (not begun)." in text_of(sweep)
    assert [line["state"] for line in lines_of(sweep)] == ["not begun"] * 2


def test_perplexities_of_another_tokenizer_are_marked(plan: Plan, write_run: Write) -> None:
    sweep = plan({"base": {}, "pieces": {"vocabulary_size": 500}})
    write_run(sweep.rows[0])
    write_run(sweep.rows[1], perplexity=2.0, tokenizer="bb")
    report.write(sweep.directory)
    assert "pieces 2.00 (not comparable) 30.00 1.5 done" in text_of(sweep)
    assert [line["perplexity_comparable"] for line in lines_of(sweep)] == ["yes", "no"]


def test_the_papers_figures_stand_beside_its_own_rows_alone(plan: Plan, write_run: Write, base: Experiment) -> None:
    sweep = plan({"base": {"source": "tfds"}, "other": {"source": "tfds", "dropout": 0.15}})
    write_run(sweep.rows[0], bleu=25.0, perplexity=5.0)
    write_run(sweep.rows[1])
    report.write(sweep.directory)
    assert "base 5.00 25.00 1.5 4.92 +0.08 25.8 -0.30 done" in text_of(sweep)  # 25.5 by the paper's protocol
    ours, other = lines_of(sweep)
    assert (ours["paper_perplexity"], ours["paper_bleu"]) == ("4.92", "25.8")
    assert other["paper_bleu"] == ""
    assert paper_numbers.row_of(base) is None, "another corpus"


def test_flops_by_the_papers_method_need_a_known_rate(plan: Plan, write_run: Write) -> None:
    sweep = plan({"base": {}})
    write_run(sweep.rows[0], utilisation=0.25)
    report.write(sweep.directory)
    assert "2.000e11 2.500e11 8.000e11" in text_of(sweep)  # 50 s of devices that could do four times as much


class Elements(HTMLParser):
    """Names and attributes of a page's elements."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_names_and_reasons_are_harmless(plan: Plan, write_run: Write) -> None:
    hostile = '=1+2|<script>alert(1)</script>, "$x_1$"\n`*[x](y)'
    sweep = plan({"base": {}, hostile: {"dropout": 0.0}, "fails": {"dropout": 0.2}})
    write_run(sweep.rows[0])
    write_run(sweep.rows[1], worse=2)
    rows.record_failure(sweep.rows[2], "<img src=x onerror=alert(1)>", 1)
    report.write(sweep.directory)
    elements = Elements()
    page = (sweep.directory / "report.html").read_text(encoding="utf-8")
    elements.feed(page)
    assert not {"script", "img", "iframe", "object"} & {tag for tag, _ in elements.found}
    fetched = [value for _, a in elements.found for name in ("href", "src", "xlink:href") if (value := a.get(name))]
    assert all(value.startswith(("#", "data:,")) for value in fetched)
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/)", page)
    assert lines_of(sweep)[1]["row"] == f"'{hostile}"
    markdown = (sweep.directory / "table.md").read_text(encoding="utf-8")
    assert r"| =1+2\|&lt;script&gt;alert(1)&lt;/script&gt;, " in markdown
    assert "<script" not in markdown and "<img" not in markdown
    scores = markdown.split("## Scores")[1].split("##")[0].strip().splitlines()
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in scores[2:]}) == 1


def test_a_sweep_is_kept_without_checkpoints_text_or_places(
    plan: Plan, write_run: Write, tmp_path: Path, capsys
) -> None:
    changes = {"h=1": {"num_heads": 1}, "other": {"dropout": 0.2}, "spoilt": {"dropout": 0.3}}
    sweep = plan({"base": {"data.directory": str(tmp_path / "corpus")}, **changes})
    for row in (sweep.rows[0], sweep.rows[2], sweep.rows[3]):
        write_run(row)
    rows.record_failure(sweep.rows[1], f"'{tmp_path}/corpus/train.en' cannot be read: no such file.", 1)
    translations = sweep.rows[2].directory / "translations" / "validation.hypothesis"
    translations.write_text("too few\n")
    translations.with_name("test.hypothesis").write_text("too few\n")
    (sweep.rows[3].directory / "translations" / "validation.target").write_text("another text\n" * 30)
    kept = tmp_path / "repository" / "results" / "made_up"
    assert command_line.main(["report", str(sweep.directory), "--record", str(kept)]) == 0
    files = {path.relative_to(kept) for path in kept.rglob("*") if path.is_file()}
    assert files == {
        *(Path(name) for name in ("table.md", "table.csv", "report.html", "plots/curves.png", "plots/dropout.png")),
        *(
            Path("rows") / sweep.rows[i].directory.name / name
            for i in (0, 2, 3)
            for name in ("report.json", "config.json")
        ),
    }
    assert "failed: DIR cannot be read: no such file." in (kept / "table.md").read_text(encoding="utf-8")
    for path in kept.rglob("*.*"):
        if path.suffix != ".png" and path.is_file():
            text = path.read_text(encoding="utf-8")
            assert str(tmp_path) not in text and "Katzen" not in text and "/somewhere" not in text, path
    records = ledger.read_records(tmp_path / "repository")
    assert {record.report["command"] for record in records} == {
        "python launch.py sweep made_up.py --data.directory DIR"
    }
    assert {record.report["config_hash"] for record in records} == {sweep.rows[i].config_hash for i in (0, 2, 3)}


def test_what_is_kept_replaces_itself_and_nothing_else(plan: Plan, write_run: Write, tmp_path: Path) -> None:
    sweep = plan({"base": {}, "other": {"dropout": 0.0}})
    for row in sweep.rows:
        write_run(row)
    kept, home = tmp_path / "kept", tmp_path / "home"
    report.write(sweep.directory, keep_in=kept)
    (sweep.rows[1].directory / "report.json").unlink()
    report.write(sweep.directory, keep_in=kept)
    assert [path.name for path in (kept / "rows").iterdir()] == [sweep.rows[0].directory.name]
    (home / "plots").mkdir(parents=True)
    (home / "plots" / "holiday.png").touch()
    with pytest.raises(RunError, match="holds something else than a record"):
        report.write(sweep.directory, keep_in=home)
    assert (home / "plots" / "holiday.png").is_file()


def test_what_is_no_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not the directory of a sweep"):
        report.write(tmp_path)


def test_the_sweep_of_table_3_trains_what_the_paper_says() -> None:
    """The columns of the paper's table as data, against the sweep file, which writes them down by itself."""
    sweep = load_sweep(ROOT / "experiments" / "table3.py")
    assert list(sweep) == list(paper_numbers.TABLE_3)
    assert {name: paper_numbers.row_of(experiment) for name, experiment in sweep.items()} == {n: n for n in sweep}


def test_directions_are_those_of_the_same_change(base: Experiment) -> None:
    home = paper_numbers.facts(base)

    def alike(**changes: object) -> list[str]:
        own = directions.direction(paper_numbers.facts(variants.vary(base, changes)), home)
        rows_ = paper_numbers.TABLE_3.items()
        return [name for name, row in rows_ if own and directions.direction(row.facts, paper_numbers.BASE) == own]

    assert alike(num_heads=2) == ["A h=1", "A h=4"]
    assert alike(num_heads=16) == ["A h=16", "A h=32"]
    assert alike(d_k=32, d_v=64) == ["B d_k=16", "B d_k=32"]
    assert alike(num_layers=3) == ["C N=2", "C N=4"]
    assert alike(d_ff=4096) == ["C d_ff=4096"]
    assert alike(positions="learned") == ["E learned positions"]
    assert alike(d_ff=4096, dropout=0.3) == []
    assert alike() == []


def test_table_3_says_nothing_of_what_it_has_no_column_for(plan: Plan, write_run: Write) -> None:
    changes = {"d_ff=half": {"d_ff": 1024}, "SwiGLU": {"d_ff": 1368, "activation": "swiglu"}}
    sweep = plan({"base": {}, **changes, "dropped": {"dropout": 0.0, "attention_dropout": 0.1}})
    for row in sweep.rows:
        write_run(row)
    found = table.collect(rows.load(sweep.directory))
    assert [one.result.name for one in directions.directions(found)] == ["d_ff=half", "dropped"]
    factors = {result.name: directions.factor(result, found.base) for result in found.results}
    assert factors == {"base": None, "d_ff=half": "d_ff", "SwiGLU": None, "dropped": "dropout"}


@pytest.mark.parametrize(
    ("here", "there", "verdict"),
    [
        (1, {1}, "agrees"),
        (0, {0}, "agrees"),
        (-1, {1}, "contrary"),
        (0, {-1}, "no difference here"),
        (1, {0}, "no difference in the paper"),
        (1, {1, 0}, "the paper's rows differ among themselves"),
    ],
)
def test_verdicts(here: int, there: set[int], verdict: str) -> None:
    assert directions._verdict(here, there) == verdict


@given(st.lists(st.floats(-100, 200), max_size=12), st.floats(0.5, 20), st.floats(0, 50))
def test_labels_are_apart_in_order_on_the_picture_and_no_farther_than_need_be(
    wanted: list[float], least: float, spare: float
) -> None:
    most = least * max(len(wanted) - 1, 0) + spare
    places = spaced(wanted, least, most)
    order = np.argsort(wanted, kind="stable")
    settled = np.array(places)[order] if wanted else np.array([])
    assert (np.diff(settled) >= least - 1e-6).all()
    assert all(-1e-6 <= place <= most + 1e-6 for place in places)
    inside = all(0 <= place <= most for place in wanted)
    if inside and (len(wanted) < 2 or np.diff(np.sort(wanted)).min() >= least):
        assert places == pytest.approx(wanted, abs=1e-6)
    if places and min(places) > 1e-6 and max(places) < most - 1e-6:
        assert sum(places) == pytest.approx(sum(wanted), abs=1e-6), "pressing labels move apart, not away"


@pytest.mark.parametrize(
    ("means", "across", "up_or_down"),
    [
        ([1.0], ["center"], ["bottom"]),
        ([1.0, 2.0], ["left", "right"], ["top", "bottom"]),
        ([2.0, 1.0], ["left", "right"], ["bottom", "top"]),
        ([1.0, 2.0, 1.0], ["left", "center", "right"], ["top", "bottom", "top"]),
        ([2.0, 1.0, 2.0], ["left", "center", "right"], ["bottom", "top", "bottom"]),
        ([1.0, 2.0, 3.0], ["left", "right", "right"], ["top", "bottom", "bottom"]),
    ],
)
def test_numbers_lie_off_the_line_and_off_the_axis(
    means: list[float], across: list[str], up_or_down: list[str]
) -> None:
    found = [beside(means, place) for place in range(len(means))]
    assert [(one[0][1], one[1][1]) for one in found] == list(zip(across, up_or_down, strict=True))


def test_scores_of_one_seed_have_no_deviation() -> None:
    assert table.spread([1.0, None]) == table.Spread(1.0, None, 1)
    assert table.spread([None]) is None
