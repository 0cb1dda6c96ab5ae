import jax
import numpy as np
import pytest

from t2t_jax import config, model
from t2t_jax.config import Mesh
from t2t_jax.errors import ConfigError
from t2t_jax.parallel import mesh as meshes
from t2t_jax.training.optimizer import make_optimizer
from t2t_jax.training.state import abstract_state


class Device:
    """Stands for a device that this machine has not got; only its place in a mesh is looked at."""

    def __init__(self, number: int):
        self.id = number


DEVICES = [Device(i) for i in range(8)]


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        (Mesh(), (8, 1, 1)),
        (Mesh(2, 2, 2), (2, 2, 2)),
        (Mesh(1, -1, 2), (1, 4, 2)),
        (Mesh(1, 1, -1), (1, 1, 8)),
    ],
)
def test_sizes_become_axes(sizes: Mesh, shape: tuple[int, ...], monkeypatch) -> None:
    monkeypatch.setattr(meshes, "Mesh", lambda devices, axes: (devices.shape, axes))
    assert meshes.make_mesh(sizes, DEVICES) == (shape, ("data", "fsdp", "tensor"))  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [Mesh(3, 1, 1), Mesh(2, 2, 1), Mesh(-1, 3, 1), Mesh(16, 1, 1)])
def test_sizes_that_do_not_fit_are_named(sizes: Mesh) -> None:
    with pytest.raises(ConfigError, match=f"data={sizes.data}, fsdp={sizes.fsdp}.*8 devices"):
        meshes.make_mesh(sizes, DEVICES)  # type: ignore[arg-type]


def test_placing_adds_dead_rows_up_to_a_multiple() -> None:
    mesh = meshes.make_mesh(Mesh(), jax.devices()[:1])
    array = np.arange(10, dtype=np.int32).reshape(5, 2)
    placed = np.asarray(meshes.place(array, mesh, 4))
    assert placed.shape == (8, 2)
    np.testing.assert_array_equal(placed[:5], array)
    assert not placed[5:].any()
    np.testing.assert_array_equal(np.asarray(meshes.place(array, mesh, 5)), array)


@pytest.mark.parametrize(
    ("sizes", "changes", "named"),
    [
        ((1, 1, 16), {}, "tensor=16 does not divide model.num_heads=8"),
        ((1, 1, 3), {"num_heads": 6, "d_model": 192}, "tensor=3 does not divide model.vocabulary_multiple's.* 512"),
        ((2, 1, 4), {"d_ff": 258}, "tensor=4 does not divide model.d_ff=258"),
        ((1, 3, 1), {}, "fsdp=3 does not divide model.d_model=128"),
    ],
)
def test_a_mesh_that_does_not_divide_the_model_is_refused_with_both_numbers(sizes, changes, named) -> None:
    settings = {"num_layers": 1, "d_model": 128, "d_ff": 384, "num_heads": 8} | changes
    transformer = model.build(config.Model(**settings), 500)
    mesh = jax.sharding.AbstractMesh(sizes, meshes.AXES)
    with pytest.raises(ConfigError, match=f"^mesh: {named}"):
        abstract_state(transformer, make_optimizer(config.Optimizer(), 128), mesh)  # type: ignore[arg-type]
