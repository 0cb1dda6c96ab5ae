"""The recurrent and the convolutional model against PyTorch's cells and convolutions, and their formulas in NumPy."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import linen as nn

from t2t_jax import config, model
from t2t_jax.model.recurrent import Recurrence
from t2t_jax.symbols import BOS_ID, PAD_ID

VOCABULARY = 11
SOURCE = np.array([[5, 7, 3, 0, 0], [6, 8, 9, 4, 3]])
TARGET = np.array([[4, 10, 6, 3], [9, 3, 0, 0]])
REAL = SOURCE != PAD_ID
RNG = np.random.default_rng(0)
SMALL = config.Model(num_layers=2, d_model=8, vocabulary_multiple=1, family="recurrent")


def found_by(settings, random_params):
    """The model's logits, and its parameters as float64."""
    module = model.build(settings, VOCABULARY)
    params = random_params(module)
    run = jax.jit(lambda p: module.apply({"params": p}, SOURCE, TARGET, deterministic=True))
    return np.asarray(run(params)), jax.tree.map(np.float64, params)


def softmax(x):
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_layer_is_torchs_in_both_directions(cell, random_params):
    torch = pytest.importorskip("torch")
    x = RNG.standard_normal((2, 5, 6)).astype(np.float32)
    layer = Recurrence(config.Model(recurrent_cell=cell), 6, 4, np.float32)
    shapes = nn.unbox(jax.eval_shape(lambda: layer.init(jax.random.key(0), x)))["params"]
    params = jax.tree.map(lambda leaf: (0.5 * RNG.standard_normal(leaf.shape)).astype(np.float32), shapes)
    theirs = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell](6, 4, batch_first=True, bidirectional=True)
    extra = np.zeros_like(params["bias"])
    if cell == "lstm":
        extra[1] = 1  # the forget gate's
    for end in ("", "_reverse"):
        for name, value in (("weight_ih", params["input"]), ("weight_hh", params["state"])):
            getattr(theirs, f"{name}_l0{end}").data = torch.tensor(value.reshape(len(value), -1).T.copy())
        for name, value in (("bias_ih", params["bias"]), ("bias_hh", extra)):
            getattr(theirs, f"{name}_l0{end}").data = torch.tensor(value.reshape(-1))
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        torch.tensor(x), torch.tensor(REAL.sum(1)), batch_first=True, enforce_sorted=False
    )
    expected = torch.nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)[0].detach().numpy()
    for reverse, half in ((False, slice(0, 4)), (True, slice(4, 8))):
        ours = jax.jit(lambda p, r=reverse: layer.apply({"params": p}, x, REAL, reverse=r))(params)
        np.testing.assert_allclose(np.asarray(ours)[REAL], expected[..., half][REAL], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_recurrent_model_a_word_at_a_time(cell, random_params):
    logits, p = found_by(replace(SMALL, recurrent_cell=cell), random_params)

    def cell_of(layer, x, state):
        """(what is seen, the state) after one input [I]."""
        into, back = (
            np.einsum("i,igu->gu", x, layer["input"]) + layer["bias"],
            np.einsum("i,igu->gu", state[0], layer["state"]),
        )
        if cell == "gru":
            r, z = (sigmoid(into[i] + back[i]) for i in range(2))
            return [(1 - z) * np.tanh(into[2] + r * back[2]) + z * state[0]]
        i, f, g, o = into + back
        c = sigmoid(f + 1) * state[1] + sigmoid(i) * np.tanh(g)
        return [sigmoid(o) * np.tanh(c), c]

    def read(layer, inputs):
        state, seen = [np.zeros(4)] * 2, []
        for x in inputs:
            state = cell_of(layer, x, state)
            seen.append(state[0])
        return seen

    for b in range(2):
        x = p["embedding"][SOURCE[b][REAL[b]]] * 8**0.5
        for i in range(2):
            forwards, backwards = (p[f"encoder_{i}_{way}"] for way in range(2))
            y = np.concatenate([read(forwards, x), read(backwards, x[::-1])[::-1]], axis=-1)
            x = y + (x if i else 0)
        memory, attention = x, p["attention"]
        first = np.tanh(memory[0] @ p["first"] + p["first_bias"])
        bottom, top = [first, np.zeros(8)], [np.zeros(8)] * 2
        for t, word in enumerate([BOS_ID, *TARGET[b][:-1]]):
            e = p["embedding"][word] * 8**0.5
            inner = np.tanh(bottom[0] @ attention["query"] + memory @ attention["key"] + attention["bias"])
            context = softmax(inner @ attention["score"]) @ memory
            bottom = cell_of(p["decoder_0"], np.concatenate([e, context]), bottom)
            top = cell_of(p["decoder_1"], np.concatenate([bottom[0], context]), top)
            out = np.tanh(np.concatenate([bottom[0] + top[0], context, e]) @ p["last"] + p["last_bias"])
            if TARGET[b, t] != PAD_ID:
                np.testing.assert_allclose(logits[b, t], p["embedding"] @ out, rtol=1e-5, atol=1e-5)


def test_the_convolutional_model_by_torchs_convolutions(random_params):
    torch = pytest.importorskip("torch")
    settings = config.Model(
        num_layers=2, d_model=8, vocabulary_multiple=1, family="convolutional", kernel_width=3, positions="learned",
        max_positions=9,
    )  # fmt: skip
    logits, p = found_by(settings, random_params)

    def convolved(layer, x, before):
        """torch's `conv1d` and `glu` of x [n, D]."""
        weight = torch.tensor(layer["convolution"].reshape(3, 8, 16).transpose(2, 1, 0).copy())
        filled = torch.tensor(np.pad(x, ((before, 2 - before), (0, 0))).T[None].copy())
        found = torch.nn.functional.conv1d(filled, weight, torch.tensor(layer["bias"].reshape(-1)))
        return torch.nn.functional.glu(found, dim=1)[0].numpy().T

    def embedded(words):
        return p["embedding"][words] + p["positions"]["table"][: len(words)] / np.sqrt(8)

    for b in range(2):
        x = e = embedded(SOURCE[b][REAL[b]])
        for i in range(2):
            x = (convolved(p[f"encoder_{i}"], x, 1) + x) * np.sqrt(0.5)
        keys, values = x, x + e
        words = TARGET[b][TARGET[b] != PAD_ID]
        x = e = embedded([BOS_ID, *words[:-1]])
        for i in range(2):
            layer = p[f"decoder_{i}"]
            h = convolved(layer["convolution"], x, 2)
            weights = softmax((h @ layer["query"] + layer["query_bias"] + e) @ keys.T)
            x = ((h + weights @ values * np.sqrt(len(keys))) * np.sqrt(0.5) + x) * np.sqrt(0.5)
        expected = (x @ p["last"] + p["last_bias"]) @ p["embedding"].T
        np.testing.assert_allclose(logits[b, : len(words)], expected, rtol=1e-5, atol=1e-5)
