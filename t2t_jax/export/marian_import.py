"""A Marian model of Hugging Face's transformers as a run directory of ours."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from t2t_jax import config, config_fields, model, run_directory
from t2t_jax.data.sources import read_lines
from t2t_jax.data.tokenizer import MarianTokenizer, SentencePieceTokenizer, Tokenizer
from t2t_jax.decoding.beam import NEVER
from t2t_jax.errors import DataError, RunError, UserError
from t2t_jax.export import marian
from t2t_jax.export.target import require
from t2t_jax.files import write_atomically
from t2t_jax.symbols import SPECIAL_SYMBOLS
from t2t_jax.training import checkpoints
from t2t_jax.training.state import Params, abstract_params

ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish"}
SPECIAL = ("pad", "decoder_start", "eos")
ABSENT = -1
"""Stands for the row of a special symbol that the other model does not have."""


def read(source: Path, run: Path, test_source: Path | None = None, test_target: Path | None = None) -> None:
    """Fill the folder `run` with the model in `source`, and with a test set for `evaluate` if one is given.

    Raises:
      RunError: `source` is not a Marian model, or one without an equivalent here; names the field.
    """
    settings = _json(source / "config.json")
    if settings.get("model_type") != "marian":
        raise RunError(f"{str(source)!r} is not a Marian model: its model_type is {settings.get('model_type')!r}.")
    tensors = _tensors(source)
    tokenizer, rows = _vocabulary(source, settings)
    experiment = _experiment(source, settings, tensors, tokenizer.size, rows)
    params = parameters(experiment.model, tensors, rows)
    (run / run_directory.TEXTS).mkdir(parents=True)
    tokenizer.save(run)
    checkpoints.save_averaged(run, params, [0])
    _write_test(run, test_source, test_target)
    write_atomically(run / run_directory.CONFIG, config_fields.to_json(experiment))


def parameters(settings: config.Model, tensors: dict[str, np.ndarray], rows: Sequence[int]) -> Params:
    """Our parameter tree, filling rows included.

    Args:
      settings: our model.
      tensors: theirs, by name.
      rows: for every token id of ours, theirs or ABSENT.
    """
    shapes = abstract_params(model.build(settings, len(rows)))
    params = marian.parameters(settings, shapes, tensors)
    absent = np.asarray(rows) == ABSENT
    filled = settings.padded_vocabulary(len(rows))
    embedding = np.zeros((filled, settings.d_model), np.float32)
    embedding[: len(rows)] = np.where(absent[:, None], 0, params["embedding"][list(rows)])
    params["embedding"] = embedding
    if settings.biases == "all":
        bias = np.zeros(filled, np.float32)
        bias[: len(rows)] = np.where(absent, NEVER, params["logits_bias"][list(rows)])
        params["logits_bias"] = bias
    ours, theirs = (jax.tree.map(np.shape, tree) for tree in (shapes, params))
    assert ours == theirs, "every parameter has its own tensor"
    return params


def _experiment(
    source: Path, settings: dict[str, Any], tensors: dict[str, np.ndarray], size: int, rows: Sequence[int]
) -> config.Experiment:
    def equal(name: str, *values: Any, default: Any = None) -> None:
        found = settings.get(name, default)
        if found not in values:
            expected = " or ".join(map(repr, values))
            raise RunError(
                f"{str(source)!r} cannot be imported: {name}={found!r}, where only {expected} is known here."
            )

    equal("activation_function", *ACTIVATIONS, default="gelu")
    equal("scale_embedding", True, default=False)
    equal("static_position_embeddings", True, default=True)
    equal("normalize_before", False, default=False)
    equal("normalize_embedding", False, default=False)
    equal("share_encoder_decoder_embeddings", True, default=True)
    equal("tie_word_embeddings", True, default=True)
    for name in ("layers", "ffn_dim", "attention_heads"):
        equal(f"decoder_{name}", settings.get(f"encoder_{name}"))
    try:
        layers, heads, d_ff = (int(settings[f"encoder_{name}"]) for name in ("layers", "attention_heads", "ffn_dim"))
        shape = config.Model(
            num_layers=layers,
            d_model=int(settings["d_model"]),
            d_ff=d_ff,
            num_heads=heads,
            dropout=float(settings.get("dropout", 0.1)),
            attention_dropout=float(settings.get("attention_dropout", 0.0)),
            relu_dropout=float(settings.get("activation_dropout", 0.0)),
            activation=ACTIVATIONS[settings["activation_function"]],  # type: ignore[arg-type]
            norm_epsilon=marian.NORM_EPSILON,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{str(source / 'config.json')!r} is not the config of a Marian model ({error!r}).") from None
    without = all(not np.any(tensors[p.theirs]) for p in marian.bias_pairs(shape) if p.theirs in tensors)
    biases: Literal["feed_forward", "all"] = "feed_forward" if without and ABSENT not in rows else "all"
    names = _json(source / "tokenizer_config.json", optional=True)
    languages = [str(names.get(f"{side}_lang") or side) for side in ("source", "target")]
    if languages[0] == languages[1]:
        languages = ["source", "target"]
    longest = int(settings.get("max_position_embeddings", 512))
    generation = {**settings, **_json(source / "generation_config.json", optional=True)}
    return config.Experiment(
        name="imported",
        model=dataclasses.replace(shape, biases=biases),
        data=config.Data(
            source="files",
            source_language=languages[0],
            target_language=languages[1],
            vocabulary_size=size,
        ),
        decoding=config.Decoding(
            beam_size=int(generation.get("num_beams") or 4),
            alpha=float(generation.get("length_penalty", 1.0)),
            length_penalty="length",
            max_source_length=longest,
        ),
    )


def _vocabulary(source: Path, settings: dict[str, Any]) -> tuple[Tokenizer, list[int]]:
    """The tokenizer in our order of ids, which begins with pad, unknown, begin and end; and their id of each of ours.

    Marian's models begin a translation with their pad symbol, whose row becomes that of our begin of sentence; pad
    itself has no row then.
    """
    ids = _json(source / "vocab.json")
    pieces = {int(i): str(piece) for piece, i in ids.items()}
    count = int(settings.get("vocab_size", len(pieces)))
    special: dict[str, Any] = {f"{name}_token_id": settings.get(f"{name}_token_id") for name in SPECIAL}
    special["<unk>"] = ids.get("<unk>")
    for name, value in special.items():
        if value not in pieces:
            raise RunError(f"{str(source)!r} cannot be imported: {name}={value!r} is no id of vocab.json.")
    pad, start, end, unknown = (int(value) for value in special.values())
    if sorted(pieces) != list(range(count)):
        raise RunError(f"{str(source)!r} cannot be imported: vocab.json must number {count:,} pieces from 0.")
    rows = [ABSENT if pad == start else pad, unknown, start, end]
    rows = [*rows, *(i for i in range(count) if i not in (pad, unknown, start, end))]
    entries = [*SPECIAL_SYMBOLS, *(pieces[i] for i in rows[len(SPECIAL_SYMBOLS) :])]
    try:
        left, right = ((source / f"{side}.spm").read_bytes() for side in ("source", "target"))
        if left == right:
            shared = SentencePieceTokenizer(left)
            if shared.pieces(range(shared.size)) == entries and rows == list(range(count)):
                return shared, rows
        return MarianTokenizer({"source": left, "target": right}, entries), rows
    except (OSError, RuntimeError) as error:
        raise RunError(f"{str(source)!r} needs source.spm and target.spm to be imported ({error}).") from None


def _tensors(source: Path) -> dict[str, np.ndarray]:
    """Every tensor by name, from safetensors or from PyTorch's format, of which no code is run."""
    safe, pickled = source / "model.safetensors", source / "pytorch_model.bin"
    try:
        if safe.is_file():
            require("safetensors", "An import from safetensors")
            from safetensors import safe_open

            with safe_open(str(safe), "np") as file:
                return {name: file.get_tensor(name).astype(np.float32) for name in file.keys()}  # noqa: SIM118
        if pickled.is_file():
            require("torch", "An import of pytorch_model.bin")
            import torch

            loaded = torch.load(pickled, map_location="cpu", weights_only=True)
            return {name: tensor.to(torch.float32).numpy() for name, tensor in loaded.items()}
    except UserError:
        raise
    except Exception as error:  # each format has its own
        raise RunError(f"The weights in {str(source)!r} cannot be read ({str(error).splitlines()[0]:.200}).") from None
    raise RunError(f"{str(source)!r} has neither model.safetensors nor pytorch_model.bin.")


def _write_test(run: Path, source: Path | None, target: Path | None) -> None:
    if source is None or target is None:
        return
    texts = [[line.decode(errors="replace") for line in read_lines(path)] for path in (source, target)]
    if len(texts[0]) != len(texts[1]):
        raise DataError(f"{str(source)!r} has {len(texts[0]):,} lines and {str(target)!r} {len(texts[1]):,}.")
    for side, lines in zip(("source", "target"), texts, strict=True):
        content = "".join(f"{line}\n" for line in lines)
        write_atomically(run / run_directory.TEXTS / f"test.{side}", content)


def _json(path: Path, optional: bool = False) -> dict[str, Any]:
    if optional and not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise RunError(f"{str(path)!r} cannot be read: {reason}.") from None
    if not isinstance(content, dict):
        raise RunError(f"{str(path)!r} is not a JSON object.")
    return content
