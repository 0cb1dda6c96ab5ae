"""With every choice at its default, the programs are those from before there were choices, to the letter.

The text of a program, as JAX gives it to the compiler, does not depend on the machine; equal programs compute equal
bits. It does depend on the version of JAX, so the hashes below, taken at the commit before the first choice, are
compared under that version alone.
"""

import functools
import hashlib
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax import config, model
from t2t_jax.data.pipeline import Batch
from t2t_jax.training.optimizer import make_optimizer
from t2t_jax.training.state import TrainState, abstract_params
from t2t_jax.training.step import make_train_step

WRITTEN_BY = "0.10.2"
VOCABULARY = 11  # 16 with the filling rows
MODEL = config.Model(num_layers=2, d_model=16, d_ff=24, num_heads=2, attention_dropout=0.1, vocabulary_multiple=8)
SETTINGS = {
    "paper": MODEL,
    "pre-norm, learned": replace(MODEL, norm="pre", positions="learned", max_positions=12, relu_dropout=0.1),
    "Marian": replace(MODEL, biases="all", activation="swish", sinusoid_layout="concatenated", d_k=4, d_v=12),
}
BEFORE = {"paper": "b892348869f6f456", "pre-norm, learned": "4a1f6836b879c3f1", "Marian": "88b8fd5105aa17f4"}


def programs(settings: config.Model) -> str:
    """Fresh parameters, a training step with dropout, and a step of a search, as StableHLO."""
    transformer, adam = model.build(settings, VOCABULARY), make_optimizer(config.Optimizer(), settings.d_model)
    token = jnp.ones((1, 1), jnp.int32)
    init = functools.partial(transformer.init, deterministic=True)
    params = abstract_params(transformer)
    state = TrainState(jax.ShapeDtypeStruct((), np.int32), params, jax.eval_shape(adam.init, params))
    batch = Batch(jax.ShapeDtypeStruct((3, 7), np.int32), jax.ShapeDtypeStruct((3, 5), np.int32))

    def search(params, source, tokens, index, writers):
        run = functools.partial(transformer.apply, {"params": params})
        memory = run(source, deterministic=True, method="encode")
        cache = run(memory, source != 0, 2, 6, method="start_cache").lengthened(16)
        return run(tokens, index, writers, cache, method="decode_step")

    sizes = ((3, 7), (3, 2), (), (3, 2, 8))
    given = [jax.ShapeDtypeStruct(size, np.int32) for size in sizes]
    lowered = (
        jax.jit(init).lower(jax.random.key(0), token, token),
        jax.jit(make_train_step(transformer, adam, config.Training())).lower(state, batch),
        jax.jit(search).lower(params, *given),
    )
    return "\n".join(program.as_text() for program in lowered)


@pytest.mark.skipif(jax.__version__ != WRITTEN_BY, reason=f"the hashes are of programs as JAX {WRITTEN_BY} writes them")
@pytest.mark.parametrize("name", SETTINGS)
def test_programs_are_those_from_before(name: str) -> None:
    assert hashlib.sha256(programs(SETTINGS[name]).encode()).hexdigest()[:16] == BEFORE[name]
