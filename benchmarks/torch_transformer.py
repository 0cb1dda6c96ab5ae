"""The peer: the same model and training step in PyTorch, eager, as its own layers and guides have people write it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from benchmarks.sizes import Size


class Transformer(nn.Module):
    """torch.nn.Transformer's layers over one shared embedding, with sinusoids."""

    def __init__(self, size: Size):
        super().__init__()
        model, longest = size.model, max(size.shape.source, size.shape.target)
        self.embedding = nn.Embedding(size.vocabulary, model.d_model)
        nn.init.normal_(self.embedding.weight, std=model.d_model**-0.5)
        self.layers = nn.Transformer(
            model.d_model,
            model.num_heads,
            model.num_layers,
            model.num_layers,
            model.d_ff,
            model.dropout,
            batch_first=True,
        )
        angles = torch.arange(longest)[:, None] / 10000 ** (torch.arange(0, model.d_model, 2) / model.d_model)
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], -1).flatten(1))
        self.dropout = nn.Dropout(model.dropout)
        self.scale = model.d_model**0.5

    def forward(self, source: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """Logits [B, T, Z] of what follows each of the decoder's inputs [B, T]."""
        causal = nn.Transformer.generate_square_subsequent_mask(inputs.shape[1])
        padding = source == 0
        y = self.layers(
            self._embed(source),
            self._embed(inputs),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return functional.linear(y, self.embedding.weight)

    def _embed(self, ids: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.embedding(ids) * self.scale + self.positions[: ids.shape[1]])


class Step:
    """One optimizer step on a fixed batch of random tokens."""

    def __init__(self, size: Size, compiled: bool = False):
        rows, generator = size.shape.rows, torch.Generator().manual_seed(0)
        self.source, self.target = (
            torch.randint(4, size.vocabulary, (rows, length), generator=generator) for length in size.shape[:2]
        )
        self.inputs = torch.cat([torch.full((rows, 1), 2), self.target[:, :-1]], dim=1)
        self.network = Transformer(size).train()
        self.adam = torch.optim.Adam(self.network.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
        self.forward = torch.compile(self.network) if compiled else self.network

    def __call__(self) -> float:
        """Take the step; returns the loss before it."""
        logits = self.forward(self.source, self.inputs)
        loss = functional.cross_entropy(logits.flatten(0, 1), self.target.flatten(), label_smoothing=0.1)
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        self.adam.step()
        return loss.item()
