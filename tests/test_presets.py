import dataclasses

from t2t_jax import config_fields, presets
from t2t_jax.config import Data, Experiment, Model

BASE = Experiment(model=Model(dropout=0.3))


def changes(one: Experiment, other: Experiment) -> dict[str, object]:
    before, after = config_fields.flatten(one), config_fields.flatten(other)
    return {path: value for path, value in after.items() if before[path] != value}


def test_paper_is_the_base_with_attention_dropout() -> None:
    assert changes(BASE, presets.paper(BASE)) == {"model.attention_dropout": 0.3, "optimizer.learning_rate_factor": 1.0}


def test_t2t_v1_differs_from_the_paper_in_what_the_released_code_did() -> None:
    assert changes(presets.paper(BASE), presets.t2t_v1(BASE)) == {
        "model.attention_dropout": 0.0,
        "model.sinusoid_layout": "concatenated",
        "training.label_smoothing_mass": "others",
        "decoding.extra_length": 100,
    }


def test_t2t_v2_is_pre_norm_with_more_dropout_and_warmup() -> None:
    assert changes(presets.t2t_v1(BASE), presets.t2t_v2(BASE)) == {
        "model.norm": "pre",
        "model.attention_dropout": 0.1,
        "model.relu_dropout": 0.1,
        "optimizer.learning_rate_factor": 2.0,
        "optimizer.warmup_steps": 8000,
        "optimizer.beta2": 0.997,
    }


def test_german_corpora_are_the_shared_tasks_or_tensor2tensors() -> None:
    german = Experiment(data=Data(source="tfds"))
    corpora = {"data.corpora": ("europarl_v7", "commoncrawl", "newscommentary_v13")}
    assert corpora.items() <= changes(presets.paper(german), presets.t2t_v1(german)).items()
    french = Experiment(data=Data(source="tfds", target_language="fr"))
    assert presets.t2t_v1(french).data == presets.paper(french).data == french.data


def test_presets_leave_sizes_alone() -> None:
    for preset in (presets.paper, presets.t2t_v1, presets.t2t_v2):
        changed = preset(BASE)
        assert dataclasses.replace(changed.model, **{f: getattr(BASE.model, f) for f in (
            "norm", "attention_dropout", "relu_dropout", "sinusoid_layout")}) == BASE.model  # fmt: skip
