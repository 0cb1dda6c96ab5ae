"""The batch plan: what holds for any lengths, budgets and seeds."""

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
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
        "kind": st.sampled_from(["nested", "free"]),
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
def test_shapes_are_few_and_have_as_many_rows_as_the_budgets_allow(lengths, settings):
    shapes = Plan.build(*lengths, **settings).shapes
    assert 1 <= len(shapes) <= settings["max_shapes"]
    assert len({shape[:2] for shape in shapes}) == len(shapes)
    assert all(shapes[-1].holds(shape) for shape in shapes)
    if settings["kind"] == "nested":
        assert all(large.holds(small) for small, large in itertools.pairwise(shapes))
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


@given(PAIRS, SETTINGS)
def test_a_pair_is_in_its_cheapest_shape_or_in_one_that_holds_it(lengths, settings):
    plan = Plan.build(*lengths, **settings)
    for (source, target), place in zip(lengths.T, plan.shape_of, strict=True):
        sizes = {i: s.source + s.target for i, s in enumerate(plan.shapes) if s.source >= source and s.target >= target}
        assert sizes[place] == min(sizes.values())


@limits(max_examples=20)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=40).map(lambda p: np.array(p).T))
def test_free_shapes_are_as_good_as_any_where_all_can_be_tried(lengths):
    def positions(shapes):
        return sum(min(s + t for s, t in shapes if s >= a and t >= b) for a, b in lengths.T)

    top = tuple(lengths.max(axis=1))
    every = itertools.product(range(1, top[0] + 1), range(1, top[1] + 1))
    best = min(positions((top, *others)) for others in itertools.combinations_with_replacement(every, 2))
    assert positions([shape[:2] for shape in choose_shapes(*lengths, 4, 4, 3, "free")]) == best


def test_free_shapes_waste_less_than_nested_ones():
    lengths = np.stack([np.arange(2000) % 40 + 1, np.arange(2000) % 37 + 1])
    nested, free = (
        Plan.build(*lengths, source_budget=40, target_budget=40, max_shapes=12, seed=1, kind=kind)
        for kind in ("nested", "free")
    )
    assert free.padding_efficiency(*lengths) > nested.padding_efficiency(*lengths) + 0.05


@pytest.mark.parametrize(("kind", "expected"), [("nested", "10aecea9cf03d090"), ("free", "74a209ab7de91ae2")])
def test_batches_never_change(kind, expected):
    """Runs of earlier versions go on with the batches they had; the digests are of the first version of each kind."""
    lengths = np.stack([permutation(500, 1, 2, 3) % 30 + 1, permutation(500, 4, 5, 6) % 25 + 1])
    plan = Plan.build(*lengths, source_budget=120, target_budget=100, max_shapes=7, seed=5, kind=kind)
    digest = hashlib.sha256()
    for k in range(2 * plan.batches_per_epoch):
        shape, indices = plan.slot(k)
        digest.update(np.array([*shape, *indices], "<i8").tobytes())
    assert digest.hexdigest()[:16] == expected


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
