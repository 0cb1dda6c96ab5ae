"""The models of one stack against their formulas in NumPy, a sentence at a time and without any padding."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from t2t_jax import config, model
from t2t_jax.symbols import BOS_ID, PAD_ID

VOCABULARY = 11
SOURCE = np.array([[5, 7, 3, 0, 0], [6, 8, 9, 4, 3]])
TARGET = np.array([[4, 10, 6, 3], [9, 3, 0, 0]])
PLAIN = config.Model(num_layers=2, d_model=8, d_ff=12, num_heads=2, vocabulary_multiple=1, max_positions=9)
HALF = 4 // 2


def softmax(x):
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def normalised(p, x):
    (p,) = p.values() if "norm" not in p else (p,)
    p = p["norm"]
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) * p["scale"] + p["bias"]


def added(settings, p, count):
    """Section 3.5's sinusoids, or the learned rows, or nothing."""
    if settings.positions == "learned":
        return p["positions"]["table"][:count]
    if settings.positions == "rotary":
        return 0
    angles = np.arange(count)[:, None] / 10000 ** (np.arange(0, 8, 2) / 8)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(count, 8)


def turned(settings, x):
    if settings.positions != "rotary":
        return x
    pairs = x[..., 0::2] + 1j * x[..., 1::2]
    pairs = pairs * np.exp(1j * np.arange(len(x))[:, None, None] * 10000.0 ** (-np.arange(HALF) / HALF))
    return np.stack([pairs.real, pairs.imag], axis=-1).reshape(x.shape)


def layer(settings, p, x, *, causal):
    """Self-attention and the feed-forward network with their residuals, x [n, D]."""

    def attend(x):
        a = p["self_attention"]
        q, k, v = (np.einsum("nd,dhk->nhk", x, a[name]) for name in ("query", "key", "value"))
        q, k = turned(settings, q), turned(settings, k)
        k, v = (np.repeat(side, 2 // side.shape[1], axis=1) for side in (k, v))
        scores = np.einsum("qhk,shk->hqs", q, k) / np.sqrt(4)
        hidden = np.triu(np.ones((len(x), len(x)), bool), 1) & causal
        return np.einsum("hqs,shv,hvd->qd", softmax(np.where(hidden, -np.inf, scores)), v, a["output"])

    def transform(x):
        f = p["feed_forward"]
        return np.maximum(x @ f["w1"] + f["b1"], 0) @ f["w2"] + f["b2"]

    for place, sublayer in enumerate((attend, transform)):
        norm = p[f"residuals_{place}"]
        x = x + sublayer(normalised(norm, x)) if settings.norm == "pre" else normalised(norm, x + sublayer(x))
    return x


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm": "pre", "positions": "learned"}, {"positions": "rotary", "num_kv_heads": 1}],
    ids=["sinusoidal", "pre, learned", "rotary, multi-query"],
)
def test_a_decoder_alone_goes_on_from_the_source(changes, random_params):
    settings = replace(PLAIN, family="decoder", **changes)
    module = model.build(settings, VOCABULARY)
    params = random_params(module)
    logits = jax.jit(lambda p: module.apply({"params": p}, SOURCE, TARGET, deterministic=True))(params)
    p = jax.tree.map(np.float64, params)
    for source, target, found in zip(SOURCE, TARGET, logits, strict=True):
        source, target = source[source != PAD_ID], target[target != PAD_ID]
        tokens = [*source, BOS_ID, *target[:-1]]
        x = p["embedding"][tokens] * 8**0.5 + added(settings, p, len(tokens))
        for i in range(2):
            x = layer(settings, p[f"decoder_{i}"], x, causal=True)
        x = normalised(p["decoder_norm"], x) if settings.norm == "pre" else x
        expected = x[len(source) :] @ p["embedding"].T
        np.testing.assert_allclose(found[: len(target)], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "positions": "rotary"}], ids=["sinusoidal", "pre, rotary"])
def test_an_encoder_alone_sees_both_sides(changes, random_params):
    settings = replace(PLAIN, family="encoder", **changes)
    module = model.build(settings, VOCABULARY)
    params = random_params(module)
    logits = jax.jit(lambda p: module.apply({"params": p}, SOURCE, SOURCE, deterministic=True))(params)
    p = jax.tree.map(np.float64, params)
    for source, found in zip(SOURCE, logits, strict=True):
        source = source[source != PAD_ID]
        x = p["embedding"][source] * 8**0.5 + added(settings, p, len(source))
        for i in range(2):
            x = layer(settings, p[f"encoder_{i}"], x, causal=False)
        x = normalised(p["encoder_norm"], x) if settings.norm == "pre" else x
        np.testing.assert_allclose(found[: len(source)], x @ p["embedding"].T, rtol=1e-5, atol=1e-5)


def test_a_classifier_of_patches(random_params):
    settings = replace(PLAIN, family="vision", image_size=4, image_levels=5, norm="pre", positions="learned")
    module = model.build(settings, VOCABULARY)
    params = random_params(module)
    image = np.random.default_rng(0).integers(4, 4 + 5, (4, 4))
    source = np.array([[*image.reshape(-1), 3], [0] * 17])
    run = jax.jit(lambda p, target: module.apply({"params": p}, source, target, deterministic=True))
    logits, others = (run(params, np.array([target, target])) for target in ([5, 3], [9, 3]))
    p = jax.tree.map(np.float64, params)
    patches = [image[i : i + 2, j : j + 2].reshape(-1) for i in (0, 2) for j in (0, 2)]
    x = np.stack([p["class"], *((patch - 4) / 4 @ p["patch"] for patch in patches)])
    x = x * 8**0.5 + p["positions"]["table"][:5]
    for i in range(2):
        x = layer(settings, p[f"encoder_{i}"], x, causal=False)
    expected = np.stack([normalised(p["encoder_norm"], x)[0], p["end"]]) @ p["embedding"].T
    np.testing.assert_allclose(logits[0], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(logits, others)  # what comes out does not depend on what is asked for

    @jax.jit
    def step_by_step(params):
        def call(*given, **options):
            return module.apply({"params": params}, *given, **options)

        memory = call(source, deterministic=True, method="encode")
        cache = call(memory, source != PAD_ID, 3, 2, method="start_cache").lengthened(9)
        tokens, writers = np.full((2, 3), 5), np.zeros((2, 3, 3), int)
        return [call(tokens, np.asarray(t), writers, cache, method="decode_step")[0] for t in range(2)]

    for t, found in enumerate(step_by_step(params)):
        np.testing.assert_allclose(found, np.repeat(logits[:, t : t + 1], 3, axis=1), rtol=1e-5, atol=1e-5)
