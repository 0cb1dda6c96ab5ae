"""The run on several devices is the run on one: eight virtual CPU devices in a process of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]

# Dropout is on: its bits must not depend on how a batch is divided either.
TRAIN = """
import dataclasses, json, sys
import jax
from pathlib import Path
from t2t_jax import config
from t2t_jax.parallel import mesh as meshes
from t2t_jax.training import loop, metrics

devices = jax.devices()
assert len(devices) == 8
losses = {}
for sizes in ((1, 1, 1), (8, 1, 1), (2, 2, 2)):
    count = sizes[0] * sizes[1] * sizes[2]
    meshes.jax.devices = lambda *_, count=count: devices[:count]
    experiment = config.Experiment(
        model=config.Model(num_layers=1, d_model=32, d_ff=64, num_heads=4, dropout=0.1, attention_dropout=0.1),
        data=config.Data(source="files", directory=sys.argv[1], vocabulary_size=500, max_length=48, max_shapes=1,
                         source_tokens_per_batch=512, target_tokens_per_batch=512),
        optimizer=config.Optimizer(peak_learning_rate=3e-3, warmup_steps=4),
        training=config.Training(num_steps=6, log_every=1, checkpoint_every=6, average_last=1),
        mesh=config.Mesh(*sizes),
    )
    run = Path(sys.argv[2]) / "-".join(map(str, sizes))
    loop.train(experiment, run)
    losses["-".join(map(str, sizes))] = [entry["loss"] for entry in metrics.read(run)]
print(json.dumps(losses))
"""


@pytest.fixture(scope="module")
def losses(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    place = tmp_path_factory.mktemp("mesh")
    flags = "--xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, str(small_corpus), str(place)],
        capture_output=True, cwd=ROOT, timeout=300, env={**os.environ, "XLA_FLAGS": flags}, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().split("\n")[-1])


@pytest.mark.parametrize("mesh", ["8-1-1", "2-2-2"])
def test_losses_do_not_depend_on_the_mesh(losses: dict[str, list[float]], mesh: str) -> None:
    assert losses["1-1-1"][-1] < losses["1-1-1"][0] - 0.1, "it learns, so equal losses mean equal parameters"
    np.testing.assert_allclose(losses[mesh], losses["1-1-1"], rtol=1e-5)
