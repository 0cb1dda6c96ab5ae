"""What several tests share: Hypothesis's settings, and random parameters that cost no compilation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import settings

from t2t_jax.model import Transformer
from t2t_jax.parallel.platform import choose_platform
from t2t_jax.training.state import Params, abstract_params

# As every command does: the package that compiles for TPUs may be installed, and there is no TPU.
choose_platform()

# A busy machine is no failure, and a failure must come back when the tests are run again.
settings.register_profile("t2t_jax", deadline=None, derandomize=True)
settings.load_profile("t2t_jax")


@pytest.fixture(scope="session")
def random_params():
    """A function from a model to parameters of which none has a special value, the filling rows apart."""

    def make(transformer: Transformer, seed: int = 0) -> Params:
        rng = np.random.default_rng(seed)

        def fill(path, leaf: jax.ShapeDtypeStruct) -> jax.Array:
            offset = float(path[-1].key == "scale")
            return jnp.asarray(offset + 0.3 * rng.standard_normal(leaf.shape), leaf.dtype)

        params = jax.tree_util.tree_map_with_path(fill, abstract_params(transformer))
        return params | {"embedding": params["embedding"].at[transformer.vocabulary_size :].set(0)}

    return make
