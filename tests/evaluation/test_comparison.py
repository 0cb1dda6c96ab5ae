"""`bleu` and `compare`: what they print of files and runs, and what they refuse."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2t_jax import command_line, config, config_fields
from t2t_jax.evaluation.bleu import Protocol
from t2t_jax.evaluation.comparison import compare, holm
from t2t_jax.symbols import SPECIAL_SYMBOLS

REFERENCE = [f"the {i} small black cats sat on the mat" for i in range(40)]
WORSE = [line.replace("black cats", "dogs") if i % 2 else line for i, line in enumerate(REFERENCE)]
SLIGHTLY_WORSE = [*REFERENCE[:-1], "the 39 small black cats sat on a mat"]
HARDER = [*REFERENCE[:-1], "quite another line than any other here"]


@pytest.fixture
def texts(tmp_path: Path, monkeypatch) -> Path:
    """A folder, the current one, with a reference and two systems' files."""
    for name, lines in (("reference", REFERENCE), ("good", SLIGHTLY_WORSE), ("bad", WORSE)):
        write(tmp_path / name, lines)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def write_run(run: Path, hypotheses: list[str] | None, references: list[str], **evaluation: str) -> None:
    for side, lines in (("hypothesis", hypotheses), ("source", references), ("target", references)):
        if lines is not None:
            write(run / "translations" / f"test.{side}", lines)
    experiment = config.Experiment(evaluation=config.Evaluation(**evaluation))  # type: ignore[arg-type]
    (run / "config.json").write_text(config_fields.to_json(experiment))
    write(run / "tokenizer.vocabulary", [*SPECIAL_SYMBOLS, "cat"])


def launch(capsys, *arguments: str) -> str:
    assert command_line.main(arguments) == 0
    return capsys.readouterr().out


def test_bleu_of_two_files(texts: Path, capsys) -> None:
    printed = launch(capsys, "bleu", "--hypothesis", "reference", "--reference", "reference").splitlines()
    assert [line.split()[:3] for line in printed] == [["BLEU", name, "100.00"] for name in ("13a", "intl", "paper")]
    assert all("|version:" in line for line in printed)
    one = launch(
        capsys, *("bleu", "--hypothesis=bad", "--reference=reference", "--protocol=paper", "--target-language=en"),
        *("--no-straight-quotes", "--json"),
    )  # fmt: skip
    scores = json.loads(one)["scores"]
    assert list(scores) == ["paper"] and 0 < scores["paper"]["bleu"] < 100
    assert "|quotes:kept|tok:moses-en|" in scores["paper"]["signature"]


def test_what_ends_a_line_and_what_does_not(texts: Path, capsys) -> None:
    lines = ["one\u2028two three four five", "", "a\u0085b c d e\r", "x y z w v"]
    (texts / "unix").write_bytes("\n".join(lines).encode())
    (texts / "windows").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(line.rstrip("\r") for line in lines).encode())
    found = json.loads(launch(capsys, "bleu", "--hypothesis", "unix", "--reference", "windows", "--json"))
    assert found["lines"] == 4
    assert [score["bleu"] for score in found["scores"].values()] == [100, 100, 100]


def test_subwords_are_joined_on_demand(texts: Path, capsys) -> None:
    write(texts / "pieces", [line.replace("small", "sm@@ all").replace("mat", "ma@@ t") + "@@" for line in REFERENCE])
    arguments = ["bleu", "--hypothesis", "pieces", "--reference", "reference", "--protocol", "none", "--json"]
    assert json.loads(launch(capsys, *arguments))["scores"]["none"]["bleu"] < 100
    assert json.loads(launch(capsys, *arguments, "--join-subwords"))["scores"]["none"]["bleu"] == 100


def test_a_system_that_is_better(texts: Path, capsys) -> None:
    arguments = ["compare", "bad", "good", "--reference", "reference"]
    result = json.loads(launch(capsys, *arguments, "--json"))
    bad, good = result["systems"]
    assert (bad["name"], good["name"], result["lines"], result["protocol"]) == ("bad", "good", 40, "13a")
    assert result["better"] == "second" and result["difference"] == pytest.approx(good["bleu"] - bad["bleu"], abs=0.02)
    assert 0 < result["p_randomization"] < 0.01 and 0 < result["p_bootstrap"] < 0.01
    low, high = result["difference_interval"]
    assert 0 < low < result["difference"] < high
    assert bad["half_width"] > good["half_width"] > 0 and abs(bad["mean"] - bad["bleu"]) < bad["half_width"]
    printed = launch(capsys, *arguments)
    assert "The second is better" in printed and "p = 0.0" in printed and f"{good['bleu']:.2f}" in printed
    assert json.loads(launch(capsys, *arguments, "--json")) == result, "the seed is fixed"
    turned = json.loads(launch(capsys, "compare", "good", "bad", "--reference", "reference", "--json"))
    assert turned["better"] == "first" and turned["difference"] == -result["difference"]
    assert turned["difference_interval"] == [-high, -low], "the same samples"


def test_a_difference_that_may_be_chance() -> None:
    result = compare(("a", "b"), SLIGHTLY_WORSE, REFERENCE, REFERENCE, Protocol("paper"))
    assert result.difference > 0 and result.better is None
    assert result.difference_interval[0] <= 0 < result.difference_interval[1]
    assert "second scores higher, but it may be by chance" in result.verdict


def test_a_system_against_itself_is_the_same_and_not_significantly_so() -> None:
    result = compare(("a", "b"), WORSE, WORSE, REFERENCE, Protocol("13a"))
    assert (result.difference, result.p_bootstrap, result.p_randomization) == (0, 1, 1)
    assert result.difference_interval == (0, 0)
    assert result.better is None and result.verdict == "The two score the same."


def test_several_tests_at_once_ask_for_more() -> None:
    assert holm([]) == []
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.5, 0.6]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_adjusted_p_values_keep_their_order_and_lie_between_one_test_and_bonferroni(values: list[float]) -> None:
    adjusted = holm(values)
    assert all(p <= q <= min(1, len(values) * p) + 1e-12 for p, q in zip(values, adjusted, strict=True))
    pairs = sorted(zip(values, adjusted, strict=True))
    assert [q for _, q in pairs] == sorted(q for _, q in pairs)


def test_runs_stand_for_their_translations(texts: Path, capsys) -> None:
    segmented = [line.replace("black", "bl@@ ack") for line in REFERENCE]
    write_run(texts / "a", WORSE, segmented, protocol="none")
    write_run(texts / "b", SLIGHTLY_WORSE, segmented)
    result = json.loads(launch(capsys, "compare", "a", "b", "--json"))
    assert result["better"] == "second" and result["protocol"] == "none", "as the first run reports"
    files = ["compare", "bad", "good", "--reference", "reference", "--protocol", "none", "--json"]
    assert result["systems"][0]["bleu"] == json.loads(launch(capsys, *files))["systems"][0]["bleu"]
    mixed = json.loads(launch(capsys, "compare", "bad", "b", "--protocol", "none", "--json"))
    assert mixed["difference"] == result["difference"], "a run lends its references to a file"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bleu", "--hypothesis", "good"], "`bleu` needs --reference"),
        (["bleu"], "`bleu` needs --hypothesis and --reference"),
        (["bleu", "good", "--reference", "reference"], "`bleu` takes no target, not 'good'"),
        (["bleu", "--hypothesis", "nowhere", "--reference", "reference"], "'nowhere' cannot be read"),
        (["bleu", "--hypothesis", "good", "--reference", "."], "'.' cannot be read"),
        (["bleu", "--hypothesis", "short", "--reference", "reference"], "'short' has 2 lines but its reference"),
        (["bleu", "--hypothesis", "good", "--reference", "empty"], "'empty' is empty"),
        (["bleu", "--hypothesis", "latin1", "--reference", "reference"], "'latin1', line 2: the bytes are not UTF-8"),
        (["bleu", "--hypothesis", "good", "--reference", "reference", "--protocol", "13b"], "invalid choice '13b'"),
        (["compare", "good"], "`compare` needs two targets: python launch.py compare SYSTEM SYSTEM"),
        (["compare", "good", "bad", "reference"], "`compare` takes two targets, not 'good', 'bad', 'reference'"),
        (["compare", "good", "bad"], "give --reference FILE"),
        (["compare", "good", "short", "--reference", "reference"], "'reference' has 40"),
        (["compare", "run", "nowhere"], "'nowhere' cannot be read"),
        (["compare", "run", "untranslated"], "'untranslated' has no translations of the test split"),
        (["compare", "run", "run", "--split", "validation"], "has no validation text"),
        (["compare", "run", "folder"], "is not a run directory"),
        (["compare", "run", "other"], "'run' and 'other' have different test references"),
    ],
)
def test_mistakes_are_one_sentence_and_status_2(texts: Path, arguments: list[str], sentence: str, capsys) -> None:
    write(texts / "short", REFERENCE[:2])
    (texts / "empty").write_bytes(b"")
    (texts / "latin1").write_bytes("eins\nfünf\n".encode("latin-1"))
    (texts / "folder").mkdir()
    write_run(texts / "run", WORSE, REFERENCE)
    write_run(texts / "untranslated", None, REFERENCE)
    write_run(texts / "other", WORSE, HARDER)
    before = sorted((path, path.stat().st_mtime_ns) for path in texts.rglob("*"))
    assert command_line.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ") and sentence in printed.err and printed.err.count("\n") == 1
    assert printed.out == ""
    assert sorted((path, path.stat().st_mtime_ns) for path in texts.rglob("*")) == before
