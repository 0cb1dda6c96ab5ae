"""The tools whose decoding is measured, each in a process of its own, which may have another Python.

    python -m benchmarks.translators NAME FOLDER THREADS

FOLDER holds `groups.json`, groups of sentences as token ids that are equally long, and the model as NAME loads it.
A request, {"rows": N, "groups": […]}, is to translate those groups, N sentences at a time, unless the tool chooses.
The answer says how long it took. Only the tool's own packages are imported.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

Group = list[list[int]]
"""Sentences of one length, without end of sentence."""
Translate = Callable[[list[Group], int], list[int]]
"""(groups, rows) -> how many tokens each translation has, which are to be as many as its source has."""

BEAM, ALPHA, EOS = 4, 0.6, 3


def ours(folder: Path, threads: int) -> Translate:
    """`t2t_jax`, text in and text out."""
    from benchmarks import base_model
    from t2t_jax.decoding.translator import Translator
    from t2t_jax.parallel.platform import choose_platform

    choose_platform()
    translator = Translator([base_model.trained(BEAM)])

    def translate(groups: list[Group], rows: int) -> list[int]:
        lines = [" ".join(map(base_model.word, ids)) for group in groups for ids in group]
        return [len(best.ids) for best, *_ in translator.translate(lines)]

    return translate


def in_parts(groups: list[Group], rows: int) -> list[Group]:
    """The groups in parts of so many sentences."""
    return [group[start : start + rows] for group in groups for start in range(0, len(group), rows)]


def marian(folder: Path, threads: int) -> Translate:
    """Hugging Face's `generate`."""
    import torch
    from transformers import MarianMTModel

    torch.set_num_threads(threads)
    model = MarianMTModel.from_pretrained(folder / "marian").eval()
    model.generation_config.max_length = None  # max_new_tokens says it

    @torch.inference_mode()
    def translate(groups: list[Group], rows: int) -> list[int]:
        lengths = []
        for part in in_parts(groups, rows):
            source = torch.tensor([[*ids, EOS] for ids in part])
            found = model.generate(source, num_beams=BEAM, length_penalty=ALPHA, max_new_tokens=len(part[0]))
            lengths += [len(ids) - 1 for ids in found.tolist()]  # without begin of sentence
        return lengths

    return translate


def ctranslate2(kind: str, folder: Path, threads: int) -> Translate:
    """CTranslate2 on an export of this kind."""
    from ctranslate2 import Translator

    translator = Translator(str(folder / f"ctranslate2-{kind}"), compute_type=kind, intra_threads=threads)

    def translate(groups: list[Group], rows: int) -> list[int]:
        lengths = []
        for part in in_parts(groups, rows):
            longest = len(part[0])
            found = translator.translate_batch(
                [[f"w{i}" for i in ids] for ids in part],
                beam_size=BEAM,
                length_penalty=ALPHA,
                max_decoding_length=longest,
                min_decoding_length=longest,
            )
            lengths += [len(result.hypotheses[0]) for result in found]
        return lengths

    return translate


def joeynmt(folder: Path, threads: int) -> Translate:
    """JoeyNMT with random weights of its own: it loads nobody else's."""
    import torch
    from joeynmt.batch import Batch
    from joeynmt.search import search

    from benchmarks.joeynmt_model import PAD, build

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    sizes = json.loads((folder / "sizes.json").read_text())
    model = build(sizes, sizes["entries"]).eval()
    with torch.no_grad():
        model.trg_embed.lut.weight[EOS] = 0

    def translate(groups: list[Group], rows: int) -> list[int]:
        lengths = []
        for part in in_parts(groups, rows):
            source, longest = torch.tensor([[*ids, EOS] for ids in part]), len(part[0])
            batch = Batch(
                source,
                torch.full((len(part),), longest + 1),
                None,
                None,
                None,
                torch.arange(len(part)),
                torch.device("cpu"),
                PAD,
                EOS,
                is_train=False,
            )
            found, *_ = search(model, batch, longest, BEAM, ALPHA, min_output_length=longest)
            lengths += (found != PAD).sum(1).tolist()
        return lengths

    return translate


TRANSLATORS: dict[str, tuple[Callable[[Path, int], Translate], tuple[str, ...]]] = {
    "ours": (ours, ("jax",)),
    "joeynmt": (joeynmt, ("joeynmt", "torch")),
    "marian": (marian, ("transformers", "torch")),
    "ctranslate2-float32": (lambda *given: ctranslate2("float32", *given), ("ctranslate2",)),
    "ctranslate2-int8": (lambda *given: ctranslate2("int8", *given), ("ctranslate2",)),
}
"""What each is, and the packages it needs."""


def main(name: str, folder: str, threads: int) -> None:
    """Get ready, say so, then translate as asked."""
    if hasattr(os, "sched_setaffinity"):  # what has no setting for its threads makes one for each core it may use
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    make, packages = TRANSLATORS[name]
    try:
        versions = {package: importlib.metadata.version(package) for package in packages}
    except importlib.metadata.PackageNotFoundError as missing:
        sys.exit(f"{name} needs the package {missing.name}, which {sys.executable} does not have: name another Python.")
    groups = json.loads((Path(folder) / "groups.json").read_text())
    translate = make(Path(folder), threads)
    print(json.dumps({"versions": versions}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        asked = [groups[i] for i in request["groups"]]
        start = time.perf_counter()
        lengths = translate(asked, request["rows"])
        seconds = time.perf_counter() - start
        if lengths != [len(ids) for group in asked for ids in group]:
            sys.exit(f"{name} did not make as many tokens of each sentence as it has.")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"seconds": seconds, "peak_bytes": peak}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
