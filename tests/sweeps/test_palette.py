"""Rows have the colour of what they vary."""

from pathlib import Path

from t2t_jax.experiment_file import load_sweep
from t2t_jax.sweeps import palette, rows, table

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def kinds(name: str, folder: Path) -> dict[str, str | None]:
    planned = rows.plan_rows(name, folder / name, load_sweep(EXPERIMENTS / f"{name}.py"))
    found = table.collect(planned)
    assert {palette.hue(result, found.base) for result in found.results} <= palette.LIGHT.keys()
    told = {result.name: palette.kind(result, found.base) for result in found.results}
    assert [kind for kind, _ in palette.legend(found)] == [*dict.fromkeys(kind for kind in told.values() if kind)]
    return told


def test_the_lineage_has_a_colour_a_kind_of_choice(tmp_path: Path) -> None:
    feed_forward = "feed-forward network"
    assert kinds("lineage", tmp_path) == {
        "base": None,
        **dict.fromkeys(("pre-norm", "RMSNorm"), "normalisation"),
        **dict.fromkeys(("GELU", "SwiGLU", "mixture of experts"), feed_forward),
        **dict.fromkeys(("learned positions", "rotary", "ALiBi", "T5 relative bias"), "positions"),
        **dict.fromkeys(("grouped-query", "multi-query", "window", "Linformer", "Performer"), "attention"),
        **dict.fromkeys(("LSTM", "GRU", "ConvS2S"), "family"),
        **dict.fromkeys(("attention dropout=0", "blockwise", "together"), None),
    }


def test_table_3_has_a_colour_a_column(tmp_path: Path) -> None:
    found = kinds("table3", tmp_path)
    assert {name[0]: kind for name, kind in found.items() if name[0] in "AE"} == {"A": "heads", "E": "positions"}
    assert found["C d_ff=1024"] == "d_ff" and found["C N=2"] == "layers" and found["big"] is None
