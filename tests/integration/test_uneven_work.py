"""Whatever the number of lines, devices and processes: one answer a line, the same one, in order."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes import Group

COUNTS = (1, 7, 1001)
TRANSLATE = """
import json, sys
from pathlib import Path
from t2t_jax.parallel.processes import Processes, connected
with connected(Processes()) as channel:
    import jax
    from t2t_jax.config import Decoding
    from t2t_jax.decoding.translator import Translator
    run, counts = Path(sys.argv[1]), json.loads(sys.argv[2])
    lines = (run / "translations" / "test.source").read_text().split("\\n")[:12]
    lines = [f"{lines[i % 12]} {lines[i % 7]}" if i % 3 else lines[i % 5] for i in range(max(counts))]
    found = {}
    for devices in (1, 3, 8) if channel.count == 1 else (1,):
        decoding = Decoding(beam_size=2, extra_length=4, max_source_length=16)  # of which two searches are compiled
        translator = Translator.load(run, decoding, channel, jax.local_devices()[:devices])
        for count in counts:
            answers = translator.translate(lines[:count])
            found[f"{devices} {count}"] = [[best.text, best.score] for best, *_ in answers]
    if channel.first:
        print(json.dumps(found))
"""

Answers = dict[str, list[list[Any]]]


@pytest.fixture(scope="module")
def answers(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Answers]:
    """By number of processes."""
    found = {}
    for count in (1, 2):
        with Group(count, trained, json.dumps(COUNTS), program=["-c", TRANSLATE], virtual_devices=8) as group:
            assert group.wait() == [0] * count, group.log(0)
            found[count] = json.loads(group.output(0))
    return found


@pytest.mark.parametrize("lines", COUNTS)
@pytest.mark.parametrize(("processes", "devices"), [(1, 1), (1, 3), (1, 8), (2, 1)])
def test_every_line_is_answered_once_and_alike(
    answers: dict[int, Answers], processes: int, devices: int, lines: int
) -> None:
    expected = answers[1][f"1 {max(COUNTS)}"][:lines]
    found = answers[processes][f"{devices} {lines}"]
    assert len(found) == lines
    for (text, score), (right, its_score) in zip(found, expected, strict=True):
        assert score == pytest.approx(its_score, abs=1e-4)
        # Another division of the rows adds numbers in another order, which decides between equals.
        assert text == right or abs(score - its_score) < 1e-4


def test_the_answers_of_two_processes_are_those_of_one_to_the_bit(answers: dict[int, Answers]) -> None:
    for lines in COUNTS:
        assert answers[2][f"1 {lines}"] == answers[1][f"1 {lines}"]
    distinct = {(text, score) for text, score in answers[1][f"1 {max(COUNTS)}"]}
    assert len(distinct) > 12, "an order that is wrong would show"
