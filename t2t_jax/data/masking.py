"""Gaps in a batch for a masked language model: a pure function of the seed, the batch's number and a row's place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from t2t_jax.data.batching import splitmix64
from t2t_jax.symbols import BOS_ID, EOS_ID, PAD_ID, SPECIAL_SYMBOLS

SHARE = 0.15  # of a sentence's tokens, one at least, are asked for
HIDDEN, RANDOM = 0.8, 0.1  # of these are replaced by a mask, by any entry; the rest stays as it is
MASK_ID = BOS_ID  # which stands in no sentence


@dataclass(frozen=True)
class Masking:
    """Devlin et al. 2019, section 3.1. Tokens are the same on every machine, and whoever reads which rows."""

    vocabulary: int

    def __call__(self, tokens: np.ndarray, seed: int, batch: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sentences [n, S] at places [n] of a batch, to what is read and what is asked for: both [n, S].

        The second is padding where nothing is asked for. The end of a sentence never is.
        """
        with np.errstate(over="ignore"):
            start = np.zeros(1, np.uint64)
            for word in (seed, batch):
                start = splitmix64(start ^ np.uint64(word))
            of_rows = splitmix64(start + rows.astype(np.uint64))
            order = splitmix64(of_rows[:, None] + np.arange(tokens.shape[1], dtype=np.uint64))
            fate, entry = splitmix64(order), splitmix64(splitmix64(order))
        may = (tokens != PAD_ID) & (tokens != EOS_ID)
        wanted = np.maximum(np.rint(SHARE * may.sum(axis=1)), 1)
        order = np.where(may, order, np.uint64(2**64 - 1))
        rank = np.argsort(np.argsort(order, axis=1, kind="stable"), axis=1, kind="stable")
        asked = may & (rank < wanted[:, None])
        share = fate / 2.0**64
        first = len(SPECIAL_SYMBOLS)
        other = first + (entry % np.uint64(self.vocabulary - first)).astype(tokens.dtype)
        read = np.where(share < HIDDEN, MASK_ID, np.where(share < HIDDEN + RANDOM, other, tokens))
        return np.where(asked, read, tokens).astype(tokens.dtype), np.where(asked, tokens, PAD_ID).astype(tokens.dtype)


def of_task(task: str | None, vocabulary: int) -> Masking | None:
    """What the sentences of a task go through on their way into a batch."""
    return Masking(vocabulary) if task == "masked_language_model" else None
