"""A trained model as a directory that CTranslate2 loads, in float32 or with int8 weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from t2t_jax.export.refusals import refuse_choices, refuse_other_widths
from t2t_jax.export.target import require
from t2t_jax.model.positions import sinusoids
from t2t_jax.symbols import BOS_ID, EOS_ID, UNK_ID
from t2t_jax.training.state import Params
from t2t_jax.training.trained import Trained

Quantization = Literal["float32", "int8"]


def write(trained: Trained, directory: Path, quantization: Quantization = "float32") -> None:
    """Fill `directory` with model.bin, config.json, the vocabulary and the run's own tokenizer file.

    Raises:
      ConfigError: the model has no equivalent.
      UserError: the package ctranslate2 is not installed.
    """
    refuse_choices(trained.experiment.model, "CTranslate2")
    refuse_other_widths(trained.experiment.model, "CTranslate2")
    require("ctranslate2", "An export to CTranslate2")
    spec = specification(trained)
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    spec.save(str(directory))
    trained.tokenizer.save(directory)


def specification(trained: Trained) -> Any:
    """The model as a `ctranslate2.specs.TransformerSpec`."""
    from ctranslate2 import specs

    model, pieces = trained.experiment.model, trained.pieces
    params = jax.tree.map(np.array, trained.params)  # copies: quantisation changes them in place
    activation = getattr(specs.Activation, model.activation.upper())
    spec = specs.TransformerSpec.from_config(
        model.num_layers, model.num_heads, pre_norm=model.norm == "pre", activation=activation
    )
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = pieces[UNK_ID], pieces[BOS_ID], pieces[EOS_ID]
    spec.config.decoder_start_token = pieces[BOS_ID]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = model.norm_epsilon

    positions = _positions(trained)
    for side, embeddings in ((spec.encoder, spec.encoder.embeddings[0]), (spec.decoder, spec.decoder.embeddings)):
        embeddings.weight = params["embedding"]
        side.scale_embeddings = True
        side.position_encodings.encodings = positions
    spec.decoder.projection.weight = params["embedding"]
    if model.biases == "all":
        spec.decoder.projection.bias = params["logits_bias"]
    if model.norm == "pre":
        _norm(spec.encoder.layer_norm, params["encoder_norm"])
        _norm(spec.decoder.layer_norm, params["decoder_norm"])
    for i in range(model.num_layers):
        encoder, decoder = params[f"encoder_{i}"], params[f"decoder_{i}"]
        _self_attention(spec.encoder.layer[i].self_attention, encoder["self_attention"], encoder["residuals_0"])
        _feed_forward(spec.encoder.layer[i].ffn, encoder["feed_forward"], encoder["residuals_1"])
        _self_attention(spec.decoder.layer[i].self_attention, decoder["self_attention"], decoder["residuals_0"])
        _cross_attention(spec.decoder.layer[i].attention, decoder["cross_attention"], decoder["residuals_1"])
        _feed_forward(spec.decoder.layer[i].ffn, decoder["feed_forward"], decoder["residuals_2"])
    return spec


def _positions(trained: Trained) -> np.ndarray:
    """A table as long as anything that this run's settings let in or out; a learned one as far as it was trained."""
    model, decoding = trained.experiment.model, trained.experiment.decoding
    if model.positions == "learned":
        return trained.params["positions"]["table"][: trained.experiment.data.max_length]
    return sinusoids(decoding.max_source_length + decoding.extra_length + 1, model.d_model, model.sinusoid_layout)


def _self_attention(spec: Any, attention: Params, residual: Params) -> None:
    _projections(spec.linear[0], attention, "query", "key", "value")
    _output(spec.linear[1], attention)
    _norm(spec.layer_norm, residual["LayerNorm_0"])


def _cross_attention(spec: Any, attention: Params, residual: Params) -> None:
    _projections(spec.linear[0], attention, "query")
    _projections(spec.linear[1], attention, "key", "value")
    _output(spec.linear[2], attention)
    _norm(spec.layer_norm, residual["LayerNorm_0"])


def _projections(linear: Any, attention: Params, *names: str) -> None:
    """Several projections [D, H, K] as one matrix [sum of H K, D]."""
    linear.weight = np.concatenate([attention[name].reshape(len(attention[name]), -1).T for name in names])
    if "query_bias" in attention:
        linear.bias = np.concatenate([attention[f"{name}_bias"].reshape(-1) for name in names])


def _output(linear: Any, attention: Params) -> None:
    output = attention["output"]  # [H, V, D]
    linear.weight = np.ascontiguousarray(output.reshape(-1, output.shape[-1]).T)
    if "output_bias" in attention:
        linear.bias = attention["output_bias"]


def _feed_forward(spec: Any, feed_forward: Params, residual: Params) -> None:
    spec.linear_0.weight, spec.linear_0.bias = np.ascontiguousarray(feed_forward["w1"].T), feed_forward["b1"]
    spec.linear_1.weight, spec.linear_1.bias = np.ascontiguousarray(feed_forward["w2"].T), feed_forward["b2"]
    _norm(spec.layer_norm, residual["LayerNorm_0"])


def _norm(spec: Any, norm: Params) -> None:
    spec.gamma, spec.beta = norm["norm"]["scale"], norm["norm"]["bias"]
