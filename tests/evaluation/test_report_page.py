"""The page of a run, rendered from hand-written files: what it says, that it is harmless, and what may be missing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from t2t_jax import config, config_fields
from t2t_jax.errors import RunError
from t2t_jax.evaluation import plots
from t2t_jax.evaluation.report_page import render, write_page

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.5.1"
INTL_SIGNATURE = SIGNATURE.replace("13a", "intl")
PAPER_SIGNATURE = SIGNATURE.replace("tok:13a|smooth:exp", "quotes:straight|tok:moses-de|compounds:split|smooth:none")
LINES = 30


def entry(step: int, **more: Any) -> dict[str, Any]:
    return {
        "step": step,
        "loss": 700 / (step + 100),
        "perplexity": 20_000 / step,
        "gradient_norm": 1.5,
        "target_tokens": 1000,
        "epoch": step / 400,
        "learning_rate": step * 1e-6,
        "tokens_per_second": 5000.0 + step,
        "seconds": 30.5,
        "flops_per_second": 2.5e11 + 1e8 * step,
        "utilisation": 0.412,
        "data_wait": 0.0021,
    } | more


def write_run(run: Path) -> Path:
    """A finished run."""
    experiment = config.Experiment("tiny", config.Model(num_layers=3), training=config.Training(num_steps=500))
    (run / "translations").mkdir(parents=True)
    (run / "config.json").write_text(config_fields.to_json(experiment))
    held_out = {"validation_loss": 3.25, "validation_perplexity": 25.79}
    entries = [entry(step, **(held_out if step % 200 == 0 else {})) for step in range(50, 501, 50)]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(e)}\n" for e in entries))
    write_json(
        run / "data.json",
        {
            "source": "files",
            "languages": ["en", "de"],
            "vocabulary": 4321,
            "sha256": "ab" * 32,
            "splits": {
                "train": {
                    "pairs": 12_345,
                    "dropped": {"too long": 655, "empty": 0},
                    "tokens": {"source": 111_222, "target": 222_333},
                },
                "validation": {"pairs": LINES},
                "test": {"pairs": LINES},
            },
        },
    )
    for name in ("source", "target", "hypothesis"):
        write_lines(run, name, [f"{name} sentence {i}" for i in range(LINES)])
    scores = {
        "bleu": {"13a": 23.45, "intl": 24.56, "paper": 25.67},
        "signatures": {"13a": SIGNATURE, "intl": INTL_SIGNATURE, "paper": PAPER_SIGNATURE},
        "chrf": 45.67,
        "chrf_signature": "nrefs:1|nc:6",
        "loss": 2.5,
        "negative_log_likelihood": 1.95,
        "perplexity": 7.03,
        "target_tokens": 9876,
        "lines": LINES,
        "cut": 1,
    }
    report = {
        "name": "tiny",
        "split": "test",
        "bleu": 23.45,
        "bleu_signature": SIGNATURE,
        "perplexity": 7.0286,
        "chrf": 45.67,
        "parameters": 65_054_321,
        "config_hash": "0123456789ab",
        "steps": 500,
        "epochs": 1.25,
        "training_seconds": 5025.0,
        "splits": {"test": scores},
        "machine": "8 x TPU v5e",
        "versions": {"jax": "9.8.7"},
        "date": "2024-05-06",
    }
    write_json(run / "report.json", report)
    sentences = [(["▁A", "▁cat", "</s>"], ["▁Eine", "▁Kat", "ze", "</s>"]), (["▁$x_1$", "</s>"], ["▁<b>", "</s>"])]
    uniform = [np.full((2, len(target), len(source)), 1 / len(source)).tolist() for source, target in sentences]
    pictures = [
        {"source": source, "target": target, "weights": weights}
        for (source, target), weights in zip(sentences, uniform, strict=True)
    ]
    write_json(run / "attention.json", pictures)
    return run


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))


def write_lines(run: Path, name: str, lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    (run / "translations" / f"test.{name}").write_text(text, encoding="utf-8", newline="\n")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def text_of(page: str) -> str:
    """What a reader sees: no style sheet, tags, or repeated white space."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)))


def test_headline_and_scores(run: Path) -> None:
    text = text_of(render(run))
    headline = ["tiny", "BLEU 23.45", SIGNATURE, "Perplexity 7.03 per target token", "chrF 45.67"]
    details = [
        "65,054,321 (65.1 M)",
        "Epochs 1.2",
        "1 h 23 min",
        "278 GFLOP/s of model products, 41.2% of device peak, waiting for data 0.21% of the time",
        "8 x TPU v5e",
        "2024-05-06",
        "0123456789ab",
        "jax 9.8.7",
    ]
    for expected in [
        *headline,
        *details,
        "24.56",
        INTL_SIGNATURE,
        "BLEU paper",
        "25.67",
        PAPER_SIGNATURE,
        "1.950",
        "9,876",
    ]:
        assert expected in text
    assert "not evaluated yet" not in text


def test_samples_are_spread_over_the_split(run: Path) -> None:
    text = text_of(render(run))
    for line in range(0, LINES, 3):
        triple = f"source sentence {line} Reference target sentence {line} Translation hypothesis sentence {line} "
        assert triple in text
    assert "sentence 1 " not in text


def test_nothing_is_fetched(run: Path) -> None:
    page = render(run)
    addresses = re.findall(r"""(?:src|href)\s*=\s*["']?([^"'\s>]*)""", page) + re.findall(r"url\(\s*([^)]*)\)", page)
    assert addresses, "the plots refer to their own clip paths"
    assert all(address.startswith(("#", "data:")) for address in addresses)
    assert "@import" not in page and "<script" not in page and "http" not in page


def test_identifiers_are_unique(run: Path) -> None:
    identifiers = re.findall(r'\bid="([^"]*)"', render(run))
    assert len(identifiers) == len(set(identifiers))


def test_hostile_text_is_harmless(run: Path) -> None:
    hostile = ["<script>alert(1)</script>", "before\u2028after\0\x1b", "m" * 100_000, "\u202eمرحبا", "{{ 7 * 191 }}"]
    write_lines(run, "hypothesis", (hostile * LINES)[:LINES])
    write_lines(run, "source", ([hostile[0]] * LINES)[:LINES])
    (run / "translations" / "test.target").write_bytes(b"fine\n" * LINES)
    page = render(run)
    assert "<script" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\u2028" not in page and "\0" not in page and "1337" not in page
    assert len(max(page.split("\n"), key=len)) < 10_000


def test_long_lines_end_in_an_ellipsis(run: Path) -> None:
    write_lines(run, "hypothesis", ["m" * 100_000] * LINES)
    page = render(run)
    assert re.search(r"[^m]m{100,1000}…", page) and "m" * 1001 not in page


def test_the_same_run_gives_the_same_bytes(run: Path) -> None:
    first = write_page(run).read_bytes()
    assert (run / "report.html").read_bytes() == first
    assert write_page(run).read_bytes() == first == render(run).encode()
    assert not list(run.glob(".*partial"))


def test_attention_pictures(run: Path) -> None:
    page = render(run)
    assert page.count("Mean over heads</b>") == 2
    assert page.count('aria-label="Cross-attention, mean over 2 heads') == 2
    assert page.count('aria-label="Cross-attention of head') == 4
    for label in ("␣Kat", "ze", "␣$x_1$", "␣&lt;b&gt;"):
        assert re.search(rf"<text[^>]*>{re.escape(label)}</text>", page), label
    assert "▁" not in page


def test_no_pictures_without_attention(run: Path) -> None:
    (run / "attention.json").unlink()
    assert "attention</h2>" not in render(run)


def test_weights_that_do_not_fit_their_tokens_are_left_out(run: Path) -> None:
    write_json(run / "attention.json", [{"source": ["a", "b"], "target": ["c"], "weights": [[[1.0]]]}])
    assert "attention</h2>" not in render(run)


def test_run_in_progress(run: Path) -> None:
    for name in ("report.json", "attention.json", "translations/test.hypothesis"):
        (run / name).unlink()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 550, "lo')  # the line being written
    text = text_of(render(run))
    assert "BLEU not evaluated yet" in text and "Parameters not evaluated yet" in text
    assert "500 of 500" in text and "5 min 05 s" in text and "Learning curves" in text
    assert "Translations" not in text


def test_run_that_has_only_begun(run: Path) -> None:
    for path in [*run.glob("*.json*"), *run.glob("translations/*")]:
        if path.name != "config.json":
            path.unlink()
    text = text_of(render(run))
    assert "Nothing has been logged yet." in text and "0 of 500" in text and "not evaluated yet" in text


def test_scores_older_than_the_training_are_said_to_be(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(entry(1000)) + "\n")
    assert "The scores are those of step 500; training has since reached step 1,000." in text_of(render(run))


def test_numbers_that_are_not_finite_leave_gaps(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(entry(550, loss="nan", gradient_norm="inf")) + "\n")
    page = render(run)
    assert "Loss by step, up to step 500." in page and "Perplexity by step, up to step 550." in page


def test_settings_mark_what_differs(run: Path) -> None:
    rows = re.findall(r"<tr([^>]*)><th scope=\"row\">(\w+)</th><td>([^<]*)</td><td>([^<]*)</td></tr>", render(run))
    settings = [(name, value, default) for attributes, name, value, default in rows if "differs" in attributes]
    assert settings == [("name", "tiny", "experiment"), ("num_layers", "3", "6"), ("num_steps", "500", "100,000")]
    assert len(rows) == len(config_fields.flatten(config.Experiment()))


def test_data_that_was_dropped(run: Path) -> None:
    text = text_of(render(run))
    assert "12,345" in text and "222,333" in text and "4,321 vocabulary entries" in text
    assert "655 too long (5.04% of train)." in text and "empty" not in text


def test_not_a_run_directory(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"has no config\.json"):
        write_page(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_damaged_report(run: Path) -> None:
    (run / "report.json").write_text('{"bleu": ')
    with pytest.raises(RunError, match=r"report\.json"):
        render(run)


def test_colours_are_the_pages() -> None:
    lines = [plots.Line([1, 2], [1.0, 1000.0], plots.TRAINING), plots.Line([2], [5.0], plots.VALIDATION, dots=True)]
    drawing = plots.curves("plot", 'a "description" <here>', lines, 300, 200, log=True)
    assert set(re.findall(r"(?:fill|stroke): ([^;\"]+)", drawing)) == {
        *("none", "currentColor", "var(--rule)", "var(--training)", "var(--validation)")
    }
    assert "<title>a &quot;description&quot; &lt;here&gt;</title>" in drawing
    assert ">100</text>" in drawing


def test_tokens_of_any_script_and_length_can_be_labels() -> None:
    rows = ["注意", "a\nb", "x" * 500]
    drawing = plots.labelled_heat_map("plot", "", np.eye(3, 2), rows, ["--></svg>", "\ud800"])
    assert "a�b" in drawing and "注意" in drawing and "x…" in drawing and "x" * 20 not in drawing
    assert drawing.count("</svg>") == 1


def test_batches_beside_other_schemes(run: Path) -> None:
    assert "real tokens of all positions" not in render(run).lower(), "there may be no such file"
    (run / "batches.json").write_text(json.dumps([{"name": "a <way>", "shapes": 1234, "efficiency": 0.9306}]))
    page = render(run)
    assert "a &lt;way&gt;" in page
    assert "1,234" in page
    assert "93.1%" in page
