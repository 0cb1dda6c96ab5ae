"""What claims are measured by: a language whose entropy is known, errors with known ends, caches of known size."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import approximation, claims, extrapolation, layer_types, page, shared_keys
from benchmarks.extrapolation import DECIDED, TOKENS, Language, least_loss
from t2t_jax.symbols import SPECIAL_SYMBOLS


def test_least_loss_is_that_of_one_who_knows_the_table() -> None:
    language = Language.drawn(3)
    x = language.sequences(np.random.default_rng(0), 400, 200) - len(SPECIAL_SYMBOLS)
    assert x.min() == 0 and x.max() == TOKENS - 1
    told = language.table[x[:, 1:-1], x[:, :-2]] == x[:, 2:]
    likely = DECIDED + (1 - DECIDED) / TOKENS
    assert told.mean() == pytest.approx(likely, abs=0.003)
    found = -np.log(np.where(told, likely, (1 - likely) / (TOKENS - 1))).mean()
    assert least_loss() == pytest.approx(found, abs=0.02)


def test_loss_is_of_the_last_half_alone() -> None:
    class Sure:
        """Finds the first half impossible and the second certain."""

        def apply(self, variables, source, target, *, deterministic):
            right = jnp.arange(target.shape[1]) >= target.shape[1] // 2
            return jnp.where((jnp.arange(12) == target[..., None]) == right[:, None], 50.0, 0.0)

    target = np.random.default_rng(0).integers(4, 12, (3, 10)).astype(np.int32)
    loss = extrapolation.tester(Sure())  # type: ignore[arg-type]
    assert float(loss({}, target)) == pytest.approx(0, abs=1e-6)


def test_performers_error_falls_and_low_rank_has_known_ends() -> None:
    few, many = (
        np.mean([approximation.performer_error(0.25, count, seed, True) for seed in range(3)]) for count in (32, 512)
    )
    assert many < few / 2.5, "sixteen times the features: about a quarter"
    assert approximation.rank_error(1.0, 0, 0) == 1
    assert approximation.rank_error(1.0, approximation.LENGTH, 0) == 0
    u, s, v = np.linalg.svd(np.asarray(approximation.weights(*approximation.drawn(1.0, 0)[:2])))
    best = (u[:, :8] * s[:8]) @ v[:8]
    exact = (u * s) @ v
    expected = np.linalg.norm(best - exact) / np.linalg.norm(exact)
    assert approximation.rank_error(1.0, 8, 0) == pytest.approx(expected, rel=1e-4)


def test_a_cache_is_as_large_as_its_heads() -> None:
    length, width = 24, 256 // shared_keys.HEADS
    for heads in shared_keys.SHARED.values():
        run, kept = shared_keys.steps(heads, length, layers=1)
        assert kept == 4 * shared_keys.ROWS * shared_keys.BEAM * length * 2 * heads * width
    assert run() is not None and np.isfinite(run())


def test_learned_positions_are_refused_beyond_their_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extrapolation, "POSITIONS", ("learned",))
    near, far = extrapolation.measure((0,), steps=2, factors=(1, 2))["points"]
    assert near["n"] == extrapolation.TRAINED and 0 < near["loss"] < 5
    assert "beyond the learned table's 32 positions" in far["refused"] and "loss" not in far


@pytest.fixture
def found() -> dict:
    """Made-up figures, in the form in which they are measured."""
    kinds = list(layer_types.kinds(3, 4))
    layers = {
        "lengths": [16, 64],
        "widths": [8],
        "fits": dict.fromkeys(kinds),
        "points": [
            {"kind": kind, "n": n, "d": 8, "way": "forward", "sequential_operations": n if kind == "recurrent" else 1}
            for kind in kinds
            for n in (16, 64)
        ],
        "paths": {name: [{"n": 64, "length": 7}] for name in layer_types.stacks(3, 4)},
        "crossings": [{"d": 8, "by_flops": 16, "by_forward_time": "below 16", "by_training_time": 40}],
    }
    positions = [
        {"positions": name, "n": n}
        | ({"refused": "too long"} if name == "learned" and n > 32 else {"loss": n / 32, "losses": [n / 32, n / 16]})
        for name in extrapolation.POSITIONS
        for n in (32, 64)
    ]
    return {
        "facts": page.circumstances(),
        "warning": None,
        "layers": layers,
        "positions": {"trained": 32, "steps": 5, "seeds": [0, 1], "least_loss": 0.5, "points": positions},
        "approximation": approximation.measure(range(1), (16, 32, 64), (8, 16)),
        "shared_keys": {
            "points": [
                {"kind": name, "n": n, "bytes": 2**20 * n * heads, "seconds": n * 1e-3}
                for name, heads in shared_keys.SHARED.items()
                for n in (64, 128)
            ]
        },
    }


def test_page_and_table(found: dict, read_page) -> None:
    read = read_page(claims.html(found))
    assert read.elements["svg"] == 4
    assert read.text.count("Claimed: ") == 6 == read.text.count("Measured: ")
    assert "changes by: sinusoidal +1.000" in read.text
    assert "refused beyond what was trained: “too long”" in read.text
    assert "Times smaller at the longest: grouped-query 4.00, multi-query 8.00." in read.text
    table = claims.table(found)
    assert "alibi       1.000 (1.000 – 2.000)  2.000 (2.000 – 4.000)" in table
    assert "learned     1.000 (1.000 – 2.000)                refused" in table
    (recurrent,) = (line.split() for line in table.splitlines() if line.startswith("recurrent "))
    assert recurrent == ["recurrent", "n", "64", "n", "7"]
    json.dumps(found)
