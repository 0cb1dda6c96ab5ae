"""What no other tool has an equivalent of, and is refused by name before anything is written."""

from __future__ import annotations

from t2t_jax import config
from t2t_jax.errors import ConfigError

# Choices that other tools have an equivalent of, as far as each of them refuses no more.
EXPORTABLE: dict[str, tuple[object, ...]] = {
    "family": ("transformer",),
    "norm_kind": ("layer",),
    "activation": ("relu", "swish", "gelu"),
    "positions": ("sinusoidal", "learned"),
    "num_kv_heads": (None,),
    "encoder_attention": ("full",),
    "decoder_attention": ("full",),
    "experts": (None,),
}


def refuse_choices(model: config.Model, tool: str) -> None:
    """Sub-layers and families that an export does not write (docs/lineage.md).

    Raises:
      ConfigError: the model has one.
    """
    for name, known in EXPORTABLE.items():
        if getattr(model, name) not in known:
            raise ConfigError(f"model: {name}={getattr(model, name)!r} is not written for {tool}.")


def refuse_other_widths(model: config.Model, tool: str) -> None:
    """Heads whose widths don't add up to d_model: `tool` has no field for them.

    Raises:
      ConfigError: d_k or d_v is not d_model / num_heads.
    """
    for name, width in (("d_k", model.key_width), ("d_v", model.value_width)):
        if width * model.num_heads != model.d_model:
            raise ConfigError(
                f"model: {name}={width} has no equivalent in {tool}, where every head is d_model/num_heads="
                f"{model.d_model / model.num_heads:g} wide."
            )
