"""One command from text to a scored translation, and the same parameters however often it is stopped."""

import datetime
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from t2t_jax.run_directory import finished_steps
from t2t_jax.training import metrics
from t2t_jax.training.checkpoints import Checkpoints, load_averaged


def same_parameters(one: Path, other: Path) -> bool:
    """Bitwise equality of the final checkpoints and of the averages."""
    with Checkpoints(one) as left, Checkpoints(other) as right:
        assert left.steps[-1] == right.steps[-1]
        pairs = [(left.params(left.steps[-1]), right.params(right.steps[-1]))]
    pairs.append((load_averaged(one, 1)[0], load_averaged(other, 1)[0]))
    return all(jax.tree.all(jax.tree.map(np.array_equal, a, b)) for a, b in pairs)


def test_training_leaves_a_whole_run(trained: Path) -> None:
    names = {path.name for path in trained.iterdir()}
    assert {"config.json", "tokenizer.model", "data.json", "checkpoints", "averaged", "metrics.jsonl"} <= names
    assert {"report.json", "report.html", "translations"} <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    report = json.loads((trained / "report.json").read_text())
    assert report["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert report["steps"] == 40
    attention, feed_forward, norm = 4 * 16 * 16, 2 * 16 * 32 + 32 + 16, 2 * 16
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    assert report["parameters"] == 500 * 16 + encoder + decoder
    assert len((trained / "translations" / "test.hypothesis").read_text().split("\n")) == 12 + 1


def test_the_report_says_what_trained_it_where_and_when(trained: Path) -> None:
    report = json.loads((trained / "report.json").read_text())
    assert report["command"].startswith("python launch.py train ") and str(trained) in report["command"]
    assert report["machine"].startswith(f"{os.cpu_count()} cores (") and report["machine"].endswith(" GiB")
    assert report["devices"] == jax.device_count()
    assert report["versions"] == {"jax": jax.__version__, "python": platform.python_version()}
    assert datetime.date.fromisoformat(report["date"]) <= datetime.datetime.now(datetime.UTC).date()
    (call,) = report["calls"]
    assert call["from_step"] == 0 and call["command"] == report["command"]
    entries = metrics.read(trained)
    assert report["training_seconds"] == pytest.approx(sum(entry["seconds"] for entry in entries))
    # Softmax, normalisation and Adam weigh more in so small a model, and none of the products is missing.
    assert report["training_flops"] < report["training_compiled_flops"] < 3 * report["training_flops"]
    assert report["training_peak_flops"] is None, "no data sheet for a processor"
    state = 12 * report["parameters"]  # a parameter and two moments of Adam
    assert state < report["training_memory_bytes"] == max(entry["memory_bytes"] for entry in entries)
    hypotheses = (trained / "translations" / "test.hypothesis").read_text().split()
    assert report["decoding_tokens"] >= len(hypotheses), "pieces of words"


def test_metrics_have_one_object_a_logged_step(trained: Path) -> None:
    entries = metrics.read(trained)
    assert [entry["step"] for entry in entries] == list(range(5, 45, 5))
    for entry in entries:
        assert {"loss", "learning_rate", "tokens_per_second", "epoch", "gradient_norm"} <= entry.keys()
        assert ("validation_perplexity" in entry) == (entry["step"] % 10 == 0)
    assert entries[-1]["loss"] < entries[0]["loss"]


def test_kept_checkpoints_and_average(trained: Path) -> None:
    with Checkpoints(trained) as checkpoints:
        assert checkpoints.steps == [20, 30, 40]
        last = [checkpoints.params(step) for step in (30, 40)]
    params, steps = load_averaged(trained, 2)
    assert steps == [30, 40]
    mean = jax.tree.map(lambda a, b: ((a.astype(np.float64) + b) / 2).astype(np.float32), *last)
    assert jax.tree.all(jax.tree.map(np.array_equal, params, mean))


def test_killed_runs_end_with_the_same_parameters(launch, tiny, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    chance = random.Random(int.from_bytes(os.urandom(4), "big"))
    kill_after = chance.randint(8, 36)
    command = [sys.executable, "launch.py", "train", *tiny, "--workdir", str(run), "--training.log-every", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
        assert process.stderr is not None
        for line in process.stderr:  # kill it as soon as it says that it has come so far
            if line.startswith(f"step {kill_after}/".encode()):
                time.sleep(chance.random() * 0.02)
                process.send_signal(signal.SIGKILL)
                break
        process.stderr.read()
    assert process.returncode == -signal.SIGKILL, f"killed after step {kill_after}"
    done = launch("train", *tiny, "--workdir", run)
    assert done.returncode == 0, done.stderr
    assert same_parameters(run, trained), f"killed after step {kill_after}"
    steps = [entry["step"] for entry in metrics.read(run)]
    assert steps == sorted(set(steps)), "no logged step twice"


def test_a_stopped_run_ends_like_an_undisturbed_one(launch, tiny, tmp_path: Path) -> None:
    """In its checkpoints, its average and its score; the stop itself leaves no trace in any of them."""
    longer = [*tiny, "--training.num-steps", "800", "--training.checkpoint-every", "200"]
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert launch("train", *longer, "--workdir", whole).returncode == 0
    command = [sys.executable, "launch.py", "train", *longer, "--workdir", str(run)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2], text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("step 400/"):
                process.send_signal(signal.SIGTERM)
        assert process.wait() == 75
    stopped = finished_steps(run)[-1]
    assert 400 <= stopped < 800
    again = launch("train", *longer, "--workdir", run)
    assert again.returncode == 0, again.stderr
    assert f"Going on from the checkpoint of step {stopped}." in again.stderr
    assert finished_steps(run) == finished_steps(whole) == [400, 600, 800]
    assert load_averaged(run, 2)[1] == [600, 800]
    assert same_parameters(run, whole)
    scores = [json.loads((path / "report.json").read_text()) for path in (run, whole)]
    assert scores[0]["bleu"] == scores[1]["bleu"]


def test_resume_refuses_another_trajectory(launch, tiny, trained: Path) -> None:
    refused = launch("train", *tiny, "--workdir", trained, "--optimizer.warmup-steps", 7, "--model.dropout", 0.3)
    assert refused.returncode == 2
    assert "model.dropout=0.1 there, 0.3 now; optimizer.warmup_steps=" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_run_can_be_made_longer_but_not_shorter(launch, tiny, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    shorter = launch("train", *tiny, "--workdir", run, "--training.num-steps", 30)
    assert shorter.returncode == 2
    assert "has 40 steps already; num_steps=30 can grow, not shrink" in shorter.stderr
    longer = launch("train", *tiny, "--workdir", run, "--training.num-steps", 45)
    assert longer.returncode == 0, longer.stderr
    assert "Averaged the checkpoints of steps 40, 45" in longer.stderr
    report = json.loads((run / "report.json").read_text())
    assert report["steps"] == 45
    assert [call["from_step"] for call in report["calls"]] == [0, 40]
    assert report["command"].endswith("--training.num-steps 45")


def test_what_was_never_trained_may_still_change(launch, tiny, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert launch("prepare", *tiny, "--workdir", run).returncode == 0
    other = [*tiny, "--workdir", run, "--data.tokenizer", "whitespace", "--training.num-steps", 1]
    done = launch("train", *other)
    assert done.returncode == 0, done.stderr
    assert not (run / "tokenizer.model").exists(), "or it would be taken for this run's"


def test_a_folder_of_something_else_is_not_written(launch, tiny, tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "7").mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("mine")
    refused = launch("train", *tiny, "--workdir", tmp_path)
    assert refused.returncode == 2
    assert "holds something else than a run" in refused.stderr
    assert (tmp_path / "checkpoints" / "7").is_dir()
    (tmp_path / "config.json").write_text('{"architectures": ["MarianMTModel"]}')
    refused = launch("train", *tiny, "--workdir", tmp_path)
    assert refused.returncode == 2
    assert "cannot be used" in refused.stderr


def test_changed_text_is_refused_on_resume(launch, tiny, small_corpus: Path, trained: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for file in small_corpus.iterdir():
        (other / file.name).write_text(file.read_text().replace("Tom", "Tim"))
    before = {path: path.read_bytes() for path in (trained / "data").iterdir()}
    refused = launch("train", *tiny, "--workdir", trained, "--data.directory", other)
    assert refused.returncode == 2
    assert "has changed" in refused.stderr
    assert {path: path.read_bytes() for path in (trained / "data").iterdir()} == before


def test_non_finite_loss_names_step_batch_and_checkpoint(launch, tiny, tmp_path: Path) -> None:
    broken = launch(
        "train", *tiny, "--workdir", tmp_path / "run", "--training.log-every", 3,
        "--optimizer.peak-learning-rate", "1e30", "--optimizer.warmup-steps", 1,
    )  # fmt: skip
    assert broken.returncode == 1
    assert "Traceback" not in broken.stderr
    message = broken.stderr.strip().split("\n")[-1]
    assert "error: Step 2 (batch 1 of the plan) gave loss" in message
    assert "there is no checkpoint" in message
    spoilt = launch(
        "train", *tiny, "--workdir", tmp_path / "other", "--training.checkpoint-every", 1,
        "--optimizer.peak-learning-rate", "1e30", "--optimizer.warmup-steps", 1,
    )  # fmt: skip
    assert spoilt.returncode == 1
    assert "The validation after step 1 gave loss" in spoilt.stderr
    assert not finished_steps(tmp_path / "other"), "parameters that give no loss are not kept"


def test_fine_tuning_starts_from_the_other_run(launch, tiny, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    tuned = launch(
        "train", *tiny, "--workdir", run, "--training.initialise-from", trained, "--training.num-steps", 1
    )  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr
    assert "Starting from the average of steps 30, 40" in tuned.stderr
    assert (run / "tokenizer.model").read_bytes() == (trained / "tokenizer.model").read_bytes()
    before, after = (load_averaged(path, 1)[0] for path in (trained, run))
    moved = max(jax.tree.leaves(jax.tree.map(lambda a, b: float(np.abs(a - b).max()), before, after)))
    assert 0 < moved < 1e-4, "one step of the warm-up away"
    alone = tmp_path / "alone"
    shutil.copytree(trained, alone)
    begun = ["train", *tiny, "--workdir", tmp_path / "later", "--training.initialise-from", alone]
    assert launch(*begun, "--training.num-steps", 1).returncode == 0
    shutil.rmtree(alone)
    gone_on = launch(*begun, "--training.num-steps", 2)
    assert gone_on.returncode == 0, gone_on.stderr
    other = launch(
        "train", *tiny, "--workdir", tmp_path / "x", "--training.initialise-from", trained, "--model.d-ff", 64
    )  # fmt: skip
    assert other.returncode == 2
    assert "other parameter shapes" in other.stderr


def test_patience_stops_early(launch, tiny, tmp_path: Path) -> None:
    run = tmp_path / "run"
    # A rate this high makes validation worse each time, without a NaN.
    done = launch(
        "train", *tiny, "--workdir", run, "--training.patience", 2, "--training.num-steps", 400,
        "--optimizer.peak-learning-rate", 3.0, "--optimizer.warmup-steps", 1,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    losses = [e["validation_loss"] for e in metrics.read(run) if "validation_loss" in e]
    best = losses.index(min(losses))
    assert len(losses) - 1 - best == 2
    assert "no better validation loss in 2 validations" in done.stderr


@pytest.mark.parametrize("unit", ["steps", "epochs"])
def test_checkpoints_by_steps_or_epochs(launch, tiny, tmp_path: Path, unit: str) -> None:
    run = tmp_path / "run"
    done = launch(
        "train", *tiny, "--workdir", run, "--training.checkpoint-unit", unit, "--training.checkpoint-every", 1,
        "--training.num-steps", 4 if unit == "steps" else 30, "--training.keep-checkpoints", 4,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    entries = [entry for entry in metrics.read(run) if "validation_loss" in entry]
    if unit == "steps":
        assert [entry["step"] for entry in entries] == [1, 2, 3, 4]
    else:
        whole = [entry for entry in entries if entry["step"] != 30]
        assert whole
        assert all(entry["epoch"] == int(entry["epoch"]) for entry in whole)


def test_the_other_choices_run_end_to_end(launch, tiny, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = launch(
        "train", *tiny, "--workdir", run, "--model.norm", "pre", "--model.positions", "learned",
        "--model.max-positions", 48, "--model.d-k", 5, "--model.d-v", 7, "--model.attention-dropout", 0.1,
        "--model.relu-dropout", 0.1, "--training.compute-dtype", "bfloat16", "--training.accumulation", 3,
        "--training.label-smoothing-mass", "others", "--optimizer.gradient-clip", 1.0, "--training.num-steps", 6,
        "--decoding.length-penalty", "length", "--evaluation.splits", "validation", "test",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((run / "report.json").read_text())
    assert report["split"] == "validation"
    assert set(report["splits"]) == {"validation", "test"}
    assert report["splits"]["test"]["lines"] == 12
