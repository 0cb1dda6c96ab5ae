"""A sweep of minute models in real processes: failing, stopped, killed, and gone on with."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from t2t_jax.run_directory import finished_steps
from t2t_jax.sweeps import rows
from tests.integration.conftest import ROOT

PATIENCE = 250
"""Seconds in which a process must get anywhere; there to end a test that would hang."""

FILE = """
from t2t_jax.config import Data, Decoding, Evaluation, Experiment, Model, Training
from t2t_jax.sweeps import variants

def get_sweep():
    base = Experiment(
        model=Model(num_layers=1, d_model=16, d_ff=32, num_heads=2),
        data=Data(source="files", directory={corpus!r}, vocabulary_size=500, max_length=48,
                  source_tokens_per_batch=512, target_tokens_per_batch=512, max_shapes=1),
        training=Training(num_steps={steps}, log_every=1, checkpoint_every=10, keep_checkpoints=1, average_last=1),
        decoding=Decoding(beam_size=1, extra_length=0),
        evaluation=Evaluation(splits=("validation",)),
    )
    return variants.rows(base, {table!r})
"""


def write_sweep(file: Path, corpus: Path, table: dict, steps: int = 20) -> Path:
    file.write_text(FILE.format(corpus=str(corpus), table=table, steps=steps))
    return file


def as_found(stdout: str) -> dict[str, dict]:
    return {row["row"]: row for row in json.loads(stdout)["rows"]}


def test_what_fails_is_named_and_the_rest_is_done_once(launch, small_corpus: Path, tmp_path: Path) -> None:
    later = tmp_path / "later"
    table = {
        "base": {},
        "explodes": {"peak_learning_rate": 1e30, "warmup_steps": 1},
        "no text": {"data.directory": str(later), "dropout": 0.2},
    }
    words = ["sweep", write_sweep(tmp_path / "s.py", small_corpus, table), "--workdir", tmp_path / "runs", "--jobs", 2]
    done = launch(*words, "--json")
    assert done.returncode == 1, done.stderr
    found = as_found(done.stdout)
    assert {name: row["state"] for name, row in found.items()} == {
        "base": "done",
        "explodes": "failed",
        "no text": "failed",
    }
    assert re.match(r"Step \d+ .* gave (loss|gradient norm) (nan|inf)", found["explodes"]["reason"])
    assert str(later) in found["no text"]["reason"]
    report = json.loads((tmp_path / "runs" / found["base"]["run"] / "report.json").read_text())
    assert (report["config_hash"], report["split"]) == (found["base"]["config_hash"], "validation")
    assert (found["base"]["bleu"], found["base"]["perplexity"]) == (report["bleu"], report["perplexity"])
    assert found["explodes"]["bleu"] is None
    assert "base  running" in done.stderr and "base  done" in done.stderr, "a line for each change"
    assert "explodes  failed" in done.stderr
    with (tmp_path / "runs" / "table.csv").open(encoding="utf-8", newline="") as file:
        lines = {line["row"]: line for line in csv.DictReader(file)}
    assert [line["config_hash"] for line in lines.values()] == [row["config_hash"] for row in found.values()]
    assert float(lines["base"]["bleu"]) == found["base"]["bleu"]
    assert lines["explodes"]["state"] == f"failed: {found['explodes']['reason']}"
    assert "1 of 3 rows are done" in (tmp_path / "runs" / "report.html").read_text(encoding="utf-8")
    folders = sorted(path.name for path in (tmp_path / "runs" / "data").iterdir() if not path.name.startswith("."))
    assert len(folders) == 1, "rows share their prepared data"

    def written() -> dict[Path, int]:
        """When what is not the report was."""
        report = {"runs", "plots"}
        paths = (tmp_path / "runs").rglob("*")
        return {path: path.stat().st_mtime_ns for path in paths if path.parent.name not in report}

    before = written()
    again = launch(*words)
    assert again.returncode == 1
    assert re.search(r"^base +\d[\d,]+ +\d+\.\d\d +\d+\.\d\d +done$", again.stdout, re.MULTILINE), again.stdout
    assert re.search(r"^explodes +failed: Step \d+", again.stdout, re.MULTILINE), again.stdout
    assert written() == before, "what is done or has failed is left alone"

    shutil.copytree(small_corpus, later)
    retried = launch(*words, "--retry", "--json")
    assert retried.returncode == 1, retried.stderr
    assert {name: row["state"] for name, row in as_found(retried.stdout).items()} == {
        "base": "done",
        "explodes": "failed",
        "no text": "done",
    }


def test_a_sweep_that_is_stopped_goes_on(small_corpus: Path, tmp_path: Path) -> None:
    steps = 3000
    table = {"slow": {}, "killed": {"dropout": 0.0}, "waiting": {"dropout": 0.3}}
    file, runs = write_sweep(tmp_path / "s.py", small_corpus, table, steps), tmp_path / "runs"
    words = ["sweep", str(file), "--workdir", str(runs), "--jobs", "2", "--json"]
    command = [sys.executable, str(ROOT / "launch.py"), *words]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        logs = wait_for(lambda: len(found := sorted(runs.glob("*/metrics.jsonl"))) == 2 and found, process)
        killed, slow = (log.parent for log in logs)
        wait_for(lambda: all(log.read_text().count("\n") >= 12 for log in logs), process)
        (pid,) = map(int, re.findall(r"process (\d+)", (killed / "lock").read_text()))
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: (killed / "failure.json").is_file(), process)
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 75, stderr
    found = as_found(stdout)
    assert found["killed"]["state"] == "failed"
    assert found["killed"]["reason"] == "its process was ended by SIGKILL, as Linux does when memory runs out"
    assert found["slow"]["state"] == "stopped"
    step = finished_steps(slow)[-1]
    assert 12 <= found["slow"]["step"] == step < steps
    assert found["waiting"]["state"] in ("not begun", "stopped")
    assert "Stopped by SIGTERM" in (slow / "log.txt").read_text()
    planned = rows.load(runs)
    assert [row.name for row in planned.rows] == list(table)

    # The same command goes on; fewer steps would be another wish, so the checkpoint's are the end of it.
    file.write_text(file.read_text().replace(f"num_steps={steps}", f"num_steps={step + 5}"))
    with (slow / "log.txt").open() as log:
        log.seek(0, os.SEEK_END)
        subprocess.run(command, cwd=ROOT, capture_output=True, timeout=PATIENCE)
        said = log.read()
    assert f"Going on from the checkpoint of step {step}." in said.replace(",", "")
    assert rows.state(rows.load(runs).rows[0]) == rows.State("done", step + 5)


def wait_for(look, process: subprocess.Popen):
    deadline = time.monotonic() + PATIENCE
    while not (seen := look()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return seen
