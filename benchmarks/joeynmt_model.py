"""The peer JoeyNMT: its Transformer of our sizes, built the way its configuration files have it built."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from joeynmt.model import build_model
from joeynmt.vocabulary import Vocabulary

UNK, PAD, BOS, EOS = 0, 1, 2, 3


def build(sizes: dict[str, Any], entries: int, dropout: float = 0.0) -> Any:
    """A model with random weights over one vocabulary of so many entries.

    Args:
      sizes: num_layers, num_heads, d_model, d_ff.
      entries: of the vocabulary, special ones included.
      dropout: everywhere.
    """
    symbols: dict[str, Any] = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    symbols |= {"unk_id": UNK, "pad_id": PAD, "bos_id": BOS, "eos_id": EOS, "sep_token": None, "lang_tags": []}
    vocabulary = Vocabulary([], SimpleNamespace(**symbols))
    words = [f"w{i}" for i in range(4, entries)]
    vocabulary._itos += words  # its own add_tokens takes minutes for so many
    vocabulary._stoi |= {word: i for i, word in enumerate(words, 4)}
    side = {
        "type": "transformer",
        "num_layers": sizes["num_layers"],
        "num_heads": sizes["num_heads"],
        "embeddings": {"embedding_dim": sizes["d_model"], "scale": True, "dropout": dropout},
        "hidden_size": sizes["d_model"],
        "ff_size": sizes["d_ff"],
        "dropout": dropout,
        "layer_norm": "post",
    }
    tied = {"tied_embeddings": True, "tied_softmax": True}
    return build_model({"encoder": side, "decoder": dict(side), **tied}, vocabulary, vocabulary)
