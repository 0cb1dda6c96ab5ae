"""What the model's sizes say a step should cost, and the page about what it does."""

import json
from dataclasses import replace

import jax
import pytest

from benchmarks import growth, growth_worker, page
from benchmarks.growth_cases import Case, device_cases, sweeps
from t2t_jax import model
from t2t_jax.training.flops import step_flops
from t2t_jax.training.state import abstract_params

TINY = Case(layers=1, length=8, rows=4, d_model=64, vocabulary=100)


def test_parameters_are_the_models() -> None:
    abstract = abstract_params(model.build(TINY.model, TINY.vocabulary))
    assert TINY.parameters == sum(leaf.size for leaf in jax.tree.leaves(abstract))


def test_predicted_temporaries_by_hand() -> None:
    d, f, n, rows, heads, filled = 64, 256, 8, 4, 1, 128
    attention = n * 6 * d + heads * n * n
    layer = 3 * attention + 2 * n * (2 * d + f)
    assert TINY.predicted_temporaries() == 4 * (TINY.parameters + rows * (layer + n * filled))
    # With fsdp each of two devices has half of the gradient and half of the rows.
    assert replace(TINY, devices=2, axis="fsdp").predicted_temporaries() == TINY.predicted_temporaries() / 2


def test_compiled_memory_of_one_device_and_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")  # compiles faster
    halves = replace(TINY, devices=2, axis="fsdp")
    with growth_worker.start(2) as worker:
        whole, half = worker.map(growth_worker.compile_case, [TINY, halves])
        assert worker.submit(growth_worker.seconds_of_step, halves, 0.0).result() > 0
    counters = 64
    assert whole["arguments"] == pytest.approx(TINY.predicted_arguments(), abs=counters)
    undivided = 5 * 2 * 64 + 2 * (256 + 64)  # norms and biases
    assert half["arguments"] == pytest.approx(halves.predicted_arguments() + 12 * undivided / 2, abs=counters)
    assert min(whole["temporaries"], half["temporaries"]) > 0


def test_every_sweep_varies_one_thing() -> None:
    for quick in (False, True):
        for sweep in sweeps(quick).values():
            cases = list(sweep.cases.values())
            differing = [name for name in vars(cases[0]) if len({getattr(case, name) for case in cases}) > 1]
            assert len(differing) == 1
            assert [getattr(case, differing[0]) for case in cases] == sorted(sweep.cases)
    for group in device_cases(quick=False).values():
        assert all(case.rows % n == 0 and case.devices == n for n, case in group.items())


def test_page_says_what_was_measured(read_page) -> None:
    """Twice the predicted time at every size but for an exponent higher by 0.5."""

    def point(size: int, case: Case) -> dict[str, float]:
        seconds = step_flops(case.model, case.vocabulary, case.shape) / 1e11
        arguments, temporaries = case.predicted_arguments(), case.predicted_temporaries()
        return {
            "size": size,
            "seconds": 2 * seconds * size**0.5,
            "fastest_seconds": seconds,
            "slowest_seconds": 3 * seconds * size**0.5,
            "predicted_seconds": seconds,
            "matrix_rate_fraction": 0.5,
            "arguments": arguments,
            "temporaries": 3 * temporaries,
            "predicted_arguments": arguments,
            "predicted_temporaries": temporaries,
        }

    found = {
        "facts": page.circumstances(),
        "warning": "The <machine> was busy.",
        "sweeps": {name: [point(*item) for item in s.cases.items()] for name, s in sweeps(quick=True).items()},
        "devices": {axis: [point(*item) for item in g.items()] for axis, g in device_cases(quick=True).items()},
    }
    read = read_page(growth.html(found))
    assert read.elements["svg"] == 2 * 3 + 3
    assert "The <machine> was busy." in read.text
    measured = float(read.text.split("time grows as d^")[1].split(",")[0])
    predicted = float(read.text.split("time grows as d^")[1].split("predicted d^")[1].split(";")[0])
    assert measured - predicted == pytest.approx(0.5, abs=0.011)
    assert "temporaries grow as V^" in read.text
    assert "they are 3.00 times the predicted" in read.text
    assert "Arguments are 1.00 times the predicted." in read.text
    assert "takes 2.00 times as long when 4 virtual devices" in read.text
    assert len(growth.table(found).splitlines()) > 20
    json.dumps(found)
