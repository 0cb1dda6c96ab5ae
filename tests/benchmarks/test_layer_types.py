"""Layers of Table 1 compute what they say, and what is counted about them is right."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import layer_types, layers, paths
from benchmarks.fits import crossing, exponent

D = 4


def sequences(n: int, rows: int = 2, d: int = D) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((rows, n, d)).astype(np.float32)


def masked_attention(w: layers.Weights, x: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Full attention in float64, of whose weights those outside `seen` [n, n] are struck out."""
    x, w = x.astype(np.float64), {name: np.asarray(value, np.float64) for name, value in w.items()}
    scores = (x @ w["query"]) @ (x @ w["key"]).swapaxes(1, 2) / np.sqrt(x.shape[-1])
    weights = np.exp(scores) * seen
    return weights / weights.sum(axis=-1, keepdims=True) @ (x @ w["value"]) @ w["output"]


@settings(max_examples=5)
@given(n=st.integers(1, 23), side=st.integers(1, 9))
def test_restricted_attention_is_full_attention_with_the_far_ones_masked(n: int, side: int) -> None:
    w, x = layers.attention_weights(D), sequences(n)
    far = np.abs(np.arange(n)[:, None] - np.arange(n))
    ours = jax.jit(functools.partial(layers.restricted_self_attention, r=2 * side))(w, x)
    np.testing.assert_allclose(ours, masked_attention(w, x, far <= side), atol=1e-5)


def test_full_attention() -> None:
    w, x = layers.attention_weights(D), sequences(7)
    np.testing.assert_allclose(layers.self_attention(w, x), masked_attention(w, x, np.ones((7, 7))), atol=1e-5)


def plain_convolution(w: layers.Weights, x: np.ndarray, offsets: list[int]) -> np.ndarray:
    """Sum over the kernel's columns of what lies at these offsets, zero beyond the ends."""
    n = x.shape[1]
    expected = np.zeros_like(x)
    for i in range(n):
        for matrix, offset in zip(np.asarray(w["kernel"]), offsets, strict=True):
            if 0 <= i + offset < n:
                expected[:, i] += x[:, i + offset] @ matrix
    return expected


def test_convolutions() -> None:
    w, x = layers.convolution_weights(D, 5), sequences(11)
    expected = plain_convolution(w, x, [-2, -1, 0, 1, 2])
    np.testing.assert_allclose(layers.convolution(w, x), expected, atol=1e-5)
    expected = plain_convolution(w, x, [-12, -9, -6, -3, 0])
    np.testing.assert_allclose(layers.dilated_convolution(w, x, 3), expected, atol=1e-5)


def test_separable_convolution_is_a_convolution_whose_kernel_is_a_product() -> None:
    w, x = layers.separable_convolution_weights(D, 3), sequences(9)
    kernel = jnp.einsum("kd,de->kde", w["depth"], w["point"])
    np.testing.assert_allclose(layers.separable_convolution(w, x), layers.convolution({"kernel": kernel}, x), atol=1e-5)


def test_recurrent_layer_is_an_lstm() -> None:
    torch = pytest.importorskip("torch")
    w, x = layers.lstm_weights(D), sequences(6)
    peer = torch.nn.LSTM(D, D, bias=False, batch_first=True)
    # PyTorch has the candidate before the output gate.
    order = np.concatenate([np.arange(2 * D), np.arange(3 * D, 4 * D), np.arange(2 * D, 3 * D)])
    with torch.no_grad():
        peer.weight_ih_l0.copy_(torch.tensor(np.asarray(w["input"])[:, order].T))
        peer.weight_hh_l0.copy_(torch.tensor(np.asarray(w["state"])[:, order].T))
        expected, _ = peer(torch.tensor(x))
    np.testing.assert_allclose(jax.jit(layers.recurrent)(w, x), expected.numpy(), atol=1e-6)


def test_influence_of_a_kernel_is_a_band() -> None:
    kernel = functools.partial(layers.convolution, layers.convolution_weights(D, 5))
    distance = np.abs(np.arange(12)[:, None] - np.arange(12))
    np.testing.assert_array_equal(paths.influence(kernel, 12, D), distance <= 2)


def test_one_step_of_recurrence_hears_of_one_position_before() -> None:
    step = functools.partial(layers.recurrence, layers.lstm_weights(D))
    np.testing.assert_array_equal(paths.influence(step, 8, D), np.eye(8, dtype=bool) | np.eye(8, k=-1, dtype=bool))


def test_paths_have_the_length_that_geometry_says() -> None:
    n, k, r = 28, 3, 6
    found = {name: layer_types.find_path(stack, n) for name, stack in layer_types.stacks(k, r).items()}
    dilated = next(count for count in range(1, n) if k**count >= n)
    assert found == {
        "self-attention": 1,
        "recurrent": n - 1,
        "convolutional": n - 1,  # k = 3 reaches one position a layer
        "dilated convolution": dilated,
        "separable convolution": n - 1,
        "restricted self-attention": -(-(n - 1) // (r // 2)),
    }


def test_a_path_is_as_long_as_the_stack_that_first_connects_the_ends() -> None:
    n, r = 12, 4
    w = layers.attention_weights(D)

    def stack(count: int, x: jax.Array) -> jax.Array:
        for _ in range(count):
            x = layers.restricted_self_attention(w, x, r)
        return x

    length = layer_types.find_path(layer_types.stacks(3, r)["restricted self-attention"], n)
    assert not paths.influence(functools.partial(stack, length - 1), n, D)[-1, 0]
    assert paths.influence(functools.partial(stack, length), n, D)[-1, 0]


def test_layers_that_never_connect() -> None:
    with pytest.raises(ValueError, match="never hears"):
        paths.path_length([np.eye(3, dtype=bool)] * 3)


def test_exponents_and_crossings() -> None:
    sizes = [2.0, 4.0, 8.0, 16.0, 32.0]
    assert exponent(sizes, [5 * s**1.5 for s in sizes]) == pytest.approx(1.5)
    assert exponent(sizes, [1e6, 1, *(s**2 for s in sizes[2:])]) == pytest.approx(2)  # small ones don't count
    assert crossing(sizes, [s**2 for s in sizes], [7 * s for s in sizes]) == pytest.approx(7)
    assert crossing(sizes, sizes, [2 * s for s in sizes]) is None
    assert crossing(sizes, [9.0, 1, 9, 9, 1], [3.0] * 5) is None  # does not stay above
    assert crossing(sizes, [9.0, 1, 9, 1, 9], [3.0] * 5) == pytest.approx(16 * 2**0.5)


@pytest.fixture(scope="module")
def found() -> dict:
    return layer_types.measure((16, 64), (4, 8), k=3, r=4, rows=2, rounds=1, path_lengths=(4, 8))


def test_page_and_table(found: dict, read_page) -> None:
    page = read_page(layer_types.html(found))
    assert page.elements["svg"] == 6
    assert page.elements["table"] == 2
    assert "recurrent: 16 to 64" in page.text
    rows = {line.split("  ")[0]: line for line in layer_types.table(found).splitlines()}
    assert "O(r·n·d)" in rows["restricted self-attention"]


def test_flops_and_sequential_operations_are_read_off_the_programs(found: dict) -> None:
    n, d, k, r, rows = 64, 8, 3, 4, 2
    points = {p["kind"]: p for p in found["points"] if (p["n"], p["d"], p["way"]) == (n, d, "forward")}
    ends = 2  # of the kernel's products, those that would fall on zeros beyond an end
    assert {kind: round(p["gflop"] * 1e9) / (2 * rows) for kind, p in points.items()} == {
        "self-attention": 4 * n * d**2 + 2 * n**2 * d,
        "recurrent": 8 * n * d**2,
        "convolutional": (k * n - ends) * d**2,
        "separable convolution": k * n * d + n * d**2,
        "restricted self-attention": 4 * n * d**2 + 3 * n * r * d,
    }
    assert {kind: p["sequential_operations"] for kind, p in points.items() if p["sequential_operations"] > 1} == {
        "recurrent": n
    }


def test_flops_meet_where_the_table_says(found: dict) -> None:
    # 4nd² + 2n²d = 8nd² at n = 2d; between the sizes measured a power is assumed.
    assert [c["by_flops"] for c in found["crossings"]] == ["below 16", 16]
    json.dumps(found)
