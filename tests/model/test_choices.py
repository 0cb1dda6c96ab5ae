"""Each of the choices for a sub-layer against its formula, written out in NumPy in float64."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax import config
from t2t_jax.model import sublayers
from t2t_jax.model.choices import alibi, relative_bias
from t2t_jax.model.choices.experts import balance, places_taken
from t2t_jax.model.choices.rotary import Rotary

MODEL = config.Model(num_layers=1, d_model=16, d_ff=24, num_heads=4, d_k=4, d_v=6, max_positions=12, dropout=0.0)
RNG = np.random.default_rng(0)
ROWS, LENGTH = 3, 7
X = RNG.standard_normal((ROWS, LENGTH, 16)).astype(np.float32)
REAL = np.arange(LENGTH) < np.array([[7], [5], [2]])
CAUSAL = np.tril(np.ones((LENGTH, LENGTH), bool))
PLACE = np.arange(LENGTH)


def with_random_params(module, *arguments, seed=1, **keywords):
    """The module's jitted output, and its parameters as float64."""
    boxed = jax.eval_shape(lambda: module.init(jax.random.key(0), *arguments, **keywords))["params"]
    rng = np.random.default_rng(seed)
    params = jax.tree.map(lambda leaf: (0.3 * rng.standard_normal(leaf.shape)).astype(np.float32), nn.unbox(boxed))
    found = jax.jit(lambda params: module.apply({"params": params}, *arguments, **keywords))(params)
    return np.asarray(found), jax.tree.map(np.float64, params)


def softmax(x):
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_root_mean_square_normalisation():
    found, params = with_random_params(sublayers.norm(replace(MODEL, norm_kind="rms"), jnp.float32), X)
    expected = X / np.sqrt((X.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6) * params["scale"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


FUNCTIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "swish": lambda x: x * sigmoid(x),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
}


@pytest.mark.parametrize("activation", [*FUNCTIONS, "swiglu"])
def test_activations(activation):
    module = sublayers.feed_forward(replace(MODEL, activation=activation), jnp.float32)
    found, p = with_random_params(module, X, deterministic=True)
    if activation == "swiglu":
        expected = (FUNCTIONS["swish"](X @ p["w1"]) * (X @ p["w3"])) @ p["w2"]
    else:
        expected = FUNCTIONS[activation](X @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def turned(x):
    """Rotary's equation 15: each pair as a complex number, times exp(i m theta)."""
    theta = 10000.0 ** (-2 * np.arange(x.shape[-1] // 2) / x.shape[-1])
    pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * np.arange(x.shape[1])[:, None, None] * theta)
    return np.stack([pairs.real, pairs.imag], -1).reshape(x.shape)


def t5_bucket(distance, bidirectional, buckets, furthest):
    """T5's published code, for one distance (key less query)."""
    found = 0
    if bidirectional:
        buckets //= 2
        found += buckets * (distance > 0)
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return found + distance
    growth = np.log(np.float32(distance) / np.float32(exact)) / np.log(np.float32(furthest / exact))
    return found + min(exact + int(growth * np.float32(buckets - exact)), buckets - 1)


def bias_of(kind, table, causal, settings):
    """[H, n, n]."""
    after = PLACE - PLACE[:, None]
    if kind == "alibi":
        return -(0.25 ** np.arange(1, 5))[:, None, None] * np.abs(after)  # 2^-8/4, 2^-16/4, …
    if kind == "t5":
        sizes = not causal, settings.t5_buckets, settings.t5_max_distance
        return np.moveaxis(table[np.vectorize(lambda d: t5_bucket(d, *sizes))(after)], -1, 0)
    return np.zeros((1, LENGTH, LENGTH))


class Bound(nn.Module):
    """A self-attention with the positions it looks at, as a model owns them."""

    settings: config.Model
    side: str
    fused: str | None = None

    def setup(self):
        self.positions = sublayers.positions(self.settings)
        self.attention = sublayers.self_attention(self.settings, jnp.float32, self.fused, self.positions, self.side)

    def __call__(self, x, mask):
        return self.attention(x, *self.attention.keys_values(x), mask, deterministic=True)


def attended(settings, side, fused=None):
    """What the attention of one side gives, with its parameters and those of its positions."""
    mask = CAUSAL[None, None] if side == "decoder" else REAL[:, None, None]
    return with_random_params(Bound(settings, side, fused), X, mask)


ATTENTIONS = {
    "rotary": {"positions": "rotary"},
    "alibi": {"positions": "alibi"},
    "t5": {"positions": "t5", "t5_buckets": 8, "t5_max_distance": 5},
    "grouped": {"num_kv_heads": 2},
    "multi-query": {"num_kv_heads": 1},
    "window": {"encoder_attention": "window", "decoder_attention": "window", "attention_window": 3},
    "window of distances": {
        "encoder_attention": "window", "decoder_attention": "window", "attention_window": 2, "positions": "t5",
        "num_kv_heads": 2,
    },
}  # fmt: skip


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize(
    ("name", "fused"), [*((name, None) for name in ATTENTIONS), ("rotary", "blockwise"), ("t5", "blockwise")]
)
def test_attentions(name, fused, side):
    settings = replace(MODEL, **ATTENTIONS[name])
    found, params = attended(settings, side, fused)
    p = params["attention"]
    queries, keys, values = (np.einsum("bnd,dhk->bnhk", X, p[name]) for name in ("query", "key", "value"))
    if settings.positions == "rotary":
        queries, keys = turned(queries), turned(keys)
    expected = []
    for head in range(4):
        shared = head * keys.shape[2] // 4
        scores = np.einsum("bqk,bsk->bqs", queries[:, :, head], keys[:, :, shared]) / 2
        table = params.get("positions", {}).get(side)
        bias = bias_of(settings.positions, table, side == "decoder", settings)
        scores = scores + bias[head % len(bias)]
        hidden = ~CAUSAL if side == "decoder" else ~REAL[:, None]
        if settings.encoder_attention == "window":
            hidden = hidden | (abs(PLACE - PLACE[:, None]) >= settings.attention_window)
        weights = softmax(np.where(hidden, -1e9, scores))
        expected.append(np.einsum("bqs,bsv->bqv", weights, values[:, :, shared]))
    expected = np.einsum("hbqv,hvd->bqd", np.stack(expected), p["output"])
    seen = np.ones_like(REAL) if side == "decoder" else REAL  # a window over nothing but padding has no meaning
    np.testing.assert_allclose(found[seen], expected[seen], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize(
    "changes",
    [
        {"num_kv_heads": 4},
        {"encoder_attention": "window", "decoder_attention": "window", "attention_window": LENGTH},
        {"encoder_attention": "window", "decoder_attention": "window", "attention_window": 100},
    ],
)
def test_all_heads_or_the_whole_sequence_is_the_papers_attention(changes, side):
    (found, params), (papers, same) = attended(replace(MODEL, **changes), side), attended(MODEL, side)
    jax.tree.map(np.testing.assert_array_equal, params, same)
    np.testing.assert_allclose(found, papers, rtol=1e-6, atol=1e-5)


def test_rotary_products_depend_on_the_distance_alone():
    query, key = RNG.standard_normal((2, 1, 1, 1, 8)).astype(np.float32)
    turn = Rotary().turned
    products = [float(jnp.sum(turn(query, jnp.array([at])) * turn(key, jnp.array([at - 3])))) for at in (3, 10, 200)]
    np.testing.assert_allclose(products, products[0], rtol=1e-4)


def test_alibis_slopes_for_any_number_of_heads_are_the_published_ones():
    np.testing.assert_allclose(alibi.slopes(8), 2.0 ** -np.arange(1, 9))
    halves = 2.0 ** -np.arange(0.5, 8.5, 0.5)  # of sixteen heads
    np.testing.assert_allclose(alibi.slopes(12), [*halves[1::2], *halves[0:8:2]])


@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (8, 20), (4, 3)])
def test_t5s_buckets_at_every_distance(buckets, furthest):
    distances = np.arange(400)
    ours = relative_bias.buckets(distances, buckets, furthest)
    np.testing.assert_array_equal(ours, [t5_bucket(-d, False, buckets, furthest) for d in distances])


def test_linformer_mixes_positions_before_it_attends():
    settings = replace(MODEL, encoder_attention="linformer", linformer_length=5)
    found, params = attended(settings, "encoder")
    p = params["attention"]
    queries, keys, values = (np.einsum("bnd,dhk->bnhk", X, p[name]) for name in ("query", "key", "value"))
    keys, values = (
        np.einsum("ns,bshk->bnhk", p[f"length_{name}"][:, :LENGTH], side * REAL[..., None, None])
        for name, side in (("keys", keys), ("values", values))
    )
    weights = softmax(np.einsum("bqhk,bnhk->bhqn", queries, keys) / 2)
    expected = np.einsum("bhqn,bnhv,hvd->bqd", weights, values, p["output"])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def mixture(experts=4, picks=2, capacity=1.0, deterministic=False, **changes):
    """What a mixture gives for X, its parameters, and what it sows."""
    settings = replace(MODEL, experts=experts, experts_per_token=picks, expert_capacity=capacity, **changes)
    module = sublayers.feed_forward(settings, jnp.float32)
    _, params = with_random_params(module, X, REAL, deterministic=True)
    run = jax.jit(
        lambda params: module.apply(
            {"params": params}, X, REAL, deterministic=deterministic, mutable=["balance"],
            rngs={"dropout": jax.random.key(0)},
        )
    )  # fmt: skip
    found, sown = run(jax.tree.map(np.float32, params))
    return np.asarray(found), params, sown


def expert(p, e, x):
    w1, b1, w2, b2 = (p["experts"][name][e] for name in ("w1", "b1", "w2", "b2"))
    return np.maximum(x @ w1 + b1, 0) @ w2 + b2


@pytest.mark.parametrize("picks", [1, 2])
@pytest.mark.parametrize("capacity", [0.6, 1.0, None])
def test_a_mixture_serves_positions_in_turn_until_experts_are_full(picks, capacity):
    """Without a capacity it is what translating does: everybody is served."""
    found, p, sown = mixture(4, picks, capacity or 1.0, deterministic=capacity is None)
    probabilities = softmax(X @ p["router"])
    expected, passed_by, counts, sums = np.zeros_like(X), 0, np.zeros(4), np.zeros(4)
    for b in range(ROWS):
        taken = np.zeros(4, int)
        for n in range(LENGTH if capacity is None else REAL[b].sum()):
            room = math.inf if capacity is None else math.ceil(capacity * picks * (n + 1) / 4)
            order = np.argsort(-probabilities[b, n])[:picks]
            gates = probabilities[b, n, order] / (probabilities[b, n, order].sum() if picks > 1 else 1)
            sums += probabilities[b, n]
            for e, gate in zip(order, gates, strict=True):
                counts[e] += 1
                if taken[e] < room:
                    expected[b, n] += gate * expert(p, e, X[b, n])
                    taken[e] += 1
                else:
                    passed_by += 1
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    if capacity is None:
        assert not sown
        return
    assert passed_by or capacity == 1.0
    evenness = 4 * np.sum(counts / counts.sum() * sums / REAL.sum())
    np.testing.assert_allclose(sown["balance"]["loss"][0], evenness, rtol=1e-5)


def test_who_is_served_does_not_tell_how_much_is_to_come():
    """A decoder that saw it would learn from it where sentences end, and be lost where everybody is served."""
    settings = replace(MODEL, experts=2, experts_per_token=1, expert_capacity=1.0)
    module = sublayers.feed_forward(settings, jnp.float32)
    x, everywhere = np.repeat(X[:, :1], 12, axis=1), np.ones((ROWS, 12), bool)  # all ask for the same expert
    _, params = with_random_params(module, x, everywhere, deterministic=True)

    def served(length):
        real = everywhere & (np.arange(12) < length)
        apply = jax.jit(
            lambda params: module.apply(
                {"params": params}, x, real, deterministic=False, mutable=["balance"],
                rngs={"dropout": jax.random.key(0)},
            )[0]
        )  # fmt: skip
        return np.any(np.asarray(apply(jax.tree.map(np.float32, params))) != 0, axis=-1)

    whole = served(12)
    np.testing.assert_array_equal(whole, np.tile([True, False], (ROWS, 6)), "every second, to the end")
    for length in range(1, 12):
        np.testing.assert_array_equal(served(length), whole & (np.arange(12) < length))


@pytest.mark.parametrize("length", [25, 32])
def test_room_is_exact_and_the_same_however_much_padding_there_is(length):
    """1.2 x 25 / 2 is 15, but 0.6 in float32 times 25 lies above."""
    settings = replace(MODEL, experts=2, experts_per_token=1, expert_capacity=1.2)
    module = sublayers.feed_forward(settings, jnp.float32)
    x, real = np.repeat(X[:, :1], length, axis=1), np.arange(length) < np.full((ROWS, 1), 25)  # all ask for one expert
    _, params = with_random_params(module, x, real, deterministic=True)
    found, _ = module.apply(
        {"params": params}, x, real, deterministic=False, mutable=["balance"], rngs={"dropout": jax.random.key(0)}
    )
    served = np.any(np.asarray(found) != 0, axis=-1)
    np.testing.assert_array_equal(served.sum(axis=1), np.full(ROWS, 15))


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.3, 0.625, 1.0, 1.7]))
def test_places_are_taken_in_turn(seed, share):
    rng = np.random.default_rng(seed)
    asked = rng.random((2, 17, 3)) < rng.random(3)
    most = np.ceil(share * np.cumsum(rng.random((2, 17)) < 0.8, axis=1)).astype(np.float32)
    expected, taken = np.zeros(asked.shape), np.zeros((2, 3))
    for n in range(17):
        taken = taken + (asked[:, n] & (taken < most[:, n, None]))
        expected[:, n] = taken
    np.testing.assert_array_equal(places_taken(asked.astype(np.float32), most), expected)


@pytest.mark.parametrize("deterministic", [True, False])
def test_one_expert_is_the_dense_network(deterministic):
    found, p, _ = mixture(1, 1, deterministic=deterministic)
    dense = expert(p, 0, X)
    np.testing.assert_allclose(found[REAL], dense[REAL], rtol=1e-5, atol=1e-5)


def test_even_picks_have_the_least_balance():
    p = np.full((1, 4, 4), 0.25, np.float32)
    picked = np.eye(4, dtype=np.float32)[None, :, None]
    assert balance(p, picked, np.ones((1, 4), bool)) == pytest.approx(1)
    p, picked = (np.tile(a[:, :1], (1, 4, *[1] * (a.ndim - 2))) for a in (np.eye(4, dtype=np.float32)[None], picked))
    assert balance(p, picked, np.ones((1, 4), bool)) == pytest.approx(4)
