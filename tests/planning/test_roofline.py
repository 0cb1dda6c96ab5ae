import pytest

from t2t_jax.planning.compiled_text import Collective, Products
from t2t_jax.planning.roofline import Roofline, roofline
from t2t_jax.planning.topologies import parse


def test_each_resource_at_its_peak() -> None:
    products = [Products("bf16", "bf16", "f32", 3, int(989e9)), Products("f32", "f32", "f32", 1, int(67e9))]
    reduce = Collective("all-reduce", "f32", int(450e6), tuple(range(8)), 4)
    line = roofline(parse("h100:8"), products, 3.35e9, [reduce])
    assert line.products == pytest.approx(1e-3 + 1e-3)
    assert line.memory == pytest.approx(1e-3)
    assert line.collectives == pytest.approx(4 * 2 * 7 / 8 * 1e-3)


def test_a_step_lies_between_all_at_once_and_one_after_another() -> None:
    line = Roofline(products=2.0, memory=3.0, collectives=0.5)
    assert (line.overlapped, line.in_turn, line.bound) == (3.0, 5.5, "memory")
