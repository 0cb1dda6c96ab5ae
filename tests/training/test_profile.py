"""Where the time went, from a trace: of made-up instructions, and of a real run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from t2t_jax.config import Data, Experiment, Model, Training
from t2t_jax.training import loop, profile
from t2t_jax.training.profile import OTHER, PARTS, Timed, part_of, paths_of, table, timed

HLO = """
ENTRY %main {
  %dot.1 = f32[4,4]{1,0} dot(%a, %b), metadata={op_name="jit(train_step)/jvp(decoder_0)/feed_forward/dot_general"}
  fusion.2 = f32[] fusion(%c), metadata={op_name="jit(train_step)/transpose(jvp(loss))/sub" stack_frame_id=3}
  ROOT %copy.3 = f32[] copy(%d)
}
"""


def test_paths_are_read_from_hlo() -> None:
    assert paths_of(HLO) == {
        "dot.1": "jit(train_step)/jvp(decoder_0)/feed_forward/dot_general",
        "fusion.2": "jit(train_step)/transpose(jvp(loss))/sub",
    }


def test_time_is_divided_by_part_and_direction_with_each_steps_own_program() -> None:
    mine, other = paths_of(HLO), {"dot.1": "jit(train_step)/optimizer/add"}
    events = [
        Timed("dot.1", 4e6, begun=10, execution=7),
        Timed("fusion.2", 2e6, begun=11, execution=7),
        Timed("copy.3", 1e6, begun=12, execution=7),
        Timed("dot.1", 3e6, begun=5, execution=9),  # an earlier execution, of the other program
    ]
    rows = {line[:34].strip(): line[34:].split() for line in table(events, [other, mine]).splitlines() if line[34:]}
    assert rows["feed-forward network"] == ["2.00", "0.00", "40.0%"]
    assert rows["logits and loss"] == ["0.00", "1.00", "20.0%"]
    assert rows["Adam"] == ["1.50", "0.00", "30.0%"]
    assert rows[OTHER] == ["0.50", "0.00", "10.0%"]
    assert rows["together"] == ["4.00", "1.00"]


class Line(NamedTuple):
    """As JAX's profiler has them."""

    events: list[Any]


class Plane(NamedTuple):
    name: str
    lines: list[Line]


def test_instructions_are_those_of_one_device_that_has_any() -> None:
    def plane(name: str, *instructions: str) -> Plane:
        at = {"duration_ns": 5.0, "start_ns": 7.0}
        events = [SimpleNamespace(stats=[("hlo_op", one), ("run_id", 3)], **at) for one in instructions]
        return Plane(name, [Line([SimpleNamespace(stats=[("step", 1)], **at), *events])])

    host, none = plane("/host:CPU", "dot.1"), plane("/device:CUSTOM:Megascale Trace")
    first, second = (plane(f"/device:GPU:{i}", f"fusion.{i}") for i in range(2))
    assert timed(SimpleNamespace(planes=[none, host])) == [Timed("dot.1", 5.0, 7.0, 3)]
    assert timed(SimpleNamespace(planes=[host, none, second, first])) == [Timed("fusion.0", 5.0, 7.0, 3)]
    assert timed(SimpleNamespace(planes=[none])) == []


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("jvp(decoder_1)/decoder_1._rest/residuals_1/cross_attention/dot_general", "attention over the source"),
        ("jvp(decoder_1)/decoder_1._rest/residuals_2/LayerNorm_0/norm/mul", "layer normalisation"),
        ("jvp(decoder_1)/decoder_1._rest/residuals_2/add", "residual connections"),
        ("", OTHER),
    ],
)
def test_a_path_belongs_to_a_part(path: str, part: str) -> None:
    assert part_of(path) == part


def test_a_real_run_is_traced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = Experiment(
        name="profiled",
        model=Model(num_layers=1, d_model=32, d_ff=64, num_heads=2),
        data=Data(source="embedded", vocabulary_size=600, max_length=64, max_shapes=2, store=str(tmp_path / "data")),
        training=Training(num_steps=16, checkpoint_every=16, average_last=1),
    )
    seen: list[tuple[list[Timed], Sequence[Mapping[str, str]]]] = []

    def watched(events: list[Timed], paths: Sequence[Mapping[str, str]]) -> str:
        seen.append((events, paths))
        return table(events, paths)

    monkeypatch.setattr(profile, "table", watched)
    loop.train(experiment, tmp_path / "run", profile=True)
    text = (tmp_path / "run" / "profile" / "where_time_went.txt").read_text()
    assert text.rstrip() in capsys.readouterr().err
    rows = {line[:34].strip(): line[34:].split() for line in text.splitlines()}
    for part in PARTS:
        assert part in rows and float(rows[part][0]) > 0, text

    # Counted and not timed: one instruction that waits for a busy core can outlast all others.
    [(events, paths)] = seen
    executions = list(dict.fromkeys(event.execution for event in sorted(events, key=lambda event: event.begun)))
    assert len(executions) == len(paths)
    named = sum(part_of(paths[executions.index(e.execution)].get(e.instruction, "")) != OTHER for e in events)
    assert named > len(events) * 2 / 3, "most instructions belong to a part"
