"""Whether exports of a run translate its test text as the run itself does, with the same settings of the search.

    python -m benchmarks.agreement RUN EXPORT… [--alpha A …] [--lines N]

Each export is a directory that `launch.py export` wrote. Beam 4, penalty |Y|^A, the longest translation and the rule
for stopping are those of docs/export.md, "The same search". A translation that differs is compared by the score that
the run's own model gives both: a tie is within 1e-4. The result is a JSON object for each export and alpha.
Needs `pip install '.[export]'`.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import sacrebleu

from t2t_jax import config
from t2t_jax.decoding.translator import Translator
from t2t_jax.errors import UserError
from t2t_jax.parallel.platform import choose_platform
from t2t_jax.symbols import EOS_ID

BEAM, EXTRA, PATIENCE, ROWS, TIE = 4, 50, 6, 32, 1e-4

Found = tuple[list[int], float]
"""A translation's ids without end of sentence, and its score."""


Search = Callable[[list[list[int]], float], list[Found]]
"""(sentences of one length as ids, alpha) -> their translations."""


def ctranslate2(export: Path, translator: Translator) -> tuple[str, Search]:
    """The type of the weights of an export to CTranslate2, and its search."""
    from ctranslate2 import Translator as Theirs

    theirs = Theirs(str(export), compute_type="default")
    pieces = translator.tokenizer.pieces(range(translator.tokenizer.size))
    ids = {piece: i for i, piece in enumerate(pieces)}

    def translate(sentences: list[list[int]], alpha: float) -> list[Found]:
        results = theirs.translate_batch(
            [[pieces[i] for i in sentence] for sentence in sentences],
            beam_size=BEAM,
            patience=PATIENCE,
            length_penalty=alpha,
            max_decoding_length=len(sentences[0]) + EXTRA + 1,
            return_scores=True,
        )
        return [([ids[piece] for piece in result.hypotheses[0]], result.scores[0]) for result in results]

    return theirs.compute_type, translate


def marian(export: Path) -> Search:
    """Hugging Face's `generate`."""
    import torch
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(export).eval()

    @torch.inference_mode()
    def translate(sentences: list[list[int]], alpha: float) -> list[Found]:
        found = model.generate(
            torch.tensor([[*sentence, EOS_ID] for sentence in sentences]),
            num_beams=BEAM,
            length_penalty=alpha,
            max_length=len(sentences[0]) + EXTRA + 2,
            return_dict_in_generate=True,
            output_scores=True,
        )
        rows = [row[1:] for row in found.sequences.tolist()]  # without begin of sentence
        ends = [row.index(EOS_ID) if EOS_ID in row else len(row) for row in rows]
        return [(row[:end], score) for row, end, score in zip(rows, ends, found.sequences_scores.tolist(), strict=True)]

    return translate


def load(export: Path, translator: Translator) -> tuple[str, Search]:
    """What an export is called, and its search."""
    if "architectures" in json.loads((export / "config.json").read_text()):
        return "marian", marian(export)
    name, search = ctranslate2(export, translator)
    return f"ctranslate2 {name}", search


def in_groups(search: Search, sentences: Sequence[list[int]], alpha: float) -> list[Found]:
    """Sentences of equal length together, since the longest translation is a setting of a whole batch; in order."""
    places = collections.defaultdict(list)
    for place, sentence in enumerate(sentences):
        places[len(sentence)].append(place)
    found: dict[int, Found] = {}
    for group in places.values():
        for start in range(0, len(group), ROWS):
            part = group[start : start + ROWS]
            found |= zip(part, search([sentences[i] for i in part], alpha), strict=True)
    return [found[i] for i in range(len(sentences))]


def score(translator: Translator, source: list[int], ids: Sequence[int], alpha: float) -> float:
    """What the run's model gives a translation."""
    pair = [np.asarray([[*side, EOS_ID]]) for side in (source, ids)]
    logits = translator.transformer.apply({"params": translator.params}, *pair, deterministic=True)[0]
    log_p = jax.nn.log_softmax(logits)
    return float(log_p[np.arange(len(ids) + 1), pair[1][0]].sum()) / (len(ids) + 1) ** alpha


def compare(run: Path, exports: Sequence[Path], alpha: float, lines: int | None) -> Iterator[dict[str, Any]]:
    """How each export's translations agree with the run's own."""
    settings = config.Decoding(beam_size=BEAM, alpha=alpha, length_penalty="length", extra_length=EXTRA)
    translator = Translator.load(run, settings)
    files = (run / "translations" / f"test.{side}" for side in ("source", "target"))
    texts = [file.read_text(encoding="utf-8").split("\n")[:-1][:lines] for file in files]
    ours = [best for best, *_ in translator.translate(texts[0])]
    sentences = translator.tokenizer.encode(texts[0])

    def bleu(ids: Sequence[Sequence[int]]) -> float:
        return sacrebleu.corpus_bleu([translator.tokenizer.decode(line) for line in ids], [texts[1]]).score

    for export in exports:
        name, search = load(export, translator)
        theirs = in_groups(search, sentences, alpha)
        counts, gaps = collections.Counter(), [0.0]
        for sentence, best, (ids, their_score) in zip(sentences, ours, theirs, strict=True):
            if list(best.ids) == ids:
                counts["same"] += 1
                gaps.append(abs(best.score - their_score))
            else:
                gap = score(translator, sentence, best.ids, alpha) - score(translator, sentence, ids, alpha)
                counts["tie" if abs(gap) < TIE else "ours better" if gap > 0 else "theirs better"] += 1
        row = {"export": name, "alpha": alpha, "lines": len(sentences)}
        row |= {kind: counts[kind] for kind in ("same", "tie", "ours better", "theirs better")}
        row |= {"largest score difference": max(gaps), "BLEU": bleu([ids for ids, _ in theirs])}
        yield row | {"our BLEU": bleu([best.ids for best in ours])}


def main() -> None:
    """Run the script; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("exports", type=Path, nargs="+")
    parser.add_argument("--alpha", type=float, nargs="+", default=[0.0, 0.6])
    parser.add_argument("--lines", type=int, help="the first so many of the test text; all by default")
    options = parser.parse_args()
    choose_platform()
    try:
        for alpha in options.alpha:
            for row in compare(options.run, options.exports, alpha, options.lines):
                print(json.dumps(row), flush=True)
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
