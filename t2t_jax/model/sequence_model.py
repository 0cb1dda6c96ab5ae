"""What every model here is to training: one embedding at both ends, and what is the model's own between."""

from __future__ import annotations

import abc
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from t2t_jax import config
from t2t_jax.model.attention import MASKED
from t2t_jax.model.dropout import Dropout
from t2t_jax.model.parameters import gather, parameter


class Unprojected(NamedTuple):
    """A model's output and what makes logits of it: x table^T + bias."""

    x: jax.Array  # [B, T, D]
    gold: jax.Array  # [B, T, D] in float32, the table's rows of the targets
    table: jax.Array  # [Z, D] in float32, the embedding matrix
    bias: jax.Array | None  # [Z]


class SequenceModel(nn.Module, abc.ABC):
    """Token ids to logits over one shared vocabulary, section 3.4; padding is id 0 and never attended to.

    Use it through `init` and `apply`: `apply(variables, source, target, deterministic=True)` gives logits. Dropout,
    when not deterministic, draws from the rng collection "dropout". A kind of model is what it does in `unprojected`.
    """

    config: config.Model
    vocabulary_size: int
    dtype: jnp.dtype = jnp.float32
    fused: str | None = None
    """A kernel that computes attention, instead of plain products; see `config.Training.attention_kernel`."""
    rematerialise: bool = False
    """Keep only what goes from layer to layer for the gradient, and compute the rest again."""

    def setup(self) -> None:
        shape = (self.config.padded_vocabulary(self.vocabulary_size), self.config.d_model)
        axes = ("vocabulary", "embed")
        self.embedding = gather(parameter(self, "embedding", self._initial_embedding, axes, shape), axes)
        self.embedding_dropout = Dropout(self.config.dropout)
        if self.config.biases == "all":
            self.logits_bias = parameter(self, "logits_bias", nn.initializers.zeros, ("vocabulary",), shape[:1])

    def __call__(self, source: jax.Array, target: jax.Array, *, deterministic: bool) -> jax.Array:
        """Logits [B, T, Z] of each target token [B, T] given source [B, S], and those before if it writes in order."""
        return self._logits(self.unprojected(source, target, deterministic=deterministic).x)

    @abc.abstractmethod
    def unprojected(self, source: jax.Array, target: jax.Array, *, deterministic: bool) -> Unprojected:
        """The same up to the projection, for a loss that does the rest itself."""

    def _initial_embedding(self, key: jax.Array, shape: tuple[int, int]) -> jax.Array:
        table = nn.initializers.normal(self.config.d_model**-0.5)(key, shape)
        return jnp.where(jnp.arange(shape[0])[:, None] < self.vocabulary_size, table, 0)

    def _embed(self, rows: jax.Array, positions: jax.Array, deterministic: bool) -> jax.Array:
        """Section 3.4: the embedding's rows times sqrt(d_model), plus positions, with dropout on the sum."""
        x = rows * self.config.d_model**0.5 + positions
        x = self.embedding_dropout(x.astype(self.dtype), deterministic=deterministic)
        return nn.with_logical_constraint(x, ("batch", "length", "activation"))

    def _to_be_projected(self, x: jax.Array, gold: jax.Array) -> Unprojected:
        return Unprojected(x, gold, self.embedding, self.logits_bias if self.config.biases == "all" else None)

    def _logits(self, x: jax.Array) -> jax.Array:
        """The pre-softmax projection by the embedding matrix; the vocabulary's filling rows are masked."""
        table = self.embedding.astype(self.dtype)
        logits = jnp.einsum("btd,zd->btz", x, table, preferred_element_type=jnp.float32)
        if self.config.biases == "all":
            logits = logits + self.logits_bias
        logits = nn.with_logical_constraint(logits, ("batch", "length", "vocabulary"))
        if len(table) == self.vocabulary_size:
            return logits
        return jnp.where(jnp.arange(table.shape[0]) < self.vocabulary_size, logits, MASKED)
