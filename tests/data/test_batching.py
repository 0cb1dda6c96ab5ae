"""The batch plan: what holds for any lengths, budgets and seeds."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.data.batching import Plan, choose_shapes, permutation
from t2t_jax.errors import ConfigError

LONGEST = 12
SIDE = st.integers(1, LONGEST)
PAIRS = st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=60).map(lambda pairs: np.array(pairs).T)
BUDGET = st.integers(LONGEST, 60)
SETTINGS = st.fixed_dictionaries(
    {
        "source_budget": BUDGET,
        "target_budget": BUDGET,
        "max_shapes": st.integers(1, 6),
        "seed": st.integers(0, 2**32 - 1),
    }
)


def epoch_of(plan, epoch=0):
    start = epoch * plan.batches_per_epoch
    return [plan.slot(k) for k in range(start, start + plan.batches_per_epoch)]


@given(PAIRS, SETTINGS, st.integers(0, 3))
def test_an_epoch_has_every_pair_exactly_once(lengths, settings, epoch):
    slots = epoch_of(Plan.build(*lengths, **settings), epoch)
    assert sorted(np.concatenate([slot.indices for slot in slots])) == list(range(lengths.shape[1]))


@given(PAIRS, SETTINGS)
def test_every_batch_fits_its_shape_and_both_budgets(lengths, settings):
    source, target = lengths
    for shape, indices in epoch_of(Plan.build(*lengths, **settings)):
        assert 0 < len(indices) <= shape.rows
        assert source[indices].max() <= shape.source
        assert target[indices].max() <= shape.target
        assert shape.rows * shape.source <= settings["source_budget"]
        assert shape.rows * shape.target <= settings["target_budget"]


@given(PAIRS, SETTINGS)
def test_shapes_are_few_nest_and_have_as_many_rows_as_the_budgets_allow(lengths, settings):
    shapes = Plan.build(*lengths, **settings).shapes
    assert 1 <= len(shapes) <= settings["max_shapes"]
    for small, large in itertools.pairwise(shapes):
        assert small.source <= large.source
        assert small.target <= large.target
        assert small[:2] != large[:2]
    for shape in shapes:
        more = shape.rows + 1
        assert more * shape.source > settings["source_budget"] or more * shape.target > settings["target_budget"]


@given(PAIRS, SETTINGS, st.integers(0, 3))
def test_at_most_one_batch_of_an_epoch_is_not_full(lengths, settings, epoch):
    slots = epoch_of(Plan.build(*lengths, **settings), epoch)
    assert sum(len(slot.indices) < slot.shape.rows for slot in slots) <= 1


@given(PAIRS, SETTINGS, st.randoms(use_true_random=False))
def test_a_slot_depends_on_its_number_alone(lengths, settings, rng):
    plan = Plan.build(*lengths, **settings)
    in_order = [plan.slot(k) for k in range(3 * plan.batches_per_epoch)]
    fresh = Plan.build(*lengths, **settings)
    for k in rng.sample(range(len(in_order)), len(in_order)):
        shape, indices = fresh.slot(k)
        assert shape == in_order[k].shape
        np.testing.assert_array_equal(indices, in_order[k].indices)


def test_epochs_and_seeds_differ_in_their_batches():
    lengths = np.tile(np.arange(1, LONGEST + 1), (2, 20))

    def batches(seed, epoch):
        plan = Plan.build(*lengths, source_budget=24, target_budget=24, max_shapes=3, seed=seed)
        return [tuple(slot.indices) for slot in epoch_of(plan, epoch)]

    first, second, other = batches(1, 0), batches(1, 1), batches(2, 0)
    assert set(first).isdisjoint(second)
    assert set(first).isdisjoint(other)


@given(PAIRS, SETTINGS)
def test_padding_efficiency_is_real_tokens_over_positions_of_rows_in_use(lengths, settings):
    plan = Plan.build(*lengths, **settings)
    positions = sum(len(indices) * (shape.source + shape.target) for shape, indices in epoch_of(plan))
    assert plan.padding_efficiency(*lengths) == pytest.approx(lengths.sum() / positions)


@given(PAIRS, st.integers(1, 6))
def test_no_other_cuts_waste_less_padding(lengths, max_shapes):
    longer_side = lengths.max(axis=0)

    def positions(ends):
        """Padded positions when the pairs up to each of `ends`, by their longer side, share a shape."""
        begin, total = 0, 0
        for end in ends:
            size = lengths[:, longer_side <= end].max(axis=1).sum()
            total += size * ((begin < longer_side) & (longer_side <= end)).sum()
            begin = end
        return total

    *inner, longest = np.unique(longer_side)
    best = min(
        positions((*cuts, longest))
        for count in range(min(max_shapes, len(inner) + 1))
        for cuts in itertools.combinations(inner, count)
    )
    shapes = choose_shapes(*lengths, LONGEST, LONGEST, max_shapes)
    ends = [max(shape.source, shape.target) for shape in shapes]  # sides are running maxima, so one of them is the cut
    assert positions(ends) == best
    for shape, end in zip(shapes, ends, strict=True):
        assert (shape.source, shape.target) == tuple(lengths[:, longer_side <= end].max(axis=1))


@given(st.integers(0, 200), st.integers(0, 2**32 - 1), st.integers(0, 1000), st.integers(0, 32))
def test_a_permutation_has_everything_once(n, seed, epoch, stream):
    assert sorted(permutation(n, seed, epoch, stream)) == list(range(n))


def test_permutations_never_change():
    # A run that goes on after an upgrade must see the batches it would have seen before.
    assert permutation(12, 1, 0, 0).tolist() == [6, 10, 7, 2, 4, 1, 8, 9, 5, 0, 11, 3]
    assert permutation(12, 1, 1, 0).tolist() == [10, 11, 5, 2, 6, 8, 7, 3, 4, 0, 1, 9]
    assert permutation(12, 1, 0, 1).tolist() == [3, 6, 7, 5, 9, 1, 0, 11, 4, 2, 8, 10]
    assert permutation(12, 2**32 - 1, 0, 0).tolist() == [1, 8, 7, 4, 9, 5, 2, 10, 6, 3, 0, 11]


@pytest.mark.parametrize("budgets", [(20, 99), (99, 9)])
def test_a_pair_that_fits_no_batch_is_an_error_that_names_the_numbers(budgets):
    numbers = r"30 \+ 10 tokens .* {} \+ {} tokens".format(*budgets)
    with pytest.raises(ConfigError, match=numbers):
        choose_shapes(np.array([5, 30]), np.array([4, 10]), *budgets, max_shapes=4)
