import dataclasses
import itertools
from pathlib import Path

import pytest

from experiments import multi30k_ende, quickstart, wmt14_ende_base, wmt14_ende_big
from t2t_jax import config
from t2t_jax.data import pipeline, store
from t2t_jax.data.batching import Shape
from t2t_jax.data.sources import open_source
from t2t_jax.errors import DataError
from t2t_jax.planning.shapes import Workload, assume, workload


@pytest.mark.parametrize("module", [quickstart, multi30k_ende, wmt14_ende_base, wmt14_ende_big])
def test_assumed_shapes_keep_to_the_experiments_limits(module) -> None:
    data = module.get_config().data
    assumed = assume(data, seed=1)
    assert "newstest2014" in (assumed.assumed or "")
    assert len(assumed.shapes) <= data.max_shapes
    for source, target, rows in assumed.shapes:
        assert rows * source <= data.source_tokens_per_batch
        assert rows * target <= data.target_tokens_per_batch
    assert max(assumed.shapes)[:2] == (data.max_length, data.max_length), "the longest pair there may be"
    assert 0.8 * data.target_tokens_per_batch < assumed.target_tokens < data.target_tokens_per_batch


def test_commonest_and_largest() -> None:
    shapes = (Shape(10, 10, 100), Shape(20, 20, 50), Shape(100, 100, 10), Shape(400, 400, 1))
    few = Workload(shapes, (3, 5, 2, 0), 900.0, 900.0, 1000, None)
    assert few.commonest == Shape(20, 20, 50)
    assert few.share(few.commonest) == 0.5
    model = config.Model(num_layers=1, d_model=16, d_ff=16, num_heads=8)
    assert few.largest(model, 1) == Shape(100, 100, 10), "attention weights grow; a shape without batches is none"
    assert few.largest(dataclasses.replace(model, d_ff=65536), 50) == Shape(100, 100, 10), "one row of each on a part"


def test_prepared_data_gives_its_own_plan(tmp_path: Path) -> None:
    for split, stem in (("train", "train"), ("validation", "valid"), ("test", "test")):
        pairs = [*itertools.islice(open_source(config.Data()).pairs(split), 300)]  # type: ignore[arg-type]
        for side, language in enumerate(("en", "de")):
            (tmp_path / f"{stem}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    data = config.Data(
        source="files", directory=str(tmp_path), vocabulary_size=500, max_length=48, max_shapes=2,
        source_tokens_per_batch=512, target_tokens_per_batch=512,
    )  # fmt: skip
    assert workload(data, 1, tmp_path).assumed is not None, "nothing is prepared yet"
    prepared = store.prepare(data, tmp_path)
    ours = workload(data, 1, tmp_path)
    plan = pipeline.plan_for(data, prepared.corpus(), 1)
    assert (ours.shapes, ours.batches) == (plan.shapes, plan.batches_per_shape)
    assert (ours.assumed, ours.vocabulary_size) == (None, prepared.tokenizer.size)
    assert ours.target_tokens == pytest.approx(prepared.corpus().lengths[1].sum() / plan.batches_per_epoch)
    with pytest.raises(DataError, match="max_length=48"):
        workload(dataclasses.replace(data, max_length=32), 1, tmp_path)
