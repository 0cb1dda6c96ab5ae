"""Which choices of an architecture go together; those that mean nothing are refused with the reason."""

from __future__ import annotations

from typing import Any

from t2t_jax.errors import ConfigError

RELATIVE = ("rotary", "alibi", "t5")

# Families that learn one task, which no other learns.
ONLY = {"encoder": "masked_language_model", "vision": "digits"}

# Tasks whose source and target have no lengths in common.
UNEVEN = ("language_model", "text_to_text", "digits")

# What only a Transformer has, with the value that leaves it out.
TRANSFORMER_ONLY: dict[str, Any] = {
    "norm": "post",
    "norm_kind": "layer",
    "activation": "relu",
    "num_kv_heads": None,
    "encoder_attention": "full",
    "decoder_attention": "full",
    "experts": None,
    "attention_dropout": 0,
    "relu_dropout": 0,
}


def check_combinations(model: Any) -> None:
    """Raise `ConfigError` for choices of a `config.Model` that mean nothing together."""
    if model.family in ("recurrent", "convolutional"):
        _check_displaced(model)
    if model.family == "decoder":
        _check_half(model, {"encoder_attention": "full", "decoder_attention": "full"})
    if model.family in ONLY:
        _check_half(model, {"decoder_attention": "full"})
    if model.image_levels < 2:
        raise ConfigError(f"model: image_levels={model.image_levels} must be at least 2: dark and bright.")
    if model.image_size % model.patch_size:
        raise ConfigError(f"model: patch_size={model.patch_size} does not divide image_size={model.image_size}.")
    places = (model.image_size // model.patch_size) ** 2 + 1
    if model.family == "vision" and model.bounded and model.max_positions < places:
        raise ConfigError(
            f"model: max_positions={model.max_positions} is too few for a class token and {places - 1:,} patches."
        )
    if model.num_kv_heads is not None and model.num_heads % model.num_kv_heads:
        raise ConfigError(
            f"model: num_heads={model.num_heads} cannot share num_kv_heads={model.num_kv_heads} evenly; choose a "
            "divisor."
        )
    if model.positions == "rotary" and model.key_width % 2:
        raise ConfigError(f"model: positions='rotary' turns pairs of numbers, so d_k={model.key_width} must be even.")
    if (model.positions == "t5" and model.t5_max_distance <= model.t5_buckets // 2) or model.t5_buckets % 4:
        raise ConfigError(
            f"model: t5_buckets={model.t5_buckets} must be a multiple of 4, with t5_max_distance="
            f"{model.t5_max_distance} above half of it."
        )
    if model.decoder_attention == "linformer":
        raise ConfigError(
            "model: decoder_attention='linformer' mixes all positions of a sentence into a fixed number, later ones "
            "too, so it cannot be causal; it is for encoder_attention alone."
        )
    for side in ("encoder_attention", "decoder_attention"):
        kind = getattr(model, side)
        if kind in ("performer", "linformer") and model.positions in RELATIVE:
            raise ConfigError(
                f"model: positions={model.positions!r} changes the score of each pair of positions, and "
                f"{side}={kind!r} has none; choose sinusoidal or learned ones."
            )
        if kind == "performer" and model.attention_dropout:
            raise ConfigError(
                f"model: {side}='performer' has no attention weights to drop; attention_dropout="
                f"{model.attention_dropout} must be 0."
            )
    if model.experts is not None and model.experts_per_token > model.experts:
        raise ConfigError(
            f"model: experts_per_token={model.experts_per_token} cannot be picked out of experts={model.experts}."
        )
    if model.expert_balance < 0:
        raise ConfigError(f"model: expert_balance={model.expert_balance} must not be negative.")


def check_computation(model: Any, training: Any) -> None:
    """Raise `ConfigError` where `config.Training` asks for what the `config.Model` cannot be computed by."""
    kernel = training.attention_kernel
    if model.family != "transformer" and (kernel != "xla" or training.rematerialise):
        raise ConfigError(
            f"training: attention_kernel and rematerialise are for a Transformer; family={model.family!r} has neither."
        )
    if model.experts is not None and training.accumulation > 1:
        raise ConfigError(
            f"training: accumulation={training.accumulation} would count how evenly experts are picked by parts of a "
            f"batch, which is not the batch's; leave it at 1 with model.experts={model.experts}."
        )
    if kernel in ("blockwise", "cudnn") and model.attention_dropout:
        raise ConfigError(
            f"training: attention_kernel={kernel!r} has no dropout on the attention weights; attention_dropout="
            f"{model.attention_dropout} must be 0."
        )
    if kernel == "cudnn":
        _check_cudnn(model)


def check_task(model: Any, data: Any) -> None:
    """Raise `ConfigError` where a `config.Model` cannot learn what `config.Data` asks for."""
    if model.family == "decoder" and model.bounded and model.max_positions < 2 * data.max_length:
        raise ConfigError(
            f"model: family='decoder' reads source and target as one, so max_positions={model.max_positions} must be "
            f"at least twice data.max_length={data.max_length}."
        )
    if data.task == "digits" and (model.image_size, model.image_levels) != (8, 17):
        raise ConfigError(
            f"model: image_size={model.image_size} and image_levels={model.image_levels} must be 8 and 17, as "
            "task='digits' has them."
        )
    if data.max_length_ratio is not None and data.task in UNEVEN:
        raise ConfigError(
            f"data: the sides of task={data.task!r} differ in length by what they are, so max_length_ratio="
            f"{data.max_length_ratio} would drop what is to be learned; leave it out."
        )
    if data.drop_identical and data.task == "masked_language_model":
        raise ConfigError("data: both sides of task='masked_language_model' are one text; drop_identical drops all.")
    for family, task in ONLY.items():
        if (model.family == family) != (data.task == task):
            raise ConfigError(
                f"data: task={task!r} is for model.family={family!r}, which does nothing else; this is task="
                f"{data.task!r} for family={model.family!r}."
            )


def _check_cudnn(model: Any) -> None:
    if model.key_width != model.value_width or model.key_width % 8 or model.key_width > 128:
        raise ConfigError(
            f"training: attention_kernel='cudnn' needs d_k = d_v, a multiple of 8 up to 128, not "
            f"{model.key_width} and {model.value_width}."
        )
    for name, plain in (("num_kv_heads", None), ("encoder_attention", "full"), ("decoder_attention", "full")):
        if getattr(model, name) != plain:
            raise ConfigError(
                f"training: attention_kernel='cudnn' computes the paper's attention, not {name}="
                f"{getattr(model, name)!r}."
            )
    if model.positions in RELATIVE:
        raise ConfigError(
            f"training: attention_kernel='cudnn' computes the paper's attention, not positions={model.positions!r}."
        )


def _check_half(model: Any, absent: dict[str, Any]) -> None:
    """Families of one stack."""
    for name, value in absent.items():
        if getattr(model, name) != value:
            raise ConfigError(
                f"model: family={model.family!r} is not written for {name}={getattr(model, name)!r}; leave it at "
                f"{value!r}."
            )
    if model.positions == "t5":
        raise ConfigError(
            f"model: positions='t5' has a table for an encoder and one for a decoder, and family={model.family!r} is "
            "one of them alone; choose others."
        )


def _check_displaced(model: Any) -> None:
    for name, absent in TRANSFORMER_ONLY.items():
        if getattr(model, name) != absent:
            raise ConfigError(
                f"model: family={model.family!r} has no {name}; leave it at {absent!r} instead of "
                f"{getattr(model, name)!r}."
            )
    if model.positions != "sinusoidal" and (model.family == "recurrent" or model.positions != "learned"):
        raise ConfigError(f"model: family={model.family!r} has no positions={model.positions!r}; leave it out.")
    if model.family == "recurrent" and model.d_model % 2:
        raise ConfigError(
            f"model: family='recurrent' reads in two directions, so d_model={model.d_model} must be even."
        )
    if model.family == "convolutional" and model.kernel_width % 2 == 0:
        raise ConfigError(f"model: kernel_width={model.kernel_width} must be odd, to have a middle.")
