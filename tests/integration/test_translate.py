"""`translate`, `evaluate` and `report` on a trained run, with text as it comes."""

import itertools
import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import t2t_jax
from t2t_jax.config import Data, Decoding
from t2t_jax.data import tokenizer as tokenizers
from t2t_jax.data.sources import open_source
from t2t_jax.decoding.scorer import Scorer
from t2t_jax.decoding.translator import Translator
from t2t_jax.symbols import EOS_ID

ORDINARY = [b"I'm not going to go.", b"Tom also saw it.", b"Where are you?", b"Tom", b"She knows what I like to eat."]
HOSTILE = [
    b"",
    b"   ",
    b"\t",
    "emoji 😀👩‍👩‍👧‍👦 and 漢字".encode(),
    "Ἐν ἀρχῇ слово كلمة מילה शब्द คำ 말".encode(),
    "one\u2028line, and\u0085another".encode(),
    "\u202eright to left\u202c \ufeff\u200d".encode(),
    b"bytes \xff\xfe that are no text",
    b"a lone surrogate \xed\xa0\x80",
    b"a character cut \xf0\x9f\x98",
    bytes(set(range(32)) - {10}),
    b"nothing\x00",
    b"tab\tseparated",
    b"carriage return\r",
    b"<s> </s> <pad> <unk>",
]
LONG = [b"word " * 20_000, "語".encode() * 100_000, b"\x00" * 100_000]


def test_every_one_of_2000_lines_gets_one_line_in_order(launch, trained: Path) -> None:
    rng = random.Random(0)
    lines = [rng.choice(ORDINARY if rng.random() < 0.5 else HOSTILE) for _ in range(1997)]
    for line in LONG:
        lines.insert(rng.randrange(len(lines)), line)
    done = launch("translate", trained, "--decoding.max-source-length", 64, stdin=b"\n".join(lines) + b"\n")
    assert done.returncode == 0, done.stderr
    answers = done.stdout.split("\n")
    assert len(answers) == 2001
    assert answers.pop() == ""
    tokens = map(len, tokenizers.load(trained).encode([line.decode(errors="replace") for line in lines]))
    cut = sum(count >= 64 for count in tokens)
    assert f"Lines of more than 64 tokens, of which only that much was translated: {cut}\n" in done.stderr
    assert all(answer == "" for line, answer in zip(lines, answers, strict=True) if not line.strip())
    alone = launch("translate", trained, stdin=b"\n".join(ORDINARY))
    expected = dict(zip(ORDINARY, alone.stdout.split("\n")[:-1], strict=True))
    ordinary = [(line, answer) for line, answer in zip(lines, answers, strict=True) if line in expected]
    assert len(ordinary) > 900
    assert all(answer == expected[line] for line, answer in ordinary), "neighbours change nothing"


def test_files_and_short_names(launch, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("Tom also saw it.\n\n")
    done = launch(
        "translate", trained, "--input", tmp_path / "in", "--output", tmp_path / "out", "--beam", 1, "--alpha", 0
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    written = (tmp_path / "out").read_text()
    assert written.count("\n") == 2
    piped = launch(
        "translate", trained, "--decoding.beam_size=1", "--decoding.alpha", "0.0", stdin="Tom also saw it.\n\n"
    )
    assert piped.stdout == written


def test_output_may_be_a_device_and_never_a_folder(launch, trained: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    assert launch("translate", trained, "--output", link, stdin="Tom\n").returncode == 0
    assert link.is_symlink()
    assert (tmp_path / "target").read_text().count("\n") == 1
    assert launch("translate", trained, "--output", "/dev/null", stdin="Tom\n").returncode == 0
    assert not Path("/dev/null").is_file()
    refused = launch("translate", trained, "--output", tmp_path, stdin="Tom\n")
    assert refused.returncode == 2
    assert "is a folder" in refused.stderr


def test_a_line_is_the_same_alone_and_among_others(launch, trained: Path) -> None:
    """In any order, with neighbours that leave the search before it and after; on 8 devices but for rounding."""
    translator = Translator.load(trained, Decoding(beam_size=2, extra_length=40))
    lines = [pair[0] for pair in itertools.islice(open_source(Data()).pairs("train"), 500, 564)]
    together = translator.translate(lines, n_best=2)
    assert len({len(best.ids) for best, _ in together}) > 5
    order = random.Random(0).sample(range(64), 64)
    shuffled = translator.translate([lines[i] for i in order], n_best=2)
    assert shuffled == [together[i] for i in order]
    assert [translator.translate([line], n_best=2)[0] for line in lines] == together
    assert all(best.score >= second.score or second.cut for best, second in together)

    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    options = "--scores", "--n-best", 2, "--beam", 2, "--decoding.extra-length", 40
    done = launch("translate", trained, *options, stdin="\n".join(lines), env=environment)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.split("\n")[:-1]]
    expected = [translation for translations in together for translation in translations]
    for (score, cut, text), translation in zip(rows, expected, strict=True):
        assert (text, cut) == (translation.text, "cut" if translation.cut else "end")
        assert float(score) == pytest.approx(translation.score, abs=1e-4)


def test_evaluate_repeats_what_training_reported(launch, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)  # everything after training needs only this directory

    def told() -> dict:
        report = json.loads((run / "report.json").read_text())
        assert report.pop("decoding_seconds") > 0, "the only figure that may differ"
        return report

    before = told()
    done = launch("evaluate", run, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["test"]["bleu"]["13a"] == before["bleu"]
    assert list(result["test"]["bleu"]) == ["13a", "intl", "paper"]
    assert result["test"]["perplexity"] == before["perplexity"]
    assert told() == before
    other = launch("evaluate", run, "--split", "validation", "--beam", 1)
    assert other.returncode == 0, other.stderr
    assert "validation  BLEU (13a)" in other.stdout
    assert told() == before, "other settings leave the report alone"


def test_report_renders_again(launch, trained: Path) -> None:
    page = trained / "report.html"
    before = page.read_bytes()
    page.unlink()
    done = launch("report", trained)
    assert done.returncode == 0, done.stderr
    assert page.read_bytes() == before
    assert done.stdout.strip() == str(page)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["translate", "{empty}"], "is not a run directory"),
        (["evaluate", "{missing}"], "does not exist"),
        (["translate", "{untrained}"], "has no checkpoint"),
        (["translate", "{trained}", "--input", "{missing}"], "cannot be read"),
        (["translate", "{trained}", "--output", "{missing}/deeper/file"], "cannot be written"),
        (["translate", "{trained}", "--beam", "0"], "beam_size=0"),
        (["report", "{empty}"], "is not a run directory"),
    ],
)
def test_unusable_requests_are_one_sentence(launch, trained: Path, tmp_path: Path, arguments, sentence: str) -> None:
    empty, untrained = tmp_path / "empty", tmp_path / "untrained"
    empty.mkdir()
    untrained.mkdir()
    for name in ("config.json", "tokenizer.model"):
        shutil.copyfile(trained / name, untrained / name)
    places = {"empty": empty, "untrained": untrained, "trained": trained, "missing": tmp_path / "missing"}
    done = launch(*(word.format(**places) for word in arguments))
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().split("\n")) <= 2


def test_a_run_directory_cannot_run_code(trained: Path) -> None:
    """Nothing in it is Python or a pickle."""
    for path in trained.rglob("*"):
        if path.is_file():
            assert path.suffix not in {".py", ".pkl", ".pickle"}, path
            assert path.read_bytes()[:2] not in {b"\x80\x03", b"\x80\x04", b"\x80\x05"}, path


def test_an_ensemble_of_one_model_twice_is_that_model(trained: Path) -> None:
    lines = ["I'm not going to go.", "Tom also saw it."]
    decoding = Decoding(beam_size=2, extra_length=4)
    alone, twice = t2t_jax.load(trained, decoding=decoding), t2t_jax.load(trained, trained, decoding=decoding)
    for one, other in zip(alone.translate(lines, 2), twice.translate(lines, 2), strict=True):
        assert [(best.text, best.cut) for best in one] == [(best.text, best.cut) for best in other]
        assert [best.score for best in other] == pytest.approx([best.score for best in one], abs=1e-5)


def test_forced_decoding_finds_what_the_search_says(trained: Path) -> None:
    translator = Translator.load(trained, Decoding(beam_size=2, alpha=0.0, extra_length=4))
    sources = ["I'm not going to go.", "", "Tom also saw it.", "a " * 300, "Tom"]
    found = [best for best, *_ in translator.translate(sources)]
    scored = Scorer(translator).score(sources, [best.text for best in found])
    again = Scorer(translator).score(sources[::-1], [best.text for best in found][::-1])[::-1]
    assert again == scored, "neighbours change nothing"
    for best, score in zip(found, scored, strict=True):
        if best.ids and not best.cut and translator.tokenizer.encode([best.text])[0] == list(best.ids):
            assert score.log_probability == pytest.approx(best.score, abs=1e-4)
            assert score.tokens == len(best.ids) + 1


def test_attention_is_that_of_each_pair_read_alone(trained: Path) -> None:
    translator = Translator.load(trained, Decoding(beam_size=2, extra_length=4))
    sources = ["I'm not going to go.", "Tom", "a " * 30, "Tom also saw it.", "Where are you?"]
    ids = [best.ids for best, *_ in translator.translate(sources)]
    found = dict(Scorer(translator).attention(sources, ids))
    assert sorted(found) == list(range(len(sources)))
    for place, source in enumerate(translator.tokenizer.encode(sources)):
        pair = [np.asarray([[*side, EOS_ID]]) for side in (source, ids[place])]
        variables = {"params": translator.params}
        _, kept = translator.transformer.apply(variables, *pair, deterministic=True, mutable=["intermediates"])
        alone = kept["intermediates"]["decoder_0"]["cross_attention"]["weights"][0][0]
        np.testing.assert_allclose(found[place], alone, atol=1e-5)


def test_columns_prefixes_and_samples(launch, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("Tom also saw it.\n\nWhere are you?\n")
    (tmp_path / "prefix").write_text("Tom\n\nWo\n")
    given = ["translate", trained, "--input", tmp_path / "in", "--scores", "--alignments"]
    done = launch(*given, "--prefix", tmp_path / "prefix", "--n-best", 2)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.split("\n")[:-1]]
    assert len(rows) == 6
    assert all(len(row) == 4 and row[1] in {"end", "cut"} for row in rows)
    assert [row[2][: len(begin)] for row, begin in zip(rows, ("Tom", "Tom", "", "", "Wo", "Wo"), strict=True)] == [
        "Tom", "Tom", "", "", "Wo", "Wo",
    ]  # fmt: skip
    draws = [launch(*given, "--sample", "--n-best", 3, "--seed", seed).stdout for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    short = launch(*given, "--prefix", tmp_path / "in", stdin="")
    assert short.returncode == 0, "a file as its own prefix has as many lines"
    (tmp_path / "prefix").write_text("Tom\n")
    uneven = launch(*given, "--prefix", tmp_path / "prefix")
    assert uneven.returncode == 2
    assert "The --prefix ends before line 2" in uneven.stderr


def test_score_prints_a_line_for_a_line(launch, trained: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("Tom also saw it.\n\nTom\n")
    target.write_text("Tom sah es auch.\n\u2028\n\n", encoding="utf-8")
    done = launch("score", trained, "--source", source, "--target", target)
    assert done.returncode == 0, done.stderr
    values = [float(line) for line in done.stdout.split("\n")[:-1]]
    assert len(values) == 3
    assert all(value < 0 for value in values)
    target.write_text("one\n")
    refused = launch("score", trained, "--source", source, "--target", target)
    assert refused.returncode == 2
    assert "has 3 lines" in refused.stderr and "1; each target line" in refused.stderr
