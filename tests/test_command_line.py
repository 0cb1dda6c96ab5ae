from pathlib import Path

import pytest

from t2t_jax import command_line

QUICKSTART = "experiments/quickstart.py"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["trian", QUICKSTART], "no verb 'trian'. Did you mean 'train'"),
        (["train"], "`train` needs a target: python launch.py train EXPERIMENT"),
        (["train", "experiments/quickstar.py"], "Did you mean 'quickstart.py'"),
        (["train", QUICKSTART, "two.py"], "takes one target"),
        (["train", QUICKSTART, "--model.num-layerz", "3"], "Did you mean '--model.num-layers'"),
        (["train", QUICKSTART, "--model.num_heads", "7"], "d_model=192 is not divisible by num_heads=7"),
        (["train", QUICKSTART, "--slurm.partion", "gpu"], "Did you mean '--slurm.partition'"),
        (["train", QUICKSTART, "--launcher", "slrum"], "invalid choice 'slrum'"),
        (["train", QUICKSTART, "--slurm.nodes", "0"], "slurm.nodes=0 must be at least 1"),
        (["translate", "nowhere", "--beam", "2"], "'nowhere' does not exist"),
        (["prepare", QUICKSTART, "--data.source", "files", "--workdir", "runs/no-such-run"], "--data.directory"),
    ],
)
def test_mistakes_are_one_sentence_and_status_2(arguments: list[str], sentence: str, capsys) -> None:
    assert command_line.main(arguments) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert not (Path("runs") / "no-such-run").exists(), "nothing half-made is left"


def test_values_of_the_wrong_type_are_named(capsys) -> None:
    for option, value in (("--model.dropout", "abc"), ("--model.norm", "both"), ("--model.num-layers", "")):
        assert command_line.main(["prepare", QUICKSTART, option, value]) == 2
        printed = capsys.readouterr().err
        assert printed.startswith("error: ")
        assert printed.count("\n") == 1
        assert option in printed
    assert command_line.main(["prepare", QUICKSTART, "--decoding.alpha=nan"]) == 2
    assert "alpha=nan must be a finite number" in capsys.readouterr().err


def test_help_teaches(capsys) -> None:
    assert command_line.main(["--help"]) == 0
    overview = capsys.readouterr().out
    assert all(verb in overview for verb in command_line.VERBS)
    with pytest.raises(SystemExit) as caught:
        command_line.main(["train", QUICKSTART, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for name in ("--model.num-layers", "--data.source-tokens-per-batch", "--decoding.alpha", "--workdir", "--beam"):
        assert name in text
    assert "Prepare the data if needed" in text


def test_overrides_take_either_dash_and_short_names_win(monkeypatch) -> None:
    from t2t_jax.commands import training

    seen = []
    monkeypatch.setattr(training, "train", lambda targets, options: seen.append(options.settings) or 0)
    arguments = ["train", QUICKSTART, "--model.num_layers", "2", "--model.d-ff", "64", "--beam", "7", "--alpha", "0.5"]
    assert command_line.main(arguments) == 0
    (settings,) = seen
    assert (settings.model.num_layers, settings.model.d_ff) == (2, 64)
    assert (settings.decoding.beam_size, settings.decoding.alpha) == (7, 0.5)
    assert settings.model.d_model == 192, "what is not overridden is the experiment's"
