"""Logits, loss and gradients against PyTorch: its own transformer layers, and plain tensors where those don't reach."""

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
MODEL = config.Model(num_layers=2, d_model=16, d_ff=24, num_heads=4, vocabulary_multiple=8, max_positions=8)


def jax_results(settings, params):
    """Logits, loss, and gradients by the parameter's path."""
    transformer = model.build(settings, VOCABULARY)

    def loss(params):
        logits = transformer.apply({"params": params}, SOURCE, TARGET, deterministic=True)
        total = cross_entropy(logits, TARGET, VOCABULARY, SMOOTHING)
        return total.smoothed / total.tokens, logits

    (value, logits), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    return np.asarray(logits)[..., :VOCABULARY], float(value), by_path(gradient)


def by_path(params):
    return {path: np.asarray(leaf) for path, leaf in flatten_dict(params, sep="/").items()}


def torch_loss(logits):
    return F.cross_entropy(
        logits.flatten(0, 1), torch.tensor(TARGET).flatten(), label_smoothing=SMOOTHING, ignore_index=PAD_ID
    )


def decoder_inputs():
    return F.pad(torch.tensor(TARGET)[:, :-1], (1, 0), value=BOS_ID)


def sinusoids(length, width):
    positions, pairs = torch.arange(length)[:, None], torch.arange(0, width, 2)
    table = torch.empty(length, width)
    table[:, 0::2] = torch.sin(positions / 10000 ** (pairs / width))
    table[:, 1::2] = torch.cos(positions / 10000 ** (pairs / width))
    return table


def assert_close(actual, expected, name=""):
    """Largest difference within 1e-4 of the largest value."""
    assert actual.shape == expected.shape, name
    assert np.abs(actual - expected).max() <= 1e-4 * np.abs(expected).max(), name


def assert_same_gradients(actual, expected):
    """By path; of the embedding only the vocabulary's own rows have a counterpart, the filling ones must not move."""
    assert not actual["embedding"][VOCABULARY:].any()
    actual = actual | {"embedding": actual["embedding"][:VOCABULARY]}
    assert actual.keys() == expected.keys()
    for path, gradient in expected.items():
        assert_close(actual[path], gradient, path)


class LayersOfTorch(torch.nn.Module):
    """Torch's encoder and decoder between tied embeddings. Its attention has biases, which stay at zero."""

    def __init__(self, settings):
        super().__init__()
        d_model, layers, pre = settings.d_model, settings.num_layers, settings.norm == "pre"
        sizes = (d_model, settings.num_heads, settings.d_ff)
        options = dict(dropout=0.0, layer_norm_eps=EPSILON, batch_first=True, norm_first=pre)
        last = [torch.nn.LayerNorm(d_model, EPSILON) if pre else None for _ in range(2)]
        self.embedding = torch.nn.Embedding(VOCABULARY, d_model)
        encoder = torch.nn.TransformerEncoderLayer(*sizes, **options)
        self.encoder = torch.nn.TransformerEncoder(encoder, layers, last[0], enable_nested_tensor=False)
        decoder = torch.nn.TransformerDecoderLayer(*sizes, **options)
        self.decoder = torch.nn.TransformerDecoder(decoder, layers, last[1])

    def embed(self, ids):
        width = self.embedding.embedding_dim
        return self.embedding(ids) * width**0.5 + sinusoids(ids.shape[1], width)

    def forward(self):
        padding = torch.tensor(SOURCE) == PAD_ID
        memory = self.encoder(self.embed(torch.tensor(SOURCE)), src_key_padding_mask=padding)
        future = torch.ones(TARGET.shape[1], TARGET.shape[1]).triu(1).bool()
        y = self.decoder(self.embed(decoder_inputs()), memory, tgt_mask=future, memory_key_padding_mask=padding)
        return y @ self.embedding.weight.T

    def pairs(self, settings):
        """(path in Flax, from Flax's layout to torch's, torch's parameter or part of it)."""
        width = settings.d_model
        yield "embedding", lambda w: w[:VOCABULARY], (self.embedding.weight, slice(None))
        for stack, torch_stack in (("encoder", self.encoder), ("decoder", self.decoder)):
            for i, layer in enumerate(torch_stack.layers):
                attentions = {"self_attention": layer.self_attn}
                if stack == "decoder":
                    attentions["cross_attention"] = layer.multihead_attn
                for name, attention in attentions.items():
                    for part, projection in enumerate(("query", "key", "value")):
                        rows = slice(part * width, (part + 1) * width)
                        path = f"{stack}_{i}/{name}/{projection}"
                        yield path, lambda w: w.reshape(width, -1).T, (attention.in_proj_weight, rows)
                    path = f"{stack}_{i}/{name}/output"
                    yield path, lambda w: w.reshape(-1, width).T, (attention.out_proj.weight, slice(None))
                for number, linear in ((1, layer.linear1), (2, layer.linear2)):
                    yield f"{stack}_{i}/feed_forward/w{number}", np.transpose, (linear.weight, slice(None))
                    yield f"{stack}_{i}/feed_forward/b{number}", np.copy, (linear.bias, slice(None))
                for number in range(len(attentions) + 1):
                    norm = getattr(layer, f"norm{number + 1}")
                    yield from self._norm_pairs(f"{stack}_{i}/residuals_{number}/LayerNorm_0", norm)
            if torch_stack.norm is not None:
                yield from self._norm_pairs(f"{stack}_norm", torch_stack.norm)

    @staticmethod
    def _norm_pairs(path, norm):
        yield f"{path}/norm/scale", np.copy, (norm.weight, slice(None))
        yield f"{path}/norm/bias", np.copy, (norm.bias, slice(None))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_equal_to_torchs_own_layers(norm, random_params):
    settings = config.replace_norm(MODEL, norm)
    params = random_params(model.build(settings, VOCABULARY))
    logits, loss, gradient = jax_results(settings, params)

    torch_model = LayersOfTorch(settings)
    pairs = list(torch_model.pairs(settings))
    with torch.no_grad():
        for path, convert, (parameter, rows) in pairs:
            parameter[rows] = torch.tensor(convert(by_path(params)[path]).copy())
    torch_logits = torch_model()
    torch_value = torch_loss(torch_logits)
    torch_value.backward()

    assert_close(logits, torch_logits.detach().numpy())
    assert loss == pytest.approx(torch_value.item(), rel=1e-4)


