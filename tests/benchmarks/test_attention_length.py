"""What attentions cost by length: that what is measured is the layer, and that page and table say what was found."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import attention_length, page
from benchmarks.attention_length import KINDS, WAYS, attention, compile_attention

LENGTHS = [128, 256, 512]


@pytest.mark.parametrize("name", KINDS)
def test_a_layer_from_n_vectors_to_n_vectors(name: str) -> None:
    apply, params = attention(KINDS[name], 256)
    x = jax.random.normal(jax.random.key(0), (1, 130, 256))
    y = apply(params, x)
    assert y.shape == x.shape and bool(jnp.isfinite(y).all())
    alone = apply(params, x[:, :1])  # one position's values are what it finds, whatever the weights
    if KINDS[name].exact and name != "grouped-query":
        groups = params["value"].shape[1]
        values = np.repeat(np.einsum("bnd,dhv->bnhv", x[:, :1], params["value"]), 8 // groups, axis=2)
        np.testing.assert_allclose(alone, np.einsum("bnhv,hvd->bnd", values, params["output"]), atol=1e-4)


def test_memory_grows_as_it_promises() -> None:
    def growth(name: str) -> float:
        small, large = (compile_attention(KINDS[name], n, 1024, backward=True).temporaries for n in (512, 1024))
        return large / small

    assert growth("full") > 3.3
    assert growth("blockwise") < 2.3


def test_what_needs_too_much_memory_is_told_and_not_run(monkeypatch: pytest.MonkeyPatch, read_page) -> None:
    monkeypatch.setattr(attention_length, "KINDS", {"full": KINDS["full"]})
    lengths = (32, 64, 128)
    limit = compile_attention(KINDS["full"], 64, 128, backward=True).temporaries
    for memory, run in ((limit, [32, 64]), (0, [])):
        found = attention_length.measure(lengths, 1, memory)
        assert all(point["temporaries"] > 0 for point in found["points"]) and len(found["points"]) == 6
        assert sorted(p["n"] for p in found["points"] if "seconds" in p and p["way"] == "training") == run
    read = read_page(attention_length.html(found))
    assert "6 programs above 0 GiB" in read.text and "nothing was run" in read.text
    assert read.elements["svg"] == 4, "without times only memory is drawn"


def made_up() -> dict:
    """The full attention's time grows with the square and the others' with the length; they meet at 256."""
    points = [
        {"kind": kind, "n": n, "way": way, "temporaries": 2**20 * n * (n if kind == "full" else 256)}
        for kind in KINDS
        for n in LENGTHS
        for way in WAYS
    ]
    for point in points:
        if (point["kind"], point["n"], point["way"]) != ("Linformer", 512, "training"):
            seconds = point["temporaries"] / 1e9
            point |= {"seconds": seconds, "fastest_seconds": seconds, "slowest_seconds": seconds}
    return {
        "facts": page.circumstances(),
        "warning": "Busy.",
        "lengths": LENGTHS,
        "memory_limit": 2**33,
        "points": points,
    }


def test_page_and_table(read_page) -> None:
    found = made_up()
    read = read_page(attention_length.html(found))
    assert read.elements["svg"] == 8
    assert "full n^2.00, blockwise n^1.00" in read.text
    assert "more than 8 GiB" in read.text and "Busy." in read.text
    assert attention_length.overtakes(found, "seconds", "window", "training") == "256"
    assert attention_length.overtakes(found, "seconds", "Linformer", "training") == "not up to 256"
    lines = [line for line in attention_length.table(found).splitlines() if line.startswith("Linformer")]
    assert ["not run" in line for line in lines] == [False, True, False, False]
    json.dumps(found)
