"""The speed of beam search on this machine, beside other tools', in turns.

    python -m benchmarks.decoding [--peers …] [--python NAME=PYTHON …] [--lines N] [--text FILE] [--rounds N] [--json]

The paper's base model (6 + 6 layers, d_model 512, 37,000 entries) with random weights translates sentences as long as
newstest2014's at beam 4. The weights are the same in every tool that loads them, and every tool writes as many tokens
for a sentence as the sentence has, so tokens a second compare. The lengths are those of eighths of the text, each the
mean of its eighth, so that every tool may translate sentences of equal length together: nobody pads, and nobody waits
for a longer sentence. Each tool runs at the batch size that was fastest on the two middle lengths; ours chooses its
own. The first time is that of those two lengths for a peer, and for ours that of all lines, with what it compiles.

Needs `pip install '.[export]'` for the exports. A peer that another Python has is run by it:
`--python joeynmt=/path/to/python`, where JoeyNMT 2.3.0 needs `pip install joeynmt sentencepiece==0.2.0
importlib_metadata packaging`.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import base_model
from benchmarks.translators import BEAM, TRANSLATORS
from benchmarks.turns import Contestant, ContestantEnded
from t2t_jax.errors import UserError
from t2t_jax.export import ctranslate2, marian
from t2t_jax.machine import host

# Words and punctuation marks of newstest2014's English lines: the mean of each eighth, shortest lines first.
LENGTHS = (8, 13, 16, 20, 23, 28, 34, 46)
PEERS = tuple(name for name in TRANSLATORS if name != "ours")


def lengths_of(text: Path) -> list[int]:
    """The mean length of each eighth of a text's lines, in words and punctuation marks."""
    lines = text.read_text(encoding="utf-8").splitlines()
    counts = sorted(count for line in lines if (count := len(re.findall(r"\w+|[^\w\s]", line))))
    return [round(part.mean()) for part in np.array_split(np.asarray(counts), 8)]


def prepare(folder: Path, peers: list[str], lengths: list[int], lines: int) -> None:
    """Write the sentences, and the model as each peer loads it."""
    trained = base_model.trained(BEAM)
    rng = np.random.default_rng(1)
    groups = [rng.integers(4, base_model.ENTRIES, (lines // len(lengths), length)).tolist() for length in lengths]
    (folder / "groups.json").write_text(json.dumps(groups))
    sizes = asdict(trained.experiment.model) | {"entries": base_model.ENTRIES}
    (folder / "sizes.json").write_text(json.dumps(sizes))
    for peer in peers:
        target = folder / peer
        if peer == "marian":
            target.mkdir()
            marian.write(trained, target)
        elif peer.startswith("ctranslate2"):
            target.mkdir()
            ctranslate2.write(trained, target, "int8" if peer.endswith("int8") else "float32")


def compete(
    folder: Path, names: list[str], pythons: dict[str, str], threads: int, rows: list[int], rounds: int
) -> tuple[dict[str, Any], dict[str, str]]:
    """Everyone at the fastest of `rows`, in turns; what came of it, and the versions."""
    contestants = {
        name: Contestant(
            name,
            ["benchmarks.translators", name, str(folder), str(threads)],
            pythons.get(name, sys.executable),
            OMP_NUM_THREADS=str(threads),
        )
        for name in names
    }
    groups = json.loads((folder / "groups.json").read_text())
    everything = list(range(len(groups)))
    middle = everything[len(groups) // 2 - 1 : len(groups) // 2 + 1]

    def seconds(name: str, rows: int, asked: list[int]) -> float:
        return float(contestants[name].ask({"rows": rows, "groups": asked})["seconds"])

    chosen, first = {}, {}
    for name in names:
        first[name] = seconds(name, rows[0], everything if name == "ours" else middle)
        tried = {n: seconds(name, n, middle) for n in rows} if name != "ours" else {0: 0.0}
        chosen[name] = min(tried, key=tried.__getitem__)
    answers: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            answers[name].append(contestant.ask({"rows": chosen[name], "groups": everything}))
    for contestant in contestants.values():
        contestant.stop()
    sentences, tokens = (sum(map(size, groups)) for size in (len, lambda group: len(group) * len(group[0])))
    results = {
        name: {
            "sentences_per_second": sentences / (median := statistics.median(a["seconds"] for a in given)),
            "tokens_per_second": tokens / median,
            "fastest_tokens_per_second": tokens / min(a["seconds"] for a in given),
            "slowest_tokens_per_second": tokens / max(a["seconds"] for a in given),
            "rows": chosen[name],
            "first_seconds": first[name],
            "peak_gib": given[-1]["peak_bytes"] / 2**30,
        }
        for name, given in answers.items()
    }
    return results, {k: v for contestant in contestants.values() for k, v in contestant.ready["versions"].items()}


def table(found: dict[str, Any]) -> str:
    """The same for people."""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    lines = [
        f"base, beam {BEAM}, {found['lines']} lines of {found['lengths']} tokens; {found['machine']}, "
        f"{found['threads']} threads; {versions}",
        "",
        f"{'':22}{'sentences/s':>12}{'tokens/s':>10}{'(from – to)':>18}{'rows':>6}{'GiB':>6}{'first, s':>10}"
        f"{'ours is':>9}",
    ]
    ours = found["results"]["ours"]["tokens_per_second"]
    for name, r in found["results"].items():
        spread = f"({r['slowest_tokens_per_second']:,.0f} – {r['fastest_tokens_per_second']:,.0f})"
        lines.append(
            f"{name:22}{r['sentences_per_second']:>12.1f}{r['tokens_per_second']:>10,.0f}{spread:>18}"
            f"{r['rows'] or 'own':>6}{r['peak_gib']:>6.1f}{r['first_seconds']:>10.1f}"
            f"{ours / r['tokens_per_second']:>8.2f}×"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the script; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="all by default")
    parser.add_argument("--python", nargs="*", default=[], metavar="NAME=PYTHON", help="the Python that has a peer")
    parser.add_argument("--lines", type=int, default=256, help="sentences; an eighth of each length")
    parser.add_argument("--text", type=Path, help="take the lengths from this file's lines")
    parser.add_argument("--rows", type=int, nargs="+", default=[8, 16, 32], help="batch sizes that peers try")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    options = parser.parse_args()
    lengths = lengths_of(options.text) if options.text else list(LENGTHS)
    if options.lines < len(lengths):
        parser.error(f"--lines {options.lines} is fewer than there are lengths, {len(lengths)}.")
    pythons = dict(word.split("=", 1) for word in options.python)
    try:
        with tempfile.TemporaryDirectory() as folder:
            prepare(Path(folder), options.peers, lengths, options.lines)
            names = ["ours", *options.peers]
            results, versions = compete(Path(folder), names, pythons, options.threads, options.rows, options.rounds)
    except (UserError, ContestantEnded) as error:
        sys.exit(str(error))
    found = {
        "lines": options.lines // len(lengths) * len(lengths),
        "lengths": lengths,
        "machine": host(),
        "threads": options.threads,
        "versions": versions,
        "results": results,
    }
    print(json.dumps(found, indent=2) if options.json else table(found))


if __name__ == "__main__":
    main()
