"""Claims about positions: that a model trained on short sequences reads longer ones, if it sees distances alone.

A language of second order is made up: mostly, a token is decided by the two before it. A small decoder learns it from
sequences of one length; then its loss is taken on longer ones, over the last half of their positions, which from twice
the length on are all beyond those it was trained on. The least loss there is, is known.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import page
from t2t_jax import config, model
from t2t_jax.data.pipeline import Batch
from t2t_jax.model import SequenceModel
from t2t_jax.parallel import mesh as meshes
from t2t_jax.symbols import EOS_ID, SPECIAL_SYMBOLS
from t2t_jax.training import state
from t2t_jax.training.optimizer import make_optimizer
from t2t_jax.training.step import make_train_step

POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "t5")
TRAINED = 32  # positions of a sequence in training
TOKENS, DECIDED = 8, 0.9  # of the language: how many there are, and how often the two before decide
STEPS, ROWS, TESTED = 800, 32, 64  # of training, and sequences tested


@dataclass(frozen=True)
class Language:
    """x_t = table[x_t-1, x_t-2] with probability `DECIDED`, else any token alike, as do the first two."""

    table: np.ndarray

    @classmethod
    def drawn(cls, seed: int) -> Language:
        """One of the many there are."""
        return cls(np.random.default_rng([seed, 0]).integers(TOKENS, size=(TOKENS, TOKENS)))

    def sequences(self, rng: np.random.Generator, rows: int, length: int) -> np.ndarray:
        """Token ids [rows, length]."""
        x = rng.integers(TOKENS, size=(rows, length))
        decided = rng.random((rows, length)) < DECIDED
        for t in range(2, length):
            x[:, t] = np.where(decided[:, t], self.table[x[:, t - 1], x[:, t - 2]], x[:, t])
        return (x + len(SPECIAL_SYMBOLS)).astype(np.int32)


def least_loss() -> float:
    """The language's entropy, in nats a token."""
    other = (1 - DECIDED) / TOKENS
    likely = DECIDED + other
    return float(-(likely * np.log(likely) + (TOKENS - 1) * other * np.log(other)))


def transformer(positions: str) -> SequenceModel:
    """A small model; what it has for its source is one token that tells it nothing."""
    settings: dict[str, Any] = {"positions": positions, "max_positions": TRAINED, "t5_max_distance": TRAINED}
    sizes = config.Model(2, 64, 256, 4, dropout=0.0, norm="pre", vocabulary_multiple=4, **settings)
    return model.build(sizes, len(SPECIAL_SYMBOLS) + TOKENS)


def trainer(net: SequenceModel) -> Callable[[Language, int, int], Any]:
    """(language, seed, steps) -> parameters after so many of training's own steps, each on new sequences."""
    adam = make_optimizer(config.Optimizer(peak_learning_rate=3e-3, warmup_steps=100), net.config.d_model)
    step = make_train_step(net, adam, config.Training(label_smoothing=0.0))
    mesh = meshes.make_mesh(config.Mesh(), jax.devices()[:1])

    @jax.jit
    def after(begun: state.TrainState, targets: jax.Array) -> Any:
        def one(now: state.TrainState, target: jax.Array) -> tuple[state.TrainState, None]:
            return step(now, Batch(source_of(target), target))[0], None

        return jax.lax.scan(one, begun, targets)[0].params

    def train(language: Language, seed: int, steps: int) -> Any:
        rng = np.random.default_rng([seed, 1])
        targets = language.sequences(rng, steps * ROWS, TRAINED).reshape(steps, ROWS, TRAINED)
        return after(state.init_state(net, adam, mesh, seed), jnp.asarray(targets))

    return train


def source_of(target: jax.Array) -> jax.Array:
    """[B, 1] for targets [B, T]."""
    return jnp.full_like(target[:, :1], EOS_ID)


def tester(net: SequenceModel) -> Callable[[Any, np.ndarray], jax.Array]:
    """(parameters, tokens [B, T]) -> the mean negative log-probability of the last half of the tokens.

    It raises ValueError where the model has no position for some of them.
    """

    @jax.jit
    def loss(params: Any, target: jax.Array) -> jax.Array:
        logits = net.apply({"params": params}, source_of(target), target, deterministic=True)
        told = jnp.take_along_axis(jax.nn.log_softmax(logits), target[..., None], axis=-1)
        return -jnp.mean(told[:, target.shape[1] // 2 :])

    return loss


def measure(seeds: Sequence[int], steps: int = STEPS, factors: Sequence[int] = (1, 2, 4, 8)) -> dict[str, Any]:
    """Train a model for each kind of positions and each seed, which draws language, sequences and parameters."""
    points = []
    for positions in POSITIONS:
        net = transformer(positions)
        train, loss = trainer(net), tester(net)
        losses: dict[int, list[float]] = {factor * TRAINED: [] for factor in factors}
        refused = {}
        for seed in seeds:
            language = Language.drawn(seed)
            params = train(language, seed, steps)
            for n, found in losses.items():
                tested = language.sequences(np.random.default_rng([seed, 2]), TESTED, n)
                try:
                    found.append(float(loss(params, tested)))
                except ValueError as error:
                    refused[n] = str(error)
        for n, found in losses.items():
            told = {"refused": refused[n]} if n in refused else {"loss": statistics.mean(found), "losses": found}
            points.append({"positions": positions, "n": n} | told)
    return {"trained": TRAINED, "steps": steps, "seeds": list(seeds), "least_loss": least_loss(), "points": points}


def section(found: dict[str, Any]) -> page.Section:
    """The part of the page."""
    lengths = sorted({point["n"] for point in found["points"]})
    told = {positions: [p for p in found["points"] if p["positions"] == positions] for positions in POSITIONS}

    def cell(point: dict[str, Any]) -> str:
        if "refused" in point:
            return "refused"
        spread = f" ({min(point['losses']):.3f} – {max(point['losses']):.3f})" if len(point["losses"]) > 1 else ""
        return f"{point['loss']:.3f}{spread}"

    rows = [[positions, *map(cell, points)] for positions, points in told.items()]
    curves = [
        page.Curve(positions, [p["n"] for p in points if "loss" in p], [p["loss"] for p in points if "loss" in p], hue)
        for hue, (positions, points) in enumerate(told.items())
    ]
    ends = {
        positions: last["loss"] - first["loss"]
        for positions, (first, *_, last) in told.items()
        if "loss" in first and "loss" in last
    }
    ranked = ", ".join(f"{positions} {ends[positions]:+.3f}" for positions in sorted(ends, key=lambda name: ends[name]))
    refused = next((p["refused"] for p in found["points"] if "refused" in p), None)
    says = f"From {lengths[0]} to {lengths[-1]} positions the loss changes by: {ranked}."
    says += f" Learned positions are refused beyond what was trained: “{refused}”." if refused else ""
    return page.Section(
        "Reading on past the trained length",
        "Claimed: attention that sees distances, and not places, goes on beyond the lengths of training; ALiBi most "
        "of all, as what is far is all but ignored (Press et al. 2022), rotary by the same angles for the same "
        f"distance (Su et al. 2021), T5 by one bias for all that is far. Measured: {found['steps']:,} steps on "
        f"sequences of {found['trained']} tokens, of which most are decided by the two before; the mean over "
        f"{len(found['seeds'])} seeds (and their range) of the loss in the last half of longer ones. The least "
        f"possible is {found['least_loss']:.3f} nats.",
        [page.Plot("Loss by length", "nats a token", "positions", curves, says)],
        [page.Table(["positions", *(f"n = {n}" for n in lengths)], rows)],
    )
