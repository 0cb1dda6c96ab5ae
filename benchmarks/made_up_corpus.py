"""Parallel text of any size, made up from real text: what input pipelines are measured on.

    python -m benchmarks.made_up_corpus --pairs 4500000 --like DIR/newstest2014 --words DIR/en-de.train --output FOLDER

Every pair has as many words as a pair of `--like`, taken from any place of the `--words` text; one word in 32 is a
number or two words written as one, so that there are as many different words as in a large corpus. One pair in 200 is
bad in one of the ways that crawled text is. Source and target do not translate each other. The same arguments give the
same bytes. STEM stands for STEM.en and STEM.de, plain or gzipped.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np

from t2t_jax import config
from t2t_jax.data.sources import TextFiles
from t2t_jax.progress import bar

CHUNK = 100_000
WORDS = 8_000_000  # of the text that sentences are cut from, by side
NEW_WORD_EVERY = 32
BAD_EVERY = 200


def words_of(stem: Path, languages: tuple[str, str]) -> list[list[list[bytes]]]:
    """The words of each line of each side."""
    texts = TextFiles(stem.parent, {"train": stem.name}, *languages)  # type: ignore[dict-item]
    sides = zip(*texts.pairs("train"), strict=True)
    return [[line.encode().split() for line in side] for side in sides]


def running_text(words: list[bytes], rng: np.random.Generator) -> tuple[bytes, np.ndarray]:
    """`WORDS` words in runs from all over the given ones, with new ones among them; and where each word begins."""
    starts = rng.integers(0, len(words), -(-WORDS // 20))
    places = ((starts[:, None] + np.arange(20)) % len(words)).ravel()[:WORDS]
    text = [words[i] for i in places]
    for i in range(0, WORDS, NEW_WORD_EVERY):
        text[i] = b"%d" % (i * i % 9973) if i % 5 == 0 else text[i] + text[i - 1].lower()
    sizes = np.fromiter(map(len, text), np.int64, WORDS) + 1
    return b" ".join(text) + b" ", np.concatenate([[0], np.cumsum(sizes)])


def spoil(kind: int, source: bytes, target: bytes) -> tuple[bytes, bytes]:
    """The pair with one of five faults."""
    return (
        (b"", target),
        (source, source),
        (b" ".join([source] * 16), b" ".join([target] * 16)),
        (source, target.split(b" ")[0]),
        (source + b"\xff", target),
    )[kind]


def write(pairs: int, like: Path, words: Path, languages: tuple[str, str], folder: Path, seed: int = 1) -> None:
    """Write train (`pairs`), valid and test (3,000 each) into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    lengths = [np.array([len(line) for line in side]) for side in words_of(like, languages)]
    rng = np.random.Generator(np.random.Philox(key=seed))
    texts = [running_text(list(itertools.chain.from_iterable(side)), rng) for side in words_of(words, languages)]
    with bar() as progress:
        for name, count in (("valid", 3000), ("test", 3000), ("train", pairs)):
            task = progress.add_task(f"writing {name}", total=count)
            with (
                (folder / f"{name}.{languages[0]}").open("wb") as left,
                (folder / f"{name}.{languages[1]}").open("wb") as right,
            ):
                for begin in range(0, count, CHUNK):
                    size = min(CHUNK, count - begin)
                    chosen = rng.integers(0, len(lengths[0]), size)
                    sides = []
                    for (text, offsets), side in zip(texts, lengths, strict=True):
                        first = rng.integers(0, WORDS - side.max() - 1, size)
                        spans = zip(offsets[first].tolist(), (offsets[first + side[chosen]] - 1).tolist(), strict=True)
                        sides.append([text[i:j] for i, j in spans])
                    for i in range(BAD_EVERY - 1, size if name == "train" else 0, BAD_EVERY):
                        sides[0][i], sides[1][i] = spoil(i // BAD_EVERY % 5, sides[0][i], sides[1][i])
                    for file, lines in zip((left, right), sides, strict=True):
                        file.write(b"\n".join(lines) + b"\n")
                    progress.advance(task, size)


def main() -> None:
    """Run the script; see the module's text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4_500_000)
    parser.add_argument("--like", type=Path, required=True, metavar="STEM", help="pairs whose lengths are followed")
    parser.add_argument("--words", type=Path, required=True, metavar="STEM", help="text whose words are taken")
    parser.add_argument("--source-language", default=config.Data.source_language)
    parser.add_argument("--target-language", default=config.Data.target_language)
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    write(o.pairs, o.like, o.words, (o.source_language, o.target_language), o.output, o.seed)


if __name__ == "__main__":
    main()
