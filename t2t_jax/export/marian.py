"""The Transformer's parameters by their names in Hugging Face's `MarianMTModel`, both ways, and the export."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from t2t_jax import config
from t2t_jax.data.tokenizer import MarianTokenizer, SentencePieceTokenizer
from t2t_jax.errors import ConfigError
from t2t_jax.export.refusals import refuse_choices, refuse_other_widths
from t2t_jax.export.target import require
from t2t_jax.progress import say
from t2t_jax.symbols import BOS_ID, EOS_ID, PAD_ID
from t2t_jax.training.state import Params
from t2t_jax.training.trained import Trained

NORM_EPSILON = 1e-5  # what MarianMTModel has, without a setting


class Pair(NamedTuple):
    """One parameter under both names."""

    ours: tuple[str, ...]
    theirs: str
    axis: int | None
    """Of theirs, the axis that is d_model wide and so in the order of their position encodings; None has none."""


def order(d_model: int) -> np.ndarray:
    """Where each of Marian's d_model columns comes from: all the sines of the interleaved sinusoids, then all cosines.

    Nothing but the position encodings tells the columns of the residual stream apart, so the same order for every
    axis that is d_model wide gives the same function.
    """
    return np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])


def pairs(model: config.Model) -> Iterator[Pair]:
    """Every parameter but the biases that our model may lack (`bias_pairs`)."""
    yield Pair(("embedding",), "model.shared.weight", 1)
    for side, i in _layers(model):
        ours, theirs = f"{side}_{i}", f"model.{side}.layers.{i}"
        attentions, norms = _sublayers(side)
        for attention, name in attentions.items():
            for projection, short in (("query", "q"), ("key", "k"), ("value", "v")):
                yield Pair((ours, attention, projection), f"{theirs}.{name}.{short}_proj.weight", 1)
            yield Pair((ours, attention, "output"), f"{theirs}.{name}.out_proj.weight", 0)
        for k, norm in enumerate(norms):
            place = (ours, f"residuals_{k}", "LayerNorm_0", "norm")
            yield Pair((*place, "scale"), f"{theirs}.{norm}.weight", 0)
            yield Pair((*place, "bias"), f"{theirs}.{norm}.bias", 0)
        yield Pair((ours, "feed_forward", "w1"), f"{theirs}.fc1.weight", 1)
        yield Pair((ours, "feed_forward", "b1"), f"{theirs}.fc1.bias", None)
        yield Pair((ours, "feed_forward", "w2"), f"{theirs}.fc2.weight", 0)
        yield Pair((ours, "feed_forward", "b2"), f"{theirs}.fc2.bias", 0)


def bias_pairs(model: config.Model) -> Iterator[Pair]:
    """The biases of attention and logits, which the paper's model does not have."""
    yield Pair(("logits_bias",), "final_logits_bias", None)
    for side, i in _layers(model):
        for attention, name in _sublayers(side)[0].items():
            place = f"model.{side}.layers.{i}.{name}"
            for projection, short in (("query", "q"), ("key", "k"), ("value", "v")):
                yield Pair((f"{side}_{i}", attention, f"{projection}_bias"), f"{place}.{short}_proj.bias", None)
            yield Pair((f"{side}_{i}", attention, "output_bias"), f"{place}.out_proj.bias", 0)


def tensors(trained: Trained) -> dict[str, np.ndarray]:
    """The contents of model.safetensors."""
    model = trained.experiment.model
    columns = order(model.d_model)
    found = {pair.theirs: _to_theirs(_leaf(trained.params, pair.ours), pair, columns) for pair in pairs(model)}
    for pair in bias_pairs(model):
        if model.biases == "all":
            found[pair.theirs] = _to_theirs(_leaf(trained.params, pair.ours), pair, columns)
        else:
            found[pair.theirs] = np.zeros(
                trained.tokenizer.size if pair.theirs == "final_logits_bias" else model.d_model
            )
    found["final_logits_bias"] = found["final_logits_bias"][None]
    return {name: np.ascontiguousarray(value, np.float32) for name, value in found.items()}


def parameters(model: config.Model, shapes: Params, found: Mapping[str, np.ndarray]) -> Params:
    """The inverse of `tensors`: a parameter tree shaped like `shapes`, whose vocabulary has as many rows as `found`'s.

    Raises:
      ConfigError: a tensor is missing or has another shape than the model says.
    """
    columns = np.argsort(order(model.d_model))
    tree: Params = {}
    for pair in (*pairs(model), *(bias_pairs(model) if model.biases == "all" else ())):
        if pair.theirs not in found:
            raise ConfigError(f"The checkpoint has no tensor {pair.theirs!r}, so it is not a Marian model.")
        value, shape = np.asarray(found[pair.theirs], np.float32), _leaf(shapes, pair.ours).shape
        if pair.ours[0] in ("embedding", "logits_bias"):
            value = value.reshape(-1, *shape[1:])
        else:
            if value.size != np.prod(shape):
                raise ConfigError(f"The checkpoint's tensor {pair.theirs!r} of shape {value.shape} is not {shape}.")
            value = value if pair.axis is None else value.take(columns, pair.axis)
            value = value.T.reshape(shape)
        if pair.ours == ("embedding",):
            value = value[:, columns]
        place = tree
        for name in pair.ours[:-1]:
            place = place.setdefault(name, {})
        place[pair.ours[-1]] = value
    return tree


def refuse(model: config.Model) -> None:
    """Raise `ConfigError` if `MarianMTModel` has no equivalent of the model."""
    refuse_choices(model, "Hugging Face's Marian")
    refuse_other_widths(model, "Hugging Face's Marian")
    if model.norm == "pre":
        raise ConfigError("model: norm='pre' has no equivalent in Hugging Face's Marian, which normalises after.")
    if model.positions == "learned":
        raise ConfigError("model: positions='learned' has no equivalent in Hugging Face's Marian; it makes sinusoids.")
    if model.sinusoid_layout == "concatenated":
        raise ConfigError(
            "model: sinusoid_layout='concatenated' has no equivalent in Hugging Face's Marian, whose wavelengths are "
            "the paper's; CTranslate2 takes it."
        )


def write(trained: Trained, directory: Path) -> None:
    """Fill `directory` with what `MarianMTModel.from_pretrained` and `MarianTokenizer.from_pretrained` load.

    Raises:
      ConfigError: the model has no equivalent.
      UserError: the package safetensors is not installed.
    """
    model, decoding = trained.experiment.model, trained.experiment.decoding
    refuse(model)
    require("safetensors", "An export to Hugging Face's Marian")
    from safetensors.numpy import save

    longest = decoding.max_source_length + decoding.extra_length + 1
    special = {
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": BOS_ID,
        "forced_eos_token_id": None,
    }
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", model.num_layers), ("attention_heads", model.num_heads), ("ffn_dim", model.d_ff))
    }
    settings = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": trained.tokenizer.size,
        "decoder_vocab_size": trained.tokenizer.size,
        "max_position_embeddings": longest,
        "d_model": model.d_model,
        **sides,
        "activation_function": model.activation,
        "dropout": model.dropout,
        "attention_dropout": model.attention_dropout,
        "activation_dropout": model.relu_dropout,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "add_bias_logits": False,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "is_encoder_decoder": True,
        "num_hidden_layers": model.num_layers,
        "torch_dtype": "float32",
        **special,
    }
    generation = {
        "num_beams": decoding.beam_size,
        "length_penalty": decoding.alpha,
        "max_length": longest,
        "bad_words_ids": [[PAD_ID], [BOS_ID]],
        "early_stopping": "never",
        **special,
    }
    for name, content in (("config.json", settings), ("generation_config.json", generation)):
        _write_json(directory / name, content)
    (directory / "model.safetensors").write_bytes(save(tensors(trained), metadata={"format": "pt"}))
    _write_tokenizer(trained, directory)
    if model.norm_epsilon != NORM_EPSILON:
        say(
            f"Marian adds {NORM_EPSILON:g} to the variance in layer normalisation, where this model adds "
            f"{model.norm_epsilon:g}; docs/export.md says how much that changes."
        )


def _write_tokenizer(trained: Trained, directory: Path) -> None:
    """What MarianTokenizer reads: a SentencePiece model for each language, and the ids of their pieces."""
    if not isinstance(trained.tokenizer, (SentencePieceTokenizer, MarianTokenizer)):
        say("MarianTokenizer reads SentencePiece models alone, so the tokenizer is written as this project's own file.")
        trained.tokenizer.save(directory)
        return
    data, decoding = trained.experiment.data, trained.experiment.decoding
    for side, content in trained.tokenizer.models.items():
        (directory / f"{side}.spm").write_bytes(content)
    _write_json(directory / "vocab.json", {piece: i for i, piece in enumerate(trained.pieces)})
    names = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": data.source_language,
        "target_lang": data.target_language,
        "pad_token": trained.pieces[PAD_ID],
        "eos_token": trained.pieces[EOS_ID],
        "unk_token": "<unk>",
        "model_max_length": decoding.max_source_length,
    }
    _write_json(directory / "tokenizer_config.json", names)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _layers(model: config.Model) -> Iterator[tuple[str, int]]:
    return ((side, i) for side in ("encoder", "decoder") for i in range(model.num_layers))


def _sublayers(side: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Attentions by our name, and the norms in order of the sub-layers."""
    if side == "encoder":
        return {"self_attention": "self_attn"}, ("self_attn_layer_norm", "final_layer_norm")
    attentions = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
    return attentions, ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")


def _to_theirs(leaf: np.ndarray, pair: Pair, columns: np.ndarray) -> np.ndarray:
    """[in, out] with heads kept apart to [out, in] with heads joined; the d_model axis in their order."""
    if pair.ours == ("embedding",):  # [Z, D] for both
        return leaf[:, columns]
    if leaf.ndim > 1 and pair.axis is not None:
        leaf = leaf.reshape(len(leaf), -1) if pair.axis == 1 else leaf.reshape(-1, leaf.shape[-1])
        leaf = leaf.T
    else:
        leaf = leaf.reshape(-1)
    return leaf if pair.axis is None else leaf.take(columns, pair.axis)


def _leaf(tree: Params, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = tree[name]
    return tree
