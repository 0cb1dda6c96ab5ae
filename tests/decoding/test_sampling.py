import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.decoding.beam import NEVER
from t2t_jax.decoding.sampling import Sampler, Sampling, narrow
from t2t_jax.errors import ConfigError
from t2t_jax.symbols import EOS_ID

SYMBOLS, LENGTH = 8, 6


@functools.partial(jax.jit, static_argnames=("count", "settings"))
def draw(tables, limits, lines, *, count, settings, prefix=None):
    """From logits [B, T, Z, Z] by position and last token."""

    def step(tokens, index, writers, cache):
        return tables[jnp.arange(len(tables))[:, None], index, tokens], cache

    sampler = Sampler(settings, count)
    state = sampler.start((), limits, LENGTH, lines)
    return sampler.best(sampler.advance(step, state, 0, LENGTH, prefix))


def tables(rows: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, LENGTH, SYMBOLS, SYMBOLS)).astype(np.float32)


LIMITS = jnp.asarray([5, 3, 0, 5])
LINES = jnp.asarray([11, 12, 13, 14], jnp.uint32)


def test_draws_have_the_models_probabilities() -> None:
    """One position, where the next can only be the end: frequencies of 20,000 draws within 4 standard deviations."""
    logits = tables(1)
    logits[:, 1:] = -50
    logits[:, 1:, :, EOS_ID] = 50
    count = 20_000
    found = draw(logits, jnp.asarray([5]), LINES[:1], count=count, settings=Sampling(temperature=0.7))
    first = np.where(found.lengths[0] == 0, EOS_ID, found.tokens[0, :, 0])
    weights = np.exp(logits[0, 0, 2] / 0.7)
    weights[[0, 2]] = 0  # padding and begin of sentence are no tokens
    p = weights / weights.sum()
    spread = 4 * np.sqrt(p * (1 - p) / count)
    assert np.all(np.abs(np.bincount(first, minlength=SYMBOLS) / count - p) <= spread)


def test_scores_are_log_probabilities_of_what_was_drawn() -> None:
    logits = tables(4)
    found = draw(logits, LIMITS, LINES, count=5, settings=Sampling(temperature=1.5, top_k=4, seed=3))
    log_p = np.asarray(jax.nn.log_softmax(logits))
    assert np.asarray(found.lengths[2]).tolist() == [0] * 5
    for row in (0, 1, 3):
        for tokens, length, cut, score in zip(
            *(np.asarray(c[row]) for c in (found.tokens, found.lengths, found.cut, found.scores)), strict=True
        ):
            words = [2, *tokens[:length]] + ([] if cut else [EOS_ID])
            expected = sum(log_p[row, i, words[i], words[i + 1]] for i in range(len(words) - 1))
            assert score == pytest.approx(expected, abs=1e-5)
            assert length <= LIMITS[row]
            assert not tokens[length:].any()


def test_a_rows_draws_depend_on_its_key_alone() -> None:
    logits, settings = tables(4), Sampling(seed=5)
    together = draw(logits, LIMITS, LINES, count=3, settings=settings)
    order = np.asarray([3, 0, 2, 1])
    shuffled = draw(logits[order], LIMITS[order], LINES[order], count=3, settings=settings)
    for one, other in zip(together, shuffled, strict=True):
        np.testing.assert_array_equal(np.asarray(one)[order], other)
    other_seed = draw(logits, LIMITS, LINES, count=3, settings=Sampling(seed=6))
    assert not np.array_equal(together.tokens, other_seed.tokens)


def test_draws_begin_with_the_prefix() -> None:
    prefix = np.zeros((4, LENGTH), np.int32)
    prefix[0, :2], prefix[3, :3] = (7, 4), (5, 5, 6)
    found = draw(tables(4), LIMITS, LINES, count=4, settings=Sampling(), prefix=jnp.asarray(prefix))
    assert (np.asarray(found.tokens[0, :, :2]) == (7, 4)).all()
    assert (np.asarray(found.tokens[3, :, :3]) == (5, 5, 6)).all()


@given(
    st.lists(st.integers(-40, 40).map(lambda eighths: eighths / 8), min_size=2, max_size=9, unique=True),
    st.integers(1, 9),
    st.floats(0.05, 1.0),
)
def test_narrowing_keeps_the_likeliest(logits: list[float], k: int, p: float) -> None:
    array = jnp.asarray(logits, jnp.float32)
    ranks = sorted(range(len(logits)), key=lambda i: -array[i])
    kept = set(np.flatnonzero(np.asarray(narrow(array, Sampling(top_k=k))) > NEVER / 2).tolist())
    assert kept == set(ranks[:k])
    shares = np.asarray(jax.nn.softmax(array), np.float64)[ranks]
    before = np.cumsum(shares) - shares
    kept = set(np.flatnonzero(np.asarray(narrow(array, Sampling(top_p=p))) > NEVER / 2).tolist())
    assert {ranks[i] for i in range(len(ranks)) if before[i] < p - 1e-5} <= kept
    assert kept <= {ranks[i] for i in range(len(ranks)) if before[i] < p + 1e-5}
    assert ranks[0] in kept


@pytest.mark.parametrize("settings", [{"temperature": 0.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.5}])
def test_settings_that_cannot_be_are_refused(settings) -> None:
    (name,) = settings
    with pytest.raises(ConfigError, match=name):
        Sampling(**settings)
