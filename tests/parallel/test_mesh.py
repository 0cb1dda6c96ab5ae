import jax
import numpy as np
import pytest

from t2t_jax.config import Mesh
from t2t_jax.errors import ConfigError
from t2t_jax.parallel import mesh as meshes


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


def test_rows_are_filled_up_to_a_multiple() -> None:
    mesh = meshes.make_mesh(Mesh(), jax.devices()[:1])
    array = np.arange(16, dtype=np.int32).reshape(8, 2)
    rows = meshes.Rows(mesh, parts=4)
    np.testing.assert_array_equal(rows.local(5), np.arange(8))
    np.testing.assert_array_equal(np.asarray(rows.place(array, 5)), array)
    np.testing.assert_array_equal(rows.local(8), np.arange(8))
    np.testing.assert_array_equal(meshes.Rows(mesh).local(5), np.arange(5))
