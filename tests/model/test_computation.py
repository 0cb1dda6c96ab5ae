"""Ways to compute the same model: a fused attention, and layers computed again instead of kept."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax import config, model
from t2t_jax.config import Data, Experiment, Training
from t2t_jax.errors import ConfigError
from t2t_jax.model import Transformer
from t2t_jax.training import loop

MODEL = config.Model(num_layers=2, d_model=16, d_ff=64, num_heads=2, dropout=0.2, relu_dropout=0.1)
RNG = np.random.default_rng(0)
SOURCE, TARGET = (
    np.where(np.arange(length) < RNG.integers(1, length, (20, 1)), RNG.integers(3, 12, (20, length)), 0)
    for length in (40, 30)
)


def gradient_of(transformer: Transformer, params, deterministic: bool):
    """The loss's gradient, and the FLOPs of the program that computes it."""

    def total(params):
        rngs = {"dropout": jax.random.key(0)}
        logits = transformer.apply({"params": params}, SOURCE, TARGET, deterministic=deterministic, rngs=rngs)
        return jnp.sum(jnp.where(TARGET[..., None] > 0, jax.nn.log_softmax(logits), 0))

    compiled = jax.jit(jax.value_and_grad(total)).lower(params).compile()
    return compiled(params), compiled.cost_analysis()["flops"]


def assert_same(first, second, tolerance):
    for a, b in zip(*map(jax.tree.leaves, (first, second)), strict=True):
        assert np.abs(a - b).max() <= tolerance * np.abs(b).max()


def test_a_fused_attention_is_the_attention_of_the_paper(random_params):
    """JAX's own reference implementation stands in for the kernel, which has the same meaning and needs a GPU."""
    plain = model.build(MODEL, 12)
    params = random_params(plain)
    (fused, _), (ours, _) = (gradient_of(t, params, True) for t in (plain.clone(fused="xla"), plain))
    assert_same(fused, ours, 2e-5)


@pytest.mark.parametrize("changes", [{}, {"num_layers": 1, "positions": "t5", "experts": 2}])
def test_layers_computed_again_give_the_same_gradient_dropout_included(changes, random_params):
    settings = replace(MODEL, **changes)
    again = model.build(settings, 12, training=Training(rematerialise=True))
    params = random_params(again)
    (first, repeated), (second, once) = (gradient_of(t, params, False) for t in (again, model.build(settings, 12)))
    assert_same(first, second, 1e-5)
    assert repeated > 1.1 * once, "the layers' products are done again"


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"training": Training(attention_kernel="cudnn", compute_dtype="bfloat16"),
          "model": replace(MODEL, attention_dropout=0.1)}, "attention_dropout=0.1 must be 0"),
        ({"training": Training(attention_kernel="cudnn", compute_dtype="bfloat16"),
          "model": replace(MODEL, d_k=12, d_v=12)}, "multiple of 8 up to 128, not 12 and 12"),
    ],
)  # fmt: skip
def test_what_the_kernel_cannot_do_is_said(changed, complaint):
    with pytest.raises(ConfigError, match=complaint):
        Experiment(**changed)


def test_float32_is_refused_for_the_kernel():
    with pytest.raises(ConfigError, match="needs compute_dtype='bfloat16'"):
        Training(attention_kernel="cudnn")


def test_without_a_gpu_the_kernel_is_refused_before_anything_is_written(tmp_path):
    training = Training(attention_kernel="cudnn", compute_dtype="bfloat16")
    with pytest.raises(ConfigError, match="is for NVIDIA GPUs"):
        loop.train(Experiment(model=MODEL, data=Data(source="embedded"), training=training), tmp_path / "run")
    assert not (tmp_path / "run").exists()
