"""Logits, loss and gradients against PyTorch: its own transformer layers, and plain tensors where those don't reach."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from t2t_jax import config, model
from t2t_jax.symbols import BOS_ID, PAD_ID
from t2t_jax.training.loss import cross_entropy

torch = pytest.importorskip("torch")
F = torch.nn.functional

VOCABULARY, SMOOTHING, EPSILON = 13, 0.1, 1e-6
SOURCE = np.array([[5, 7, 9, 4, 3], [6, 12, 3, 0, 0], [8, 3, 0, 0, 0]])
TARGET = np.array([[4, 10, 3, 0, 0, 0], [11, 5, 6, 7, 12, 3], [9, 8, 3, 0, 0, 0]])
MODEL = config.Model(
    num_layers=1, d_model=16, d_ff=24, num_heads=4, attention_dropout=0.1, relu_dropout=0.1, vocabulary_multiple=8,
    max_positions=8,
)  # fmt: skip


def by_path(params):
    return {path: np.asarray(leaf) for path, leaf in flatten_dict(params, sep="/").items()}


def in_jax(settings, params):
    """Logits, loss and the gradients by their parameter's path."""
    transformer = model.build(settings, VOCABULARY)

    def mean_loss(params):
        logits = transformer.apply({"params": params}, SOURCE, TARGET, deterministic=True)
        unprojected = transformer.apply({"params": params}, SOURCE, TARGET, deterministic=True, method="unprojected")
        loss = cross_entropy(unprojected, TARGET, VOCABULARY, SMOOTHING)
        return loss.smoothed / loss.tokens, logits[..., :VOCABULARY]

    (loss, logits), gradient = jax.jit(jax.value_and_grad(mean_loss, has_aux=True))(params)
    return logits, loss, by_path(gradient)


def in_layers_of_torch(settings, params):
    """The same from torch's layers, gradients in Flax's layout."""
    network = LayersOfTorch(settings)
    places = dict(network.places())
    for path, (parameter, part, parts) in places.items():
        chunk = parameter.data.chunk(parts)[part]
        chunk.copy_(torch.tensor(params[path].reshape(chunk.shape[::-1]).T.copy()))
    network.embedding.weight.data = torch.tensor(params["embedding"][:VOCABULARY])
    logits = network()
    loss = torch_loss(logits)
    loss.backward()
    gradient = {
        path: parameter.grad.chunk(parts)[part].numpy().T.reshape(params[path].shape)
        for path, (parameter, part, parts) in places.items()
    }
    return logits.detach(), loss.item(), gradient | {"embedding": network.embedding.weight.grad.numpy()}


class LayersOfTorch(torch.nn.Module):
    """Torch's encoder and decoder over tied embeddings. Its attention has biases, which stay at zero."""

    def __init__(self, settings):
        super().__init__()
        pre = settings.norm == "pre"
        sizes = (settings.d_model, settings.num_heads, settings.d_ff)
        options = {"dropout": 0.0, "layer_norm_eps": EPSILON, "batch_first": True, "norm_first": pre}
        last = [torch.nn.LayerNorm(settings.d_model, EPSILON) if pre else None for _ in range(2)]
        self.embedding = torch.nn.Embedding(VOCABULARY, settings.d_model)
        layer = torch.nn.TransformerEncoderLayer(*sizes, **options)
        self.encoder = torch.nn.TransformerEncoder(layer, settings.num_layers, last[0], enable_nested_tensor=False)
        layer = torch.nn.TransformerDecoderLayer(*sizes, **options)
        self.decoder = torch.nn.TransformerDecoder(layer, settings.num_layers, last[1])

    def forward(self):
        padding = torch.tensor(SOURCE) == PAD_ID
        memory = self.encoder(self._embed(torch.tensor(SOURCE)), src_key_padding_mask=padding)
        inputs = self._embed(decoder_inputs())
        future = torch.ones(inputs.shape[1], inputs.shape[1]).triu(1).bool()
        y = self.decoder(inputs, memory, tgt_mask=future, memory_key_padding_mask=padding)
        return y @ self.embedding.weight.T

    def _embed(self, ids):
        width = self.embedding.embedding_dim
        pairs = 10000 ** (torch.arange(0, width, 2) / width)
        angles = torch.arange(ids.shape[1])[:, None] / pairs
        positions = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        return self.embedding(ids) * width**0.5 + positions

    def places(self):
        """Path in Flax -> (torch's parameter, part, parts); torch keeps query, key and value in one. No embedding."""
        for name, stack in (("encoder", self.encoder), ("decoder", self.decoder)):
            for i, layer in enumerate(stack.layers):
                attentions = {"self_attention": layer.self_attn}
                if name == "decoder":
                    attentions["cross_attention"] = layer.multihead_attn
                for kind, attention in attentions.items():
                    for part, projection in enumerate(("query", "key", "value")):
                        yield f"{name}_{i}/{kind}/{projection}", (attention.in_proj_weight, part, 3)
                    yield f"{name}_{i}/{kind}/output", (attention.out_proj.weight, 0, 1)
                for n, linear in enumerate((layer.linear1, layer.linear2), start=1):
                    yield f"{name}_{i}/feed_forward/w{n}", (linear.weight, 0, 1)
                    yield f"{name}_{i}/feed_forward/b{n}", (linear.bias, 0, 1)
                for n in range(len(attentions) + 1):
                    norm = getattr(layer, f"norm{n + 1}")
                    yield f"{name}_{i}/residuals_{n}/LayerNorm_0/norm/scale", (norm.weight, 0, 1)
                    yield f"{name}_{i}/residuals_{n}/LayerNorm_0/norm/bias", (norm.bias, 0, 1)
            if stack.norm is not None:
                yield f"{name}_norm/norm/scale", (stack.norm.weight, 0, 1)
                yield f"{name}_norm/norm/bias", (stack.norm.bias, 0, 1)


def in_plain_torch(settings, params):
    """The same from tensors alone: post-norm, learned positions, keys and values of different widths."""
    params = params | {"embedding": params["embedding"][:VOCABULARY]}
    p = {path: torch.tensor(leaf, requires_grad=True) for path, leaf in params.items()}

    def embed(ids):
        return p["embedding"][ids] * settings.d_model**0.5 + p["positions/table"][: ids.shape[1]]

    def attend(path, x, memory, allowed):
        def project(y, name):
            return (y @ p[f"{path}/{name}"].flatten(1)).unflatten(2, p[f"{path}/{name}"].shape[1:]).transpose(1, 2)

        queries, keys, values = project(x, "query"), project(memory, "key"), project(memory, "value")
        scores = queries @ keys.transpose(2, 3) / settings.d_k**0.5
        weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
        return (weights @ values).transpose(1, 2).flatten(2) @ p[f"{path}/output"].flatten(0, 1)

    def add_and_norm(path, x, y):
        norm = f"{path}/LayerNorm_0/norm"
        return F.layer_norm(x + y, (settings.d_model,), p[f"{norm}/scale"], p[f"{norm}/bias"], EPSILON)

    def feed_forward(path, x):
        return F.relu(x @ p[f"{path}/w1"] + p[f"{path}/b1"]) @ p[f"{path}/w2"] + p[f"{path}/b2"]

    real = (torch.tensor(SOURCE) != PAD_ID)[:, None, None, :]
    past = torch.ones(TARGET.shape[1], TARGET.shape[1]).tril().bool()
    x = embed(torch.tensor(SOURCE))
    for layer in (f"encoder_{i}" for i in range(settings.num_layers)):
        x = add_and_norm(f"{layer}/residuals_0", x, attend(f"{layer}/self_attention", x, x, real))
        x = add_and_norm(f"{layer}/residuals_1", x, feed_forward(f"{layer}/feed_forward", x))
    y = embed(decoder_inputs())
    for layer in (f"decoder_{i}" for i in range(settings.num_layers)):
        y = add_and_norm(f"{layer}/residuals_0", y, attend(f"{layer}/self_attention", y, y, past))
        y = add_and_norm(f"{layer}/residuals_1", y, attend(f"{layer}/cross_attention", y, x, real))
        y = add_and_norm(f"{layer}/residuals_2", y, feed_forward(f"{layer}/feed_forward", y))
    logits = y @ p["embedding"].T
    loss = torch_loss(logits)
    loss.backward()
    return logits.detach(), loss.item(), {path: leaf.grad.numpy() for path, leaf in p.items()}


def decoder_inputs():
    return F.pad(torch.tensor(TARGET)[:, :-1], (1, 0), value=BOS_ID)


def torch_loss(logits):
    targets = torch.tensor(TARGET).flatten()
    return F.cross_entropy(logits.flatten(0, 1), targets, label_smoothing=SMOOTHING, ignore_index=PAD_ID)


def assert_close(actual, expected, name):
    """The largest difference is within 1e-4 of the largest value."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape, name
    assert np.abs(actual - expected).max() <= 1e-4 * np.abs(expected).max(), name


@pytest.mark.parametrize(
    ("settings", "in_torch"),
    [
        pytest.param(replace(MODEL, num_layers=2), in_layers_of_torch, id="post-norm"),
        pytest.param(replace(MODEL, norm="pre"), in_layers_of_torch, id="pre-norm"),
        pytest.param(replace(MODEL, d_k=3, d_v=5, positions="learned"), in_plain_torch, id="d_k is not d_v"),
    ],
)
def test_logits_loss_and_gradients_equal_torchs(settings, in_torch, random_params):
    params = random_params(model.build(settings, VOCABULARY))
    logits, loss, gradient = in_jax(settings, params)
    expected_logits, expected_loss, expected_gradient = in_torch(settings, by_path(params))

    assert_close(logits, expected_logits, "logits")
    assert_close(loss, expected_loss, "loss")
    # Torch has the vocabulary's own rows only; those that fill it up must not move at all.
    assert not gradient["embedding"][VOCABULARY:].any()
    gradient["embedding"] = gradient["embedding"][:VOCABULARY]
    assert gradient.keys() == expected_gradient.keys()
    for path in gradient:
        assert_close(gradient[path], expected_gradient[path], path)
