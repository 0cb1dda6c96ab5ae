import pytest

from t2t_jax.errors import UserError
from t2t_jax.parallel.platform import installed
from t2t_jax.planning import topologies
from t2t_jax.planning.topologies import parse


@pytest.mark.parametrize(
    ("name", "size", "per_host"),
    [
        ("v5e:2x4", 8, 4),
        ("v5e:16x16", 256, 4),
        ("v5p:2x2x2", 8, 4),
        ("h100:8", 8, 8),
        ("h100:16x8", 128, 8),
        ("a100:1", 1, 1),
    ],
)
def test_names_say_how_many(name: str, size: int, per_host: int) -> None:
    topology = parse(name)
    assert (topology.size, topology.per_host) == (size, per_host)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("v5f:2x4", "There is no topology 'v5f:2x4'. Did you mean 'v5e:2x4'?"),
        ("v5e", "no grid of TPU v5e chips"),
        ("v5e:3x3", "2x2, 2x4, 4x4"),
        ("v5e:2x16", "2x2, 2x4, 4x4"),
        ("v6e:2x2x2", "no grid of TPU v6e chips"),
        ("v5p:2x4", "two even numbers and a third"),
        ("h100:9", "at most 8"),
        ("h100:0", "at most 8"),
        ("h100:2x2x2", "hosts x GPUs"),
        (None, "needs --topology"),
    ],
)
def test_other_names_are_refused_with_those_there_are(name: str | None, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(name)
    assert sentence in str(caught.value)
    assert "v5e:2x4, v5e:16x16" in str(caught.value)


def test_a_ring_over_hosts_has_the_network_adapters_of_its_members() -> None:
    topology = parse("h100:2x8")
    assert topology.bandwidth((0, 1, 2, 3)) == 450e9, "NVLink, one way"
    assert topology.bandwidth((0, 8)) == 50e9, "one adapter of 400 Gbit/s in each host"
    assert topology.bandwidth(tuple(range(16))) == 400e9, "eight adapters in each"
    assert parse("v5e:2x4").bandwidth(tuple(range(8))) == 200e9, "TPU hosts add no hop"


def test_products_run_at_the_rate_of_their_types() -> None:
    tpu, gpu = topologies.CHIPS["v5e"], topologies.CHIPS["h100"]
    assert tpu.peak("bf16", "bf16") == 197e12
    assert tpu.peak("f32", "bf16") == 197e12 / 3
    assert tpu.peak("f32", "f32") == 197e12 / 6
    assert (gpu.peak("bf16", "bf16"), gpu.peak("bf16", "f32"), gpu.peak("f32", "f32")) == (989e12, 67e12, 67e12)


@pytest.mark.parametrize(("name", "platform", "extra"), [("v5e:2x4", "tpu", "tpu"), ("h100:8", "cuda", "gpu")])
def test_what_is_missing_is_said_with_the_command(name: str, platform: str, extra: str) -> None:
    if installed(platform):
        pytest.skip(f"what compiles for {platform} is installed here")
    with pytest.raises(UserError, match=rf"pip install '\.\[{extra}\]'"):
        parse(name).devices()
