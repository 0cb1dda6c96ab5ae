"""Marian models, random but of several shapes, give their own logits as runs of this project."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from t2t_jax import command_line, config, model
from t2t_jax.data import tokenizer as tokenizers
from t2t_jax.decoding.translator import Translator
from t2t_jax.errors import RunError
from t2t_jax.export import marian, marian_import
from t2t_jax.symbols import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from t2t_jax.training import trained

torch = pytest.importorskip("torch", reason="Marian runs on PyTorch")
transformers = pytest.importorskip("transformers", reason="the extra `export` is not installed")

ENGLISH = [f"{who} {what} {where}." for who in ("Tom", "Mary", "She") for what in ("sings", "runs", "left")
           for where in ("today", "in town", "at night", "2024")]  # fmt: skip
GERMAN = [f"{who} {what} {where}." for who in ("Tom", "Maria", "Sie") for what in ("singt", "läuft", "ging")
          for where in ("heute", "in der Stadt", "über Nacht", "2024")]  # fmt: skip
SHAPES = {
    "opus": {"d_model": 16, "ffn": 24, "heads": 2, "layers": 2, "activation": "swish", "dtype": "float32"},
    "relu": {"d_model": 12, "ffn": 8, "heads": 3, "layers": 1, "activation": "relu", "dtype": "float32"},
    "half": {"d_model": 8, "ffn": 32, "heads": 1, "layers": 1, "activation": "silu", "dtype": "float16"},
}


def marian_model(folder: Path, shape: dict, pickled: bool = False) -> None:
    """A directory like those of OPUS-MT: end of sentence first, pad last and the start of a translation."""
    models = []
    for side, lines in (("source", ENGLISH), ("target", GERMAN)):
        made = tokenizers.train(config.Data(vocabulary_size=60, byte_fallback=False), lines)
        (folder / f"{side}.spm").write_bytes(made.save(folder).read_bytes())
        models.append(made.pieces(range(4, made.size)))
    (folder / tokenizers.SENTENCEPIECE_FILE).unlink()
    pieces = ["</s>", "<unk>", *dict.fromkeys(models[0] + models[1]), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    names = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "de"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    sides = {
        f"{side}_{name}": shape[short]
        for side in ("encoder", "decoder")
        for name, short in (("layers", "layers"), ("ffn_dim", "ffn"), ("attention_heads", "heads"))
    }
    pad = len(pieces) - 1
    settings = transformers.MarianConfig(
        vocab_size=len(pieces),
        d_model=shape["d_model"],
        activation_function=shape["activation"],
        scale_embedding=True,
        max_position_embeddings=64,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        forced_eos_token_id=0,
        **sides,
    )
    torch.manual_seed(0)
    made = transformers.MarianMTModel(settings).to(getattr(torch, shape["dtype"]))
    with torch.no_grad():
        for name, parameter in [*made.named_parameters(), ("", made.final_logits_bias)]:
            if "embed_positions" not in name:
                parameter.copy_(0.3 * torch.randn(parameter.shape) + float(name.endswith("norm.weight")))
    if pickled:
        settings.save_pretrained(folder)
        torch.save(made.state_dict(), folder / "pytorch_model.bin")
    else:
        made.save_pretrained(folder)


@pytest.mark.parametrize(("name", "pickled"), [("opus", False), ("relu", True), ("half", False)])
def test_logits_are_theirs(name: str, pickled: bool, tmp_path: Path) -> None:
    folder, run = tmp_path / "marian", tmp_path / "run"
    folder.mkdir(), run.mkdir()
    marian_model(folder, SHAPES[name], pickled)
    marian_import.read(folder, run)

    loaded = trained.load(run)
    size, ours = loaded.tokenizer.size, Translator.load(run)
    theirs = transformers.MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
    reader = transformers.MarianTokenizer.from_pretrained(folder)
    forward = jax.jit(
        lambda source, target: ours.transformer.apply({"params": ours.params}, source, target, deterministic=True)
    )
    for line, answer in zip(ENGLISH[::18], GERMAN[::18], strict=True):
        source, target = (np.asarray(loaded.tokenizer.encode([text], side)) for text, side in
                          ((line, "source"), (answer, "target")))  # fmt: skip
        source = np.append(source, [[EOS_ID]], 1)
        with jax.default_matmul_precision("highest"):
            mine = forward(source, target)
        inputs = reader([line], return_tensors="pt")
        labels = reader(text_target=[answer], return_tensors="pt")["input_ids"][:, :-1]
        start = torch.cat([torch.full_like(labels[:, :1], theirs.config.decoder_start_token_id), labels[:, :-1]], 1)
        with torch.inference_mode():
            found = theirs(**inputs, decoder_input_ids=start).logits.numpy()
        pieces = json.loads((folder / "vocab.json").read_text())
        known = [pieces[piece] for piece in loaded.pieces[4:]]
        assert UNK_ID not in source and UNK_ID not in target
        assert [known[i - 4] for i in source[0, :-1]] == inputs["input_ids"][0, :-1].tolist()
        assert [known[i - 4] for i in target[0]] == labels[0].tolist()
        mine = np.asarray(mine)
        np.testing.assert_allclose(mine[..., 4:size], found[..., known], atol=1e-4, rtol=0)
        np.testing.assert_allclose(mine[..., EOS_ID], found[..., 0], atol=1e-4, rtol=0)
        np.testing.assert_allclose(mine[..., BOS_ID], found[..., -1], atol=1e-4, rtol=0)
        assert np.all(mine[..., PAD_ID] < -1e8), "theirs has one row for both"
        assert loaded.tokenizer.decode(target[0]) == answer


def test_an_export_comes_back_as_it_was(random_params, tmp_path: Path) -> None:
    tokenizer = tokenizers.train(config.Data(vocabulary_size=320), ENGLISH)
    settings = config.Model(num_layers=1, d_model=16, d_ff=24, num_heads=2)
    params = random_params(model.build(settings, tokenizer.size))
    exported = trained.unfilled(config.Experiment(model=settings), params, tokenizer)
    folder, run = tmp_path / "marian", tmp_path / "run"
    folder.mkdir(), run.mkdir()
    marian.write(exported, folder)
    marian_import.read(folder, run)
    back = trained.load(run)
    assert back.experiment.model.biases == "feed_forward", "biases that are 0 need no parameters"
    assert back.tokenizer.pieces(range(back.tokenizer.size)) == exported.pieces
    jax.tree.map(np.testing.assert_array_equal, back.params, exported.params)


REFUSED = [
    ({"model_type": "bart"}, "model_type is 'bart'"),
    ({"activation_function": "gelu"}, "activation_function='gelu'"),
    ({"scale_embedding": False}, "scale_embedding=False"),
    ({"decoder_layers": 3}, "decoder_layers=3"),
    ({"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings=False"),
    ({"pad_token_id": 9999}, "pad_token_id=9999"),
    ({"d_model": "wide"}, "not the config of a Marian model"),
]


def test_what_has_no_equivalent_is_named(tmp_path: Path) -> None:
    marian_model(tmp_path, SHAPES["relu"])
    settings = json.loads((tmp_path / "config.json").read_text())
    for changes, sentence in REFUSED:
        (tmp_path / "config.json").write_text(json.dumps(settings | changes))
        with pytest.raises(RunError, match=sentence):
            marian_import.read(tmp_path, tmp_path / "run")


def test_verbs_refuse_in_a_sentence(tmp_path: Path, capsys) -> None:
    (tmp_path / "empty").mkdir()
    there = str(tmp_path / "empty")
    new = str(tmp_path / "new")
    for arguments, sentence in (
        (["import", there, "--format", "marian", "--output", new], "cannot be read"),
        (["import", there, "--format", "marian", "--output", there], "exists already"),
        (["import", there, "--format", "marian"], "--output"),
        (["export", there, "--format", "marian", "--output", new], "not a run directory"),
        (["export", there, "--format", "onnx", "--output", new], "invalid choice 'onnx'"),
        (["export", there, "--format", "marian", "--output", there], "exists already"),
    ):
        assert command_line.main(arguments) == 2
        printed = capsys.readouterr().err
        assert sentence in printed
        assert printed.startswith("error: ") and printed.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
