"""Exports of random models give the numbers of the tools that load them."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax import config, model
from t2t_jax.config import Model
from t2t_jax.data import tokenizer as tokenizers
from t2t_jax.decoding.translator import Translation, Translator
from t2t_jax.errors import ConfigError, UserError
from t2t_jax.export import ctranslate2, marian
from t2t_jax.export.target import new_directory
from t2t_jax.model import Transformer
from t2t_jax.symbols import BOS_ID, EOS_ID, PAD_ID
from t2t_jax.training.trained import Trained, unfilled

TEXT = [f"{who} {what} {where}." for who in ("Tom", "Mary", "Ähm") for what in ("sings", "ist", "läuft")
        for where in ("heute", "in town", "über Nacht", "2024")]  # fmt: skip
EXTRA = 8
TILT = 2.0  # towards the end of sentence
SMALL = Model(num_layers=2, d_model=16, d_ff=24, num_heads=2, vocabulary_multiple=64)
MARIAN = [
    SMALL,
    Model(num_layers=1, d_model=12, d_ff=20, num_heads=3, vocabulary_multiple=8, norm_epsilon=1e-5),
    dataclasses.replace(SMALL, activation="swish", biases="all", norm_epsilon=1e-5),
    dataclasses.replace(SMALL, num_layers=1, activation="gelu", norm_epsilon=1e-5),
]
CTRANSLATE2 = [
    *MARIAN,
    dataclasses.replace(SMALL, norm="pre", sinusoid_layout="concatenated"),
    dataclasses.replace(SMALL, positions="learned", norm_epsilon=1e-2),
]


@pytest.fixture(scope="module")
def tokenizer() -> tokenizers.Tokenizer:
    return tokenizers.train(config.Data(vocabulary_size=320), TEXT)


@pytest.fixture(scope="module")
def trained(random_params, tokenizer):
    """A function from a model's settings to the module and what would be exported."""

    def make(settings: Model) -> tuple[Transformer, Trained]:
        transformer = model.build(settings, tokenizer.size)
        params = random_params(transformer)
        if settings.biases == "all":
            # CTranslate2 does not forbid pad and begin of sentence; a model that repels its input repeats itself less.
            norm = params[f"decoder_{settings.num_layers - 1}"]["residuals_2"]["LayerNorm_0"]["norm"]
            norm["scale"] = -norm["scale"]
            bias = params["logits_bias"].at[jnp.array([PAD_ID, BOS_ID])].set(-30.0)
            params = params | {"logits_bias": bias.at[EOS_ID].set(TILT)}
        experiment = config.Experiment(model=settings, data=config.Data(vocabulary_size=320, max_length=64))
        return transformer, unfilled(experiment, params, tokenizer)

    return make


def refilled(transformer: Transformer, trained: Trained):
    rows = transformer.config.padded_vocabulary(trained.tokenizer.size) - trained.tokenizer.size
    filled = {
        name: np.pad(trained.params[name], ((0, rows),) + ((0, 0),) * (trained.params[name].ndim - 1))
        for name in {"embedding", "logits_bias"} & trained.params.keys()
    }
    return trained.params | filled


def ragged(rows: int, longest: int, size: int, seed: int) -> np.ndarray:
    """Random sentences that end, padded: [rows, longest]."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(4, size, (rows, longest))
    for row, length in enumerate(rng.integers(1, longest, rows)):
        ids[row, length] = EOS_ID
        ids[row, length + 1 :] = PAD_ID
    return ids


def logits(transformer: Transformer, params, source: np.ndarray, target: np.ndarray, size: int) -> np.ndarray:
    with jax.default_matmul_precision("highest"):
        found = transformer.apply({"params": params}, source, target, deterministic=True)
    return np.asarray(found)[..., :size]


def marian_logits(theirs, source: np.ndarray, target: np.ndarray, start: int, pad: int) -> np.ndarray:
    import torch

    inputs = np.concatenate([np.full_like(target[:, :1], start), target[:, :-1]], axis=1)
    with torch.inference_mode():
        found = theirs(
            input_ids=torch.tensor(source),
            attention_mask=torch.tensor(source != pad),
            decoder_input_ids=torch.tensor(inputs),
        )
    return found.logits.numpy()


@pytest.mark.parametrize("settings", MARIAN, ids=["two layers", "odd widths", "swish and biases", "gelu"])
def test_marian_gives_our_logits(settings: Model, trained, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="Marian runs on PyTorch")
    transformers = pytest.importorskip("transformers", reason="the extra `export` is not installed")
    transformer, exported = trained(settings)
    marian.write(exported, tmp_path)
    theirs, loading = transformers.MarianMTModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"] and not loading["mismatched_keys"]
    size = exported.tokenizer.size
    source, target = ragged(4, 11, size, 1), ragged(4, 9, size, 2)
    ours = logits(transformer, refilled(transformer, exported), source, target, size)
    found = marian_logits(theirs.eval(), source, target, theirs.config.decoder_start_token_id, PAD_ID)
    assert found.shape == ours.shape, "the filling rows stay here"
    real = target != PAD_ID
    # 1e-5 instead of 1e-6 in layer normalisation is a difference of 5e-6 / variance
    np.testing.assert_allclose(found[real], ours[real], atol=1e-4, rtol=0)


def test_marian_tokenizer_reads_and_writes_alike(trained, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="Marian runs on PyTorch")
    transformers = pytest.importorskip("transformers", reason="the extra `export` is not installed")
    _, exported = trained(SMALL)
    marian.write(exported, tmp_path)
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)
    lines = [*TEXT, "Emoji 😀 and 漢字", "two  spaces and\ta tab", "it's “quoted” – <b>"]
    ours = exported.tokenizer.encode(lines)
    assert theirs(lines)["input_ids"] == [[*ids, EOS_ID] for ids in ours]
    assert theirs(text_target=lines)["input_ids"] == [[*ids, EOS_ID] for ids in ours]
    assert [theirs.decode([BOS_ID, *ids, EOS_ID], skip_special_tokens=True) for ids in ours] == lines


@pytest.mark.parametrize(
    "settings",
    CTRANSLATE2,
    ids=["two layers", "odd widths", "swish and biases", "gelu", "pre-norm", "learned positions"],
)
def test_ctranslate2_gives_our_scores(settings: Model, trained, tmp_path: Path) -> None:
    """Teacher forcing: the log-probability of every token of a translation, end of sentence included."""
    peer = pytest.importorskip("ctranslate2", reason="the extra `export` is not installed")
    transformer, exported = trained(settings)
    ctranslate2.write(exported, tmp_path)
    size, pieces = exported.tokenizer.size, exported.pieces
    source, target = ragged(4, 11, size, 1), ragged(4, 9, size, 2)
    ours = logits(transformer, refilled(transformer, exported), source, target, size)
    expected = np.take_along_axis(np.asarray(jax.nn.log_softmax(ours)), target[..., None], axis=2)[..., 0]
    words = [[[pieces[i] for i in row if i not in (PAD_ID, EOS_ID)] for row in side] for side in (source, target)]
    translator = peer.Translator(str(tmp_path), compute_type="float32", intra_threads=1)
    scored = translator.score_batch(*words)
    for found, row, tokens in zip(scored, expected, target, strict=True):
        np.testing.assert_allclose(found.log_probs, row[tokens != PAD_ID], atol=1e-4, rtol=0)


def translations(exported: Trained, alpha: float) -> list[tuple[list[int], Translation]]:
    """Source ids and translation of each line; some end by themselves, some are cut at the limit."""
    decoding = config.Decoding(alpha=alpha, length_penalty="length", extra_length=EXTRA)
    translator = Translator([exported], decoding)
    sources, found = exported.tokenizer.encode(TEXT), translator.translate(TEXT)
    best = [first for first, *_ in found]
    assert {translation.cut for translation in best} == {False, True}
    assert len({translation.ids for translation in best}) > 3
    return list(zip(sources, best, strict=True))


def agree(ours: Translation, same: bool, score: float) -> bool:
    """Whether it is the same, then with the same score; else ours, with an end that they do not look at, is better."""
    assert score == pytest.approx(ours.score, abs=1e-4) if same else ours.score > score and not ours.cut
    return same


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_ctranslate2_finds_our_translations(alpha: float, trained, tmp_path: Path) -> None:
    peer = pytest.importorskip("ctranslate2", reason="the extra `export` is not installed")
    _, exported = trained(MARIAN[2])
    ctranslate2.write(exported, tmp_path)
    theirs = peer.Translator(str(tmp_path), compute_type="float32", intra_threads=1)
    pieces, same = exported.pieces, 0
    for source, ours in translations(exported, alpha):
        (found,) = theirs.translate_batch(
            [[pieces[i] for i in source]],
            beam_size=4,
            patience=1000,
            min_decoding_length=0,
            length_penalty=alpha,
            max_decoding_length=len(source) + EXTRA + (not ours.cut),
            return_scores=True,
        )
        same += agree(ours, found.hypotheses[0] == [pieces[i] for i in ours.ids], found.scores[0])
    assert same > len(TEXT) / 2


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_marian_finds_our_translations(alpha: float, trained, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="Marian runs on PyTorch")
    transformers = pytest.importorskip("transformers", reason="the extra `export` is not installed")
    _, exported = trained(MARIAN[2])
    marian.write(exported, tmp_path)
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path).eval()
    same = 0
    for source, ours in translations(exported, alpha):
        found = theirs.generate(
            torch.tensor([[*source, EOS_ID]]),
            length_penalty=alpha,
            max_length=1 + len(source) + EXTRA + (not ours.cut),
            return_dict_in_generate=True,
            output_scores=True,
        )
        alike = found.sequences[0].tolist() == [BOS_ID, *ours.ids] + [EOS_ID] * (not ours.cut)
        same += agree(ours, alike, float(found.sequences_scores[0]))
    assert same > len(TEXT) / 2


def test_int8_keeps_the_model_and_shrinks_it(trained, tmp_path: Path) -> None:
    peer = pytest.importorskip("ctranslate2", reason="the extra `export` is not installed")
    _, exported = trained(SMALL)
    for kind in ("float32", "int8"):
        (tmp_path / kind).mkdir()
        ctranslate2.write(exported, tmp_path / kind, kind)
    sizes = {kind: (tmp_path / kind / "model.bin").stat().st_size for kind in ("float32", "int8")}
    positions = 4 * SMALL.d_model * (1024 + 50 + 1)
    weights = {kind: size - positions for kind, size in sizes.items()}
    assert weights["int8"] < 0.6 * weights["float32"]
    words = [exported.tokenizer.pieces(ids) for ids in exported.tokenizer.encode(TEXT[:4])]
    found = {
        kind: peer.Translator(str(tmp_path / kind), compute_type=kind, intra_threads=1).score_batch(words, words)
        for kind in sizes
    }
    for a, b in zip(found["float32"], found["int8"], strict=True):
        difference = np.abs(np.subtract(a.log_probs, b.log_probs))
        assert 0 < difference.max() < 0.5


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"norm": "pre"}, "norm='pre' has no equivalent"),
        ({"positions": "learned"}, "positions='learned' has no equivalent"),
        ({"sinusoid_layout": "concatenated"}, "sinusoid_layout='concatenated' has no equivalent"),
        ({"d_k": 4}, "d_k=4 has no equivalent"),
        ({"d_v": 4}, "d_v=4 has no equivalent"),
    ],
)
def test_what_has_no_equivalent_is_refused(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        marian.refuse(dataclasses.replace(SMALL, **changes))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("family", "recurrent"),
        ("family", "convolutional"),
        ("norm_kind", "rms"),
        ("activation", "swiglu"),
        *[("positions", kind) for kind in ("rotary", "alibi", "t5")],
        ("num_kv_heads", 1),
        *[("encoder_attention", kind) for kind in ("window", "performer", "linformer")],
        *[("decoder_attention", kind) for kind in ("window", "performer")],
        ("experts", 2),
    ],
)
def test_what_is_not_written_is_refused_by_name(name: str, value: object, tokenizer, tmp_path: Path) -> None:
    model = dataclasses.replace(SMALL, **{name: value})
    exported = Trained(config.Experiment(model=model, data=config.Data(vocabulary_size=320)), {}, tokenizer)
    for tool in (ctranslate2, marian):
        with pytest.raises(ConfigError, match=f"model: {name}={value!r} is not written for "):
            tool.write(exported, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_nothing_is_overwritten_and_nothing_half_made_stays(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(UserError, match="exists already"), new_directory(tmp_path / "there"):
        pytest.fail("must not get so far")

    def fail() -> None:
        with new_directory(tmp_path / "new") as folder:
            (folder / "file").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    with new_directory(tmp_path / "new") as folder:
        (folder / "file").write_text(json.dumps(1))
    assert (tmp_path / "new" / "file").read_text() == "1"
