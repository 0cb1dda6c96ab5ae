"""What of a config decides the parameters after every step, and the hash that names it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from t2t_jax import config, config_fields

# What may differ between a run and its continuation: it does not change the parameters after a given step.
# The corpus may move: its content is compared by hash, not by place.
NOT_TRAJECTORY = frozenset(
    {"name", "mesh", "decoding", "evaluation", "data.directory", "data.store", "data.tokenizer_from"}
    | {f"training.{name}" for name in ("num_steps", "log_every", "trackers", "deterministic", "patience")}
    | {f"training.{name}" for name in ("attention_kernel", "rematerialise")}
    | {f"training.{name}" for name in ("checkpoint_every", "checkpoint_unit", "keep_checkpoints", "average_last")}
)


def fields(experiment: config.Experiment) -> dict[str, Any]:
    """The flattened fields that decide the parameters after every step; two ways to say the same thing are equal."""
    flat = config_fields.flatten(experiment)
    flat |= {"model.d_k": experiment.model.key_width, "model.d_v": experiment.model.value_width}
    if experiment.model.num_kv_heads == experiment.model.num_heads:
        flat["model.num_kv_heads"] = None
    if experiment.optimizer.learning_rate_factor is None and experiment.optimizer.peak_learning_rate is None:
        flat["optimizer.learning_rate_factor"] = 1.0
    return {
        path: value
        for path, value in flat.items()
        if path not in NOT_TRAJECTORY and path.split(".")[0] not in NOT_TRAJECTORY
    }


def config_hash(experiment: config.Experiment) -> str:
    """Twelve hexadecimal digits that name the trajectory; equal for two runs that differ in mesh, length or logging.

    Fields at their defaults are left out, so that fields may be added; a default must therefore never change.
    """
    defaults = fields(config.Experiment())
    chosen = {path: value for path, value in fields(experiment).items() if value != defaults[path]}
    numbers_alike = {path: float(value) if type(value) is int else value for path, value in chosen.items()}  # 1 == 1.0
    canonical = json.dumps(numbers_alike, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]
