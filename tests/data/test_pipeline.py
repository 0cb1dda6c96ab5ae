from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax import config
from t2t_jax.data import pipeline
from t2t_jax.data.masking import Masking
from t2t_jax.data.store import Corpus, Ragged
from t2t_jax.symbols import EOS_ID

RNG = np.random.default_rng(0)


def ragged(lengths: np.ndarray) -> Ragged:
    return Ragged(RNG.integers(4, 99, lengths.sum()).astype(np.uint16), lengths.astype(np.int32))


CORPUS = Corpus(ragged(RNG.integers(1, 12, 200)), ragged(RNG.integers(1, 12, 200)))
DATA = config.Data(max_length=16, source_tokens_per_batch=64, target_tokens_per_batch=64, max_shapes=4)
PLAN = pipeline.plan_for(DATA, CORPUS, seed=3)


def test_batches_are_the_plan_whatever_the_start() -> None:
    stop = 2 * PLAN.batches_per_epoch + 3
    whole = [pipeline.make_batch(CORPUS, PLAN, k) for k in range(stop)]
    for start in (0, 1, PLAN.batches_per_epoch, stop - 1):
        read = list(pipeline.batches(CORPUS, PLAN, start, stop))
        assert len(read) == stop - start
        for batch, expected in zip(read, whole[start:], strict=True):
            np.testing.assert_array_equal(batch.source, expected.source)
            np.testing.assert_array_equal(batch.target, expected.target)


@pytest.mark.parametrize("bounds", [(3, 3), (5, 2)])
def test_nothing_left_is_an_empty_stream(bounds: tuple[int, int]) -> None:
    assert list(pipeline.batches(CORPUS, PLAN, *bounds)) == []


def test_rows_are_the_pairs_with_an_end_and_padding() -> None:
    for k in range(PLAN.batches_per_epoch):
        shape, indices = PLAN.slot(k)
        batch = pipeline.make_batch(CORPUS, PLAN, k)
        assert batch.source.shape == (shape.rows, shape.source)
        assert batch.target.shape == (shape.rows, shape.target)
        for side, rows in ((CORPUS.source, batch.source), (CORPUS.target, batch.target)):
            for row, i in zip(rows, indices, strict=False):
                tokens = side.tokens[side.lengths[:i].sum() :][: side.lengths[i]]
                assert row.tolist() == [*tokens, EOS_ID, *[0] * (len(row) - len(tokens) - 1)]
            assert not rows[len(indices) :].any()


@pytest.mark.parametrize("corpus", [CORPUS, replace(CORPUS, target=CORPUS.source, masking=Masking(99))])
@given(st.integers(0, 50), st.data())
def test_a_share_of_the_rows_is_those_rows_of_the_batch(corpus: Corpus, k: int, data: st.DataObject) -> None:
    shape, _ = PLAN.slot(k)
    places = st.lists(st.integers(0, shape.rows + 3), min_size=1, unique=True)
    chosen = np.sort(np.asarray(data.draw(places)))
    whole = pipeline.make_batch(corpus, PLAN, k)
    share = pipeline.make_batch(corpus, PLAN, k, lambda rows: chosen)
    for side, part in zip(whole, share, strict=True):
        filled = np.pad(side, [(0, 4), (0, 0)])  # places behind the batch are dead
        np.testing.assert_array_equal(part, filled[chosen])
