"""The run of several processes is the run of one."""

import json
import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest

from t2t_jax.run_directory import finished_steps
from t2t_jax.training import metrics
from tests.integration.processes import Group

QUICK = ["--training.log-every", "1", "--optimizer.peak-learning-rate", "3e-3", "--optimizer.warmup-steps", "10"]


def losses(run: Path) -> list[float]:
    entries = metrics.read(run)
    assert [entry["step"] for entry in entries] == list(range(1, len(entries) + 1))
    return [entry["loss"] for entry in entries]


@pytest.fixture(scope="module")
def alone(launch, tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("alone") / "run"
    done = launch("train", *tiny, *QUICK, "--workdir", run)
    assert done.returncode == 0, done.stderr
    return run


@pytest.fixture(scope="module")
def pair(tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that two processes have trained and evaluated."""
    run = tmp_path_factory.mktemp("pair") / "run"
    with Group(2, "train", *tiny, *QUICK, "--workdir", run) as group:
        assert group.wait() == [0, 0], group.log(0)
        assert group.log(1) == "", "one speaks for all"
    return run


def test_two_processes_train_like_one(alone: Path, pair: Path) -> None:
    assert losses(alone)[-1] < losses(alone)[0] - 0.1, "it learns, so equal losses mean equal parameters"
    np.testing.assert_allclose(losses(pair), losses(alone), rtol=1e-5)
    assert finished_steps(pair) == finished_steps(alone)
    scores = [json.loads((run / "report.json").read_text()) for run in (alone, pair)]
    assert scores[0]["perplexity"] == scores[1]["perplexity"]
    assert len((pair / "translations" / "test.hypothesis").read_text().split("\n")) == 12 + 1


def test_four_processes_stop_and_two_go_on(tiny: list[str], alone: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    signalled = random.Random(os.urandom(4)).randrange(4)
    with Group(4, "train", *tiny, *QUICK, "--workdir", run) as group:
        group.wait_for_line("step 12/")
        group.processes[signalled].send_signal(signal.SIGTERM)
        assert group.wait() == [75] * 4, group.log(0)
    stopped = finished_steps(run)[-1]
    assert 12 <= stopped < 40
    with Group(2, "train", *tiny, *QUICK, "--workdir", run) as group:
        assert group.wait() == [0, 0], group.log(0)
        assert f"Going on from the checkpoint of step {stopped}." in group.log(0)
    np.testing.assert_allclose(losses(run), losses(alone), rtol=1e-5)


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_other(tiny: list[str], tmp_path: Path, killed: int) -> None:
    long = ["--training.num-steps", "100000", *QUICK]
    with Group(2, "train", *tiny, *long, "--workdir", tmp_path / "run") as group:
        group.wait_for_line("step 2/")
        group.processes[killed].send_signal(signal.SIGKILL)
        assert group.wait(60)[1 - killed] == 1
        assert f"error: process {killed} ended without a word" in group.log(1 - killed)
        assert "Traceback" not in group.log(1 - killed)


def test_a_mistake_of_one_is_the_end_of_all_with_its_reason(tiny: list[str], tmp_path: Path) -> None:
    with Group(2, "train", *tiny, "--data.directory", tmp_path / "nowhere", "--workdir", tmp_path / "run") as group:
        assert group.wait(60) == [2, 2]
        assert group.log(0).startswith("error: ") and group.log(0).count("\n") == 1
        assert f"error: process 0 ended: {group.log(0).removeprefix('error: ')}" in group.log(1)
    storage = {1: ["--workdir", tmp_path / "another"]}  # as on a disk that the two don't share
    with Group(2, "train", *tiny, "--workdir", tmp_path / "one", each=storage) as group:
        assert group.wait(60) == [2, 2]
        assert "is not there on" in group.log(1)
        assert "error: process 1 ended: The data that process 0 has prepared" in group.log(0)


def test_processes_share_the_lines_of_a_translation(launch, trained: Path, tmp_path: Path) -> None:
    lines = [(trained / "translations" / "test.source").read_text(), "", "\u2028", "a " * 500, "Tom"]
    text = tmp_path / "text"
    text.write_text("\n".join(lines))
    arguments = ["translate", trained, "--input", text, "--decoding.max-source-length", "64"]
    expected = launch(*arguments)
    assert expected.returncode == 0, expected.stderr
    with Group(3, *arguments) as group:
        assert group.wait() == [0, 0, 0], group.log(0)
        assert group.output(0) == expected.stdout
        assert group.output(1) == group.output(2) == ""
        assert "Lines of more than 64 tokens" in group.log(0)


def test_processes_share_an_evaluation(launch, trained: Path) -> None:
    expected = launch("evaluate", trained, "--json", "--beam", "1")
    with Group(2, "evaluate", trained, "--json", "--beam", "1") as group:
        assert group.wait() == [0, 0], group.log(0)
        theirs, ours = (json.loads(text)["test"] for text in (expected.stdout, group.output(0)))
        for name in ("loss", "negative_log_likelihood"):
            assert ours.pop(name) == pytest.approx(theirs.pop(name), rel=1e-6)
        assert ours == theirs
        assert group.output(1) == ""


BATCHES = """
import hashlib, json, sys
from pathlib import Path
from t2t_jax import config
from t2t_jax.parallel.processes import Processes, connected
with connected(Processes()) as channel:
    import jax, numpy as np
    from t2t_jax.data import pipeline, store
    from t2t_jax.parallel import mesh as meshes
    data = config.Data(source="files", directory=sys.argv[1], vocabulary_size=500, max_length=48, max_shapes=3,
                       source_tokens_per_batch=512, target_tokens_per_batch=512)
    if channel.first:
        store.prepare(data, Path(sys.argv[2]))
    channel.exchange()
    corpus = store.prepare(data, Path(sys.argv[2])).corpus()
    plan = pipeline.plan_for(data, corpus, 1)
    mesh = meshes.make_mesh(config.Mesh())
    rows = meshes.Rows(mesh)
    gather = jax.jit(lambda batch: batch, out_shardings=meshes.on_every_device(mesh))
    for k, batch in enumerate(pipeline.batches(corpus, plan, 0, plan.batches_per_epoch, rows.local)):
        shape = plan.slot(k).shape
        sides = [np.asarray(gather(rows.place(side, shape.rows))) for side in batch]
        assert not any(side[shape.rows:].any() for side in sides), "what fills up is dead"
        digest = hashlib.sha256(b"".join(side[: shape.rows].tobytes() for side in sides)).hexdigest()
        if channel.first:
            print(k, shape, digest, flush=True)
"""


def test_batches_are_the_same_for_any_number_of_processes(small_corpus: Path, tmp_path: Path) -> None:
    printed = []
    for count in (1, 2, 4):
        with Group(count, small_corpus, tmp_path / str(count), program=["-c", BATCHES]) as group:
            assert group.wait() == [0] * count, group.log(0)
            printed.append(group.output(0))
    assert len(printed[0].split("\n")) > 20
    assert printed[1] == printed[0]
    assert printed[2] == printed[0]
