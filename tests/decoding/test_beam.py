"""Beam search on tables of logits and on small networks: against all sequences, and against a search in plain NumPy."""

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.decoding.beam import NEVER, BeamSearch, choosable, likeliest
from t2t_jax.symbols import BOS_ID, EOS_ID, PAD_ID, UNK_ID

WORDS = (UNK_ID, 4, 5)  # what can be chosen besides the end of sentence
SYMBOLS, LENGTH = 6, 5
ALPHAS = (0.0, 0.6, 1.0)
PENALTIES = {"gnmt": lambda n, alpha: ((5 + n) / 6) ** alpha, "length": lambda n, alpha: n**alpha}


@functools.partial(jax.jit, static_argnames=("beam", "n_best", "penalty", "early_stopping", "stages"))
def search(tables, limits, alpha, *, beam, n_best, penalty="gnmt", early_stopping=True, prefix=None, stages=()):
    """Over logits [B, T, Z, Z, Z] by position, last token but one and last token, stopping at `stages` on the way.

    The cache is what every hypothesis was given at every position, so the token before must be looked up by its writer.
    """

    def step(tokens, index, writers, written):
        rows = jnp.arange(len(tables))[:, None]
        before = written[rows, writers[:, :, index - 1], index - 1]
        logits = tables[rows, index, jnp.where(index > 0, before, PAD_ID), tokens]
        return logits, written.at[:, :, index].set(tokens)

    method = BeamSearch(beam, alpha, penalty, n_best, early_stopping)
    state = method.start(jnp.zeros((len(tables), beam, LENGTH), jnp.int32), limits, LENGTH)
    for begin, end in itertools.pairwise((0, *stages, LENGTH)):
        state = method.advance(step, state, begin, end, prefix)
    return method.best(state)


def random_tables(rows, seed=0):
    """Tables of which some like to end and some do not."""
    rng = np.random.default_rng(seed)
    tables = 2 * rng.standard_normal((rows, LENGTH, SYMBOLS, SYMBOLS, SYMBOLS), np.float32)
    tables[..., EOS_ID] += rng.uniform(-5, 1, (rows, 1, 1, 1))
    return tables


def rows_of(found):
    """Each row's hypotheses as (words, score, cut)."""
    tokens, scores, lengths, cut = map(np.asarray, found)
    # Behind a hypothesis there is padding only.
    assert not tokens[np.arange(tokens.shape[-1]) >= lengths[..., None]].any()
    return [
        [(tuple(map(int, words[:n])), float(score), bool(c)) for words, score, n, c in zip(*row, strict=True)]
        for row in zip(tokens, scores, lengths, cut, strict=True)
    ]


def assert_same(found, expected, rtol=1e-5, atol=1e-6):
    for number, (row, wanted) in enumerate(zip(rows_of(found), expected, strict=True)):
        words, scores, cut = zip(*row, strict=True)
        wanted_words, wanted_scores, wanted_cut = zip(*wanted, strict=True)
        assert (words, cut) == (wanted_words, wanted_cut), f"row {number}"
        np.testing.assert_allclose(scores, wanted_scores, rtol=rtol, atol=atol, err_msg=f"row {number}")


def log_probabilities(table, words):
    before, last = (PAD_ID, BOS_ID, *words)[-2:]
    logits = table[len(words), before, last].astype(np.float64)
    return logits - np.log(np.exp(logits).sum())


def best_of_all(table, limit, divisor, n_best, prefix=()):
    """The best of every sequence of up to `limit` words and an end that begins with `prefix`."""
    complete = []

    def grow(words, score):
        log_p = log_probabilities(table, words)
        complete.append((words, (score + log_p[EOS_ID]) / divisor(len(words) + 1), False))
        if len(words) < limit:
            for word in WORDS:
                grow((*words, word), score + log_p[word])

    grow((), 0.0)
    complete = [hypothesis for hypothesis in complete if hypothesis[0][: len(prefix)] == prefix]
    return sorted(complete, key=lambda hypothesis: -hypothesis[1])[:n_best]


def plain_beam_search(log_p, limit, divisor, beam):
    """The rule of the search, one hypothesis at a time and without stopping early: the finished ones, and the cut.

    `log_p` gives the log-probabilities [Z] of what follows some words.
    """
    opened, finished = [((), 0.0)], []
    for position in range(limit + 1 if limit else 0):
        scores = np.asarray([score + log_p(words) for words, score in opened])
        scores[:, [PAD_ID, BOS_ID]] = -np.inf
        width = min(2 * beam if beam > 1 else 1, np.isfinite(scores).sum())
        places = [divmod(int(i), scores.shape[1]) for i in np.argsort(-scores, axis=None)[:width]]
        candidates = [((*opened[parent][0], token), scores[parent, token]) for parent, token in places]
        ended = [(words[:-1], score) for words, score in candidates if words[-1] == EOS_ID]
        finished += [(words, score / divisor(position + 1), False) for words, score in ended]
        if position < limit:
            opened = [candidate for candidate in candidates if candidate[0][-1] != EOS_ID][:beam]
        else:
            has_ended = {words for words, _ in ended}
            opened = [hypothesis for hypothesis in opened if hypothesis[0] not in has_ended]
        if not opened:
            break
    finished = sorted(finished, key=lambda hypothesis: -hypothesis[1])[:beam]
    # What is cut counts by the tokens it has.
    return finished + [(words, score / divisor(max(limit, 1)), limit > 0) for words, score in opened]


def best_of(hypotheses, n_best):
    return (hypotheses + [((), NEVER, False)] * n_best)[:n_best]


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("early_stopping", [True, False])
def test_a_beam_that_holds_everything_finds_the_best_of_all_sequences(penalty, early_stopping):
    tables, limits = random_tables(16), np.arange(16) % 4 + 1
    beam = len(WORDS) ** 4 * (len(WORDS) + 1) // 2  # the search looks at twice as many candidates as its beam
    options = {"beam": beam, "penalty": penalty, "early_stopping": early_stopping}
    for alpha in ALPHAS:
        divisor = functools.partial(PENALTIES[penalty], alpha=alpha)
        expected = [best_of_all(table, limit, divisor, 4) for table, limit in zip(tables, limits, strict=True)]
        assert_same(search(tables, limits, alpha, n_best=4, **options), expected)


NARROW = pytest.mark.parametrize(
    ("beam", "n_best", "penalty"), [(2, 1, "gnmt"), (3, 1, "length"), (2, 2, "gnmt"), (4, 4, "length")]
)
TABLES, LIMITS = random_tables(50, seed=1), np.arange(50) % LENGTH


@NARROW
def test_a_narrow_beam_equals_a_plain_search(beam, n_best, penalty):
    for alpha in ALPHAS:
        divisor = functools.partial(PENALTIES[penalty], alpha=alpha)
        expected = [
            best_of(plain_beam_search(functools.partial(log_probabilities, table), limit, divisor, beam), n_best)
            for table, limit in zip(TABLES, LIMITS, strict=True)
        ]
        assert_same(search(TABLES, LIMITS, alpha, beam=beam, n_best=n_best, penalty=penalty), expected)


@NARROW
def test_stopping_early_changes_no_result(beam, n_best, penalty):
    for alpha in ALPHAS:
        early, late = (
            search(TABLES, LIMITS, alpha, beam=beam, n_best=n_best, penalty=penalty, early_stopping=early)
            for early in (True, False)
        )
        jax.tree.map(np.testing.assert_array_equal, early, late)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_beam_of_one_is_greedy_search(alpha):
    def walk(table, limit):
        words = ()
        while len(words) < limit:
            log_p = log_probabilities(table, words)
            best = max((*WORDS, EOS_ID), key=log_p.__getitem__)
            if best == EOS_ID:
                break
            words += (best,)
        return words

    found = rows_of(search(TABLES, LIMITS, alpha, beam=1, n_best=1))
    walks = [walk(table, limit) for table, limit in zip(TABLES, LIMITS, strict=True)]
    assert [words for ((words, _, _),) in found] == walks


def test_a_row_does_not_depend_on_its_neighbours():
    together = search(TABLES, LIMITS, 0.6, beam=2, n_best=2)
    for row in range(2 * LENGTH):  # every limit twice
        one = slice(row, row + 1)
        alone = search(TABLES[one], LIMITS[one], 0.6, beam=2, n_best=2)
        jax.tree.map(lambda a, b, one=one: np.testing.assert_array_equal(a, b[one]), alone, together)


def test_rows_of_limit_0_are_empty_and_not_cut():
    for row in rows_of(search(TABLES, np.zeros_like(LIMITS), 0.6, beam=2, n_best=2)):
        assert row[0] == ((), 0.0, False)
        assert row[1] == ((), NEVER, False)


def by_position(*probabilities):
    """A table that looks at the position alone: {token: probability} for each."""
    table = np.full((1, LENGTH, SYMBOLS, SYMBOLS, SYMBOLS), NEVER, np.float32)
    for position, given in enumerate(probabilities):
        for token, probability in given.items():
            table[0, position, :, :, token] = np.log(probability)
    return table


def test_an_end_at_the_limit_is_in_time():
    table = by_position({4: 0.9, 5: 0.1}, {4: 0.8, 5: 0.2}, {EOS_ID: 1.0})
    (found,) = rows_of(search(table, np.array([2]), 0.0, beam=2, n_best=2))
    assert [(words, cut) for words, _, cut in found] == [((4, 4), False), ((4, 5), False)]
    np.testing.assert_allclose([score for _, score, _ in found], np.log([0.72, 0.18]), rtol=1e-5)


def test_without_an_end_up_to_the_limit_the_best_are_cut_there():
    table = by_position({4: 0.9, 5: 0.1}, {4: 0.8, 5: 0.2}, {4: 1.0}, {EOS_ID: 1.0})
    (found,) = rows_of(search(table, np.array([2]), 0.0, beam=2, n_best=2))
    assert [(words, cut) for words, _, cut in found] == [((4, 4), True), ((4, 5), True)]
    np.testing.assert_allclose([score for _, score, _ in found], np.log([0.72, 0.18]), rtol=1e-5)


def test_what_ends_at_the_limit_is_not_returned_again_as_cut():
    table = by_position({4: 0.6, 5: 0.4})
    table[0, 1, :, 4, EOS_ID] = table[0, 1, :, 5, 5] = 0.0  # after a 4 comes the end, after a 5 never
    (found,) = rows_of(search(table, np.array([1]), 0.0, beam=2, n_best=2))
    assert [(words, cut) for words, _, cut in found] == [((4,), False), ((5,), True)]


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_best_that_begins_with_a_prefix_is_found(alpha: float) -> None:
    """With a beam that holds everything, against all sequences that begin so; an empty prefix leaves a row free."""
    prefixes = [(), (4,), (5, UNK_ID), (4, 4, 5)]
    tables, limits = random_tables(len(prefixes), seed=3), [3] * len(prefixes)
    padded = jnp.asarray([[*prefix, *[PAD_ID] * (LENGTH - len(prefix))] for prefix in prefixes], jnp.int32)
    found = search(tables, jnp.asarray(limits), alpha, beam=40, n_best=1, prefix=padded)
    expected = [
        best_of_all(table, limit, lambda n: PENALTIES["gnmt"](n, alpha), 1, prefix)
        for table, limit, prefix in zip(tables, limits, prefixes, strict=True)
    ]
    assert_same(found, expected)


NETWORKS, ENTRIES, WIDTH, LONGEST = 200, 48, 6, 9


class Networks(NamedTuple):
    """Small recurrent networks, one a row: what follows depends on all tokens before."""

    embedding: np.ndarray  # [B, Z, D]
    recurrence: np.ndarray  # [B, D, D]
    output: np.ndarray  # [B, D, Z]
    bias: np.ndarray  # [B, Z]


def random_networks(seed=0):
    rng = np.random.default_rng(seed)
    shapes = (ENTRIES, WIDTH), (WIDTH, WIDTH), (WIDTH, ENTRIES), (ENTRIES,)
    found = Networks(*(rng.standard_normal((NETWORKS, *shape)).astype(np.float32) for shape in shapes))
    found.bias[:, EOS_ID] += rng.uniform(-1, 5, NETWORKS)
    return found, rng.integers(0, LONGEST, NETWORKS)


@functools.partial(jax.jit, static_argnames=("beam", "n_best", "early_stopping"))
def search_networks(networks, limits, alpha, *, beam, n_best, early_stopping):
    """In three stages; the cache holds the network's state behind every token, wherever it was written."""
    rows = jnp.arange(NETWORKS)[:, None]

    def step(tokens, index, writers, written):
        before = jnp.where(index > 0, written[rows, writers[:, :, index - 1], index - 1], 0.0)
        state = jnp.tanh(networks.embedding[rows, tokens] + jnp.einsum("bwd,bde->bwe", before, networks.recurrence))
        logits = jnp.einsum("bwd,bdz->bwz", state, networks.output) + networks.bias[:, None]
        return logits, written.at[:, :, index].set(state)

    method = BeamSearch(beam, alpha, "gnmt", n_best, early_stopping)
    state = method.start(jnp.zeros((NETWORKS, beam, LONGEST, WIDTH)), limits, LONGEST)
    for begin, end in itertools.pairwise((0, 2, 6, LONGEST)):
        state = method.advance(step, state, begin, end)
    return method.best(state)


def network_log_p(network):
    """The same network in NumPy, in float64; the states behind all beginnings met so far are kept."""
    network = Networks(*(part.astype(np.float64) for part in network))
    states = {}

    def state(words):
        if words not in states:
            before = state(words[:-1]) if words else np.zeros(WIDTH)
            states[words] = np.tanh(network.embedding[words[-1] if words else BOS_ID] + before @ network.recurrence)
        return states[words]

    def log_p(words):
        logits = state(words) @ network.output + network.bias
        return logits - np.log(np.exp(logits).sum())

    return log_p


@pytest.mark.parametrize("beam", [1, 4, 21])
def test_200_networks_are_searched_as_plain_numpy_does(beam):
    networks, limits = random_networks()
    functions = [network_log_p(Networks(*parts)) for parts in zip(*networks, strict=True)]
    for alpha in ALPHAS:
        divisor = functools.partial(PENALTIES["gnmt"], alpha=alpha)
        expected = [plain_beam_search(log_p, n, divisor, beam) for log_p, n in zip(functions, limits, strict=True)]
        for n_best, early_stopping in itertools.product((1, 4) if beam > 1 else (1,), (True, False)):
            options = {"beam": beam, "n_best": n_best, "early_stopping": early_stopping}
            found = search_networks(networks, limits, alpha, **options)
            assert_same(found, [best_of(hypotheses, n_best) for hypotheses in expected], rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [37_000 // 8, 4 * 997])
@pytest.mark.parametrize("forced", [False, True])
def test_the_likeliest_are_found_by_blocks(size, forced):
    """Ties included, and with what may not be chosen on top."""
    rng = np.random.default_rng(0)
    logits = np.round(rng.standard_normal((2, 3, size)), 1).astype(np.float32)
    logits[0, :, [PAD_ID, BOS_ID]] = 9
    wanted = jnp.asarray([size - 1, PAD_ID]) if forced else None
    values, tokens = jax.jit(likeliest, static_argnums=2)(logits, wanted, 8)
    expected_values, expected_tokens = jax.lax.top_k(choosable(logits, wanted), 8)
    np.testing.assert_array_equal(values, expected_values)
    possible = np.asarray(values) > NEVER
    np.testing.assert_array_equal(np.asarray(tokens)[possible], np.asarray(expected_tokens)[possible])
