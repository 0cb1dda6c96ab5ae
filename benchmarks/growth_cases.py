"""The training steps whose growth is measured, and what the model's sizes say that each should cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from t2t_jax import config
from t2t_jax.data.batching import Shape
from t2t_jax.training.flops import step_flops

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Case:
    """One training step: a Transformer of so many layers on either side, on a batch full of tokens."""

    layers: int = 2
    length: int = 64  # of source and of target
    rows: int = 16
    d_model: int = 256
    vocabulary: int = 8_000
    devices: int = 1
    axis: Literal["data", "fsdp"] = "data"  # of the mesh: what is divided, the rows alone or the state too

    @property
    def model(self) -> config.Model:
        """Heads of 64, a feed-forward network four times as wide, as in the paper."""
        return config.Model(
            num_layers=self.layers, d_model=self.d_model, d_ff=4 * self.d_model, num_heads=max(1, self.d_model // 64)
        )

    @property
    def mesh(self) -> config.Mesh:
        return config.Mesh(**({"data": 1, "fsdp": 1} | {self.axis: self.devices}))

    @property
    def shape(self) -> Shape:
        return Shape(self.length, self.length, self.rows)

    @property
    def flops(self) -> int:
        """Of all devices."""
        return step_flops(self.model, self.vocabulary, self.shape)

    @property
    def parameters(self) -> int:
        """Numbers kept, the vocabulary's filling included: matrices, the feed-forward networks' biases, norms."""
        sizes, d, f = self.model, self.d_model, self.model.d_ff
        attention = 2 * d * sizes.num_heads * (sizes.key_width + sizes.value_width)
        encoder = attention + 2 * d * f + f + d + 2 * 2 * d
        decoder = 2 * attention + 2 * d * f + f + d + 3 * 2 * d
        return sizes.padded_vocabulary(self.vocabulary) * d + self.layers * (encoder + decoder)

    def predicted_arguments(self) -> float:
        """Bytes a device holds between steps: parameters and Adam's two moments in float32, and the batch."""
        return FLOAT * (3 * self.parameters / self._state_parts + sum(self.shape[:2]) * self.rows / self.devices)

    def predicted_temporaries(self) -> float:
        """Bytes a device needs meanwhile: a gradient, and once what the way back needs of the way forward.

        Per position of a layer: attention's input, queries, keys, values, joined heads and the sum before the norm; the
        feed-forward network's input, inner units and the sum before the norm. Per head the weights of every query and
        key. At the end the distribution over the vocabulary.
        """
        sizes, (source, target, rows) = self.model, self.shape
        d, f = sizes.d_model, sizes.d_ff
        k, v = sizes.num_heads * sizes.key_width, sizes.num_heads * sizes.value_width

        def attention(queries: int, memory: int) -> int:
            return queries * (2 * d + k + v) + memory * (k + v) + sizes.num_heads * queries * memory

        encoder = attention(source, source) + source * (2 * d + f)
        decoder = attention(target, target) + attention(target, source) + target * (2 * d + f)
        vocabulary = target * sizes.padded_vocabulary(self.vocabulary)
        activations = rows / self.devices * (sizes.num_layers * (encoder + decoder) + vocabulary)
        return FLOAT * (self.parameters / self._state_parts + activations)

    @property
    def _state_parts(self) -> int:
        return self.devices if self.axis == "fsdp" else 1


@dataclass(frozen=True)
class Sweep:
    """Cases that differ in one size."""

    title: str
    lead: str
    x_label: str
    symbol: str
    cases: dict[int, Case]


def sweeps(quick: bool) -> dict[str, Sweep]:
    """What is varied, the rest being that of `Case`; `quick` leaves out the expensive half."""

    def up_to(most_if_quick: int, sizes: Sequence[int]) -> list[int]:
        return [size for size in sizes if size <= most_if_quick or not quick]

    base, few = Case(), Case(rows=4)
    return {
        "length": Sweep(
            "Sequence length",
            "Four pairs of n source and n target tokens. Projections, feed-forward networks and logits cost the same "
            "for every token; attention's products and weights grow with the square of the length.",
            "tokens a sentence",
            "n",
            {n: replace(few, length=n) for n in up_to(256, (16, 32, 64, 128, 256, 512, 1024))},
        ),
        "width": Sweep(
            "Width",
            "1,024 + 1,024 tokens. The layers' products grow with the square of d_model, logits and attention in "
            "proportion to it.",
            "d_model",
            "d",
            {d: replace(base, d_model=d) for d in up_to(256, (64, 128, 256, 512))},
        ),
        "vocabulary": Sweep(
            "Vocabulary",
            "1,024 + 1,024 tokens. Every target token gets a logit for every entry; one matrix, with its gradient and "
            "two moments, is embedding and projection.",
            "entries of the vocabulary",
            "V",
            {z: replace(base, vocabulary=z) for z in up_to(16_000, (1000, 4000, 16_000, 64_000))},
        ),
    }


def device_cases(quick: bool) -> dict[str, dict[int, Case]]:
    """The same step on meshes of 1, 2, 4 … devices, by the mesh's axis."""
    counts = (1, 2, 4) if quick else (1, 2, 4, 8)
    # One device is one device, whatever its axis is called.
    return {axis: {n: Case(devices=n, axis=axis) if n > 1 else Case() for n in counts} for axis in ("data", "fsdp")}
