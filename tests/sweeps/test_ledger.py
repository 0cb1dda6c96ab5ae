"""The ledger: what gets in, where, and that docs/reproduction.md is what the records in results/ make of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from t2t_jax import command_line, config_fields, run_directory, trajectory
from t2t_jax.config import Experiment
from t2t_jax.errors import RunError
from t2t_jax.experiment_file import load_experiment, load_sweep
from t2t_jax.sweeps import ledger, paper_numbers, rows, variants

ROOT = Path(__file__).parents[2]
BASE = load_experiment(ROOT / "experiments" / "wmt14_ende_base.py")
ROW = load_sweep(ROOT / "experiments" / "table3.py")["C N=2"]
QUICK = load_experiment(ROOT / "experiments" / "quickstart.py")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with this one's experiments and no records."""
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    return tmp_path


def record(root: Path, name: str, experiment: Experiment, split: str, bleu: float, **changes: object) -> None:
    """Put a record into the repository as `ledger.keep` does."""
    folder = root / "results" / name
    folder.mkdir(parents=True)
    training = experiment.training
    scores = {"bleu": {"13a": bleu - 1, "paper": bleu, "none": bleu}, "perplexity": 5.0}
    report = {
        "name": experiment.name,
        "split": split,
        "bleu": bleu,
        "perplexity": 5.0,
        "parameters": 33_644_544,
        "config_hash": trajectory.config_hash(experiment),
        "steps": training.num_steps,
        "averaged_steps": list(range(training.average_last)),
        "training_seconds": 600.0,
        "training_peak_flops": 3.26e18,
        "splits": {split: scores},
        "command": f"python launch.py train {name}.py",
        "machine": "2 cores (Abacus), 1 GiB",
        "date": "2024-05-06",
    } | changes
    (folder / "report.json").write_text(json.dumps(report))
    (folder / "config.json").write_text(config_fields.to_json(experiment))


def with_seed(experiment: Experiment, seed: int) -> Experiment:
    return variants.vary(experiment, {"seed": seed})


def lines(page: str, start: str) -> list[list[str]]:
    """The cells of the table lines whose first cell is `start`."""
    found = [line for line in page.splitlines() if line.startswith(f"| {start} |")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in found]


def test_the_page_is_current() -> None:
    """`python launch.py report --ledger docs/reproduction.md` writes it."""
    assert (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8") == ledger.render(ROOT)


def strings(tree: Any) -> Iterator[str]:
    """Every text in a JSON value, keys included."""
    if isinstance(tree, dict):
        yield from tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for inner in tree:
            yield from strings(inner)
    elif isinstance(tree, str):
        yield tree


def test_kept_tables_and_pages_hold_no_place_of_a_machine() -> None:
    places = re.compile(r"(?:^|[\s='\"|;])(?:/(?:tmp|home|root|work|mnt|data|usr|Users)/|~/)")
    for name in ("*.md", "*.csv", "*.html"):
        for path in (ROOT / "results").rglob(name):
            assert not places.search(path.read_text(encoding="utf-8")), path


def test_records_hold_no_text_and_no_place_of_a_machine() -> None:
    for path in (ROOT / "results").rglob("*.json"):
        absolute = [
            text for text in strings(json.loads(path.read_text(encoding="utf-8"))) if re.search(r"(^|[\s=:])/\w", text)
        ]
        assert not absolute, path


def test_every_number_of_the_paper_is_there_and_not_run(root: Path) -> None:
    page = ledger.render(root)
    for name, row in paper_numbers.TABLE_3.items():
        (cells,) = lines(page.split("## Table 3")[1], name)
        assert cells[1:5] == [f"{row.perplexity:.2f}", "not run", f"{row.bleu:.1f}", "not run"]
    bases = lines(page, "Transformer base")
    assert [cells[1:6] for cells in bases] == [
        ["en-de", "27.3", "not run", "3.3e18", "not run"],
        ["en-fr", "38.1", "not run", "3.3e18", "not run"],
    ]
    assert bases[0][6:] == ["`python launch.py train experiments/wmt14_ende_base.py`", "8 P100, 12 h"]
    assert lines(page, "ConvS2S, ensemble")[1][1:5] == ["en-fr", "41.29", "–", "1.2e21"]
    assert [cells[2:4] for cells in lines(page, "Transformer (4 layers)")] == [["91.3", "not run"]]
    assert "Other runs" not in page


def test_runs_of_an_experiment_are_its_number(root: Path) -> None:
    record(root, "one", BASE, "test", 27.0)
    record(root, "two", with_seed(BASE, 5), "test", 28.0)
    record(root, "shallow", ROW, "validation", 23.5)
    page = ledger.render(root)
    first, second = trajectory.config_hash(BASE), trajectory.config_hash(with_seed(BASE, 5))
    links = f"[`{first}`](../results/one/report.json), [`{second}`](../results/two/report.json)"
    cells = lines(page, "Transformer base")[0]
    assert cells[3] == f"27.50 ± 0.71 (2 seeds, 27.00 to 28.00) {links}"
    assert cells[5].startswith("3.3e18 ± 0.0e0 (2 seeds, 3.3e18 to 3.3e18)")
    (shallow,) = lines(page.split("## Table 3")[1], "C N=2")
    link = f"[`{trajectory.config_hash(ROW)}`](../results/shallow/report.json)"
    assert shallow[2:] == [f"5.00 {link}", "23.7", f"23.50 {link}", "36", f"33.6 {link}"]
    assert "Other runs" not in page


def test_a_seed_counts_once(root: Path) -> None:
    record(root, "alone", BASE, "test", 27.0)
    record(root, "in_a_sweep", BASE, "test", 27.0)
    cells = lines(ledger.render(root), "Transformer base")[0]
    assert cells[3].startswith("27.00 [") and cells[3].count("report.json") == 2


@pytest.mark.parametrize(
    ("changes", "report"),
    [
        ({}, {"steps": 500}),
        ({}, {"splits": {"validation": {"bleu": {"paper": 27.0}, "perplexity": 5.0}}}),
        ({"beam_size": 8}, {}),
        ({"average_last": 1}, {}),
        ({"compute_dtype": "bfloat16"}, {}),
    ],
    ids=["stopped early", "another split", "another search", "another average", "another trajectory"],
)
def test_other_runs_are_not_the_papers(root: Path, changes: dict, report: dict) -> None:
    record(root, "nearly", variants.vary(BASE, changes), "test", 27.0, **report)
    page = ledger.render(root)
    assert lines(page, "Transformer base")[0][3] == "not run"
    assert lines(page, "nearly")[0][1:3] == ["test", "BLEU (13a) 27.00"]


def test_other_runs_with_what_made_them(root: Path) -> None:
    record(root, "quickstart", QUICK, "test", 26.0)
    (cells,) = lines(ledger.render(root), "quickstart")
    link = f"[`{trajectory.config_hash(QUICK)}`](../results/quickstart/report.json)"
    known = [
        "BLEU (13a) 26.00",
        "5.00",
        "33,644,544",
        "3,800",
        "10.0 min",
        "2 cores (Abacus), 1 GiB",
        "2024-05-06",
        link,
    ]
    assert cells[2:] == known
    assert "- [quickstart](../results/quickstart): `python launch.py train quickstart.py`" in ledger.render(root)


def test_a_report_with_another_hash_than_its_config_is_refused(root: Path) -> None:
    record(root, "forged", QUICK, "test", 99.0, config_hash="0123456789ab")
    expected = trajectory.config_hash(QUICK)
    with pytest.raises(RunError, match=f"forged.*has the config hash '0123456789ab', but its config's is '{expected}'"):
        ledger.render(root)


def test_a_run_is_kept_only_with_a_current_report_and_a_known_origin(plan, write_run, tmp_path: Path) -> None:
    sweep: rows.Sweep = plan({"base": {}, "other": {"dropout": 0.0}})
    for row in sweep.rows:
        write_run(row)
    run, other = (row.directory for row in sweep.rows)
    ledger.keep(run, tmp_path / "kept")
    kept = json.loads((tmp_path / "kept" / "report.json").read_text())
    assert kept["command"] == "python launch.py train-row DIR row" == kept["calls"][0]["command"]
    own = json.loads((run / "report.json").read_text())
    assert {key for key in own if kept[key] != own[key]} == {"command", "calls"}

    (run / run_directory.CONFIG).write_text((other / run_directory.CONFIG).read_text())
    with pytest.raises(RunError, match="is of another config; `evaluate` renews it"):
        ledger.keep(run, tmp_path / "again")
    report = json.loads((other / "report.json").read_text())
    (other / "report.json").write_text(json.dumps(report | {"command": None}))
    with pytest.raises(RunError, match="has no calls.jsonl"):
        ledger.keep(other, tmp_path / "again")
    (other / "report.json").unlink()
    with pytest.raises(RunError, match="has no report.json; `evaluate` writes it"):
        ledger.keep(other, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_the_command(root: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(root)
    assert command_line.main(["report", "--ledger", "page.md"]) == 0
    assert capsys.readouterr().out == "page.md\n"
    assert (root / "page.md").read_text(encoding="utf-8") == ledger.render(root)
    for words, sentence in (
        (["report"], "`report` needs runs or sweeps to render, or --ledger PAGE."),
        (["report", "a", "b", "--record", "c"], "--record keeps one run or sweep, not 2."),
        (["report", "--ledger", "absent/page.md"], "'absent/page.md' cannot be written"),
    ):
        assert command_line.main(words) == 2
        assert sentence in capsys.readouterr().err


def test_places_go_from_commands_and_nothing_else_does() -> None:
    command = "python launch.py train a/x.py --data.directory /home/me/text --data.store=~/s --name 'a b' --x ../y"
    told = "python launch.py train a/x.py --data.directory DIR --data.store=DIR --name 'a b' --x ../y"
    assert ledger.without_places(command) == told
