import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax.config import Data
from t2t_jax.data import schemes
from t2t_jax.data.batching import Plan, histogram

SIDE = st.integers(1, 30)
PAIRS = st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=80).map(lambda pairs: np.array(pairs).T)


def test_buckets_have_tensor2tensors_boundaries() -> None:
    lengths = np.array([[3, 19, 21, 24], [8, 20, 5, 25]])  # into buckets of 8, 20, 22 and, behind 24, of 26
    scheme = schemes.geometric_buckets(histogram(*lengths))
    assert scheme.shapes == 4
    assert scheme.efficiency == pytest.approx(lengths.sum() / (2 * (8 + 20 + 22 + 26)))


@given(PAIRS, st.integers(30, 120))
def test_sorting_cuts_where_fairseq_does(lengths: np.ndarray, budget: int) -> None:
    batches: list[list[tuple[int, int]]] = [[]]
    for pair in sorted(map(tuple, lengths.T.tolist())):
        if max(map(max, [*batches[-1], pair])) * (len(batches[-1]) + 1) > budget:
            batches.append([])
        batches[-1].append(pair)
    padded = sum(len(batch) * sum(map(max, zip(*batch, strict=True))) for batch in batches)
    scheme = schemes.sorted_by_length(histogram(*lengths), budget)
    assert scheme.efficiency == pytest.approx(lengths.sum() / padded)
    assert scheme.shapes == len({(len(batch), *map(max, zip(*batch, strict=True))) for batch in batches})


def test_packing_fills_rows_until_a_side_is_full() -> None:
    five, six = np.full(8, 5), np.full(8, 6)
    assert schemes.packed(five, five, 10).efficiency == 1
    assert schemes.packed(five, six, 10).efficiency == pytest.approx(11 / 20)


def test_the_runs_own_plan_comes_first() -> None:
    lengths = np.array([[3, 19, 21, 24], [8, 20, 5, 25]])
    plan = Plan.build(*lengths, source_budget=100, target_budget=100, max_shapes=2, seed=1)
    own, *others = schemes.compare(Data(max_length=32), plan, *lengths)
    assert (own.shapes, own.efficiency) == (2, plan.padding_efficiency(*lengths))
    assert len(others) == 3
    assert all(0 < scheme.efficiency <= 1 for scheme in others)
