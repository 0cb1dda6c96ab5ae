"""The settings of an experiment: frozen dataclasses, checked when they are built.

Names follow the paper where it has one. `None` means "derive it"; derived values are computed where they are used and
never stored, so that a `dataclasses.replace` of one field can't leave another stale.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Literal

from t2t_jax.checks import check_positive, check_probability, check_types
from t2t_jax.combinations import check_combinations, check_computation, check_task
from t2t_jax.errors import ConfigError
from t2t_jax.symbols import SPECIAL_SYMBOLS


@dataclass(frozen=True)
class Model:
    """The architecture, section 3 of the paper. The defaults are the base model."""

    num_layers: int = 6
    """N, layers in the encoder and again in the decoder."""
    d_model: int = 512
    """Width of embeddings and of every sub-layer's output."""
    d_ff: int = 2048
    """Inner width of the position-wise feed-forward network."""
    num_heads: int = 8
    """h, parallel attention heads."""
    d_k: int | None = None
    """Width of queries and keys per head; None means d_model / num_heads."""
    d_v: int | None = None
    """Width of values per head; None means d_model / num_heads."""
    dropout: float = 0.1
    """P_drop, on every sub-layer's output and on the sums of embeddings and positions."""
    attention_dropout: float = 0.0
    """Dropout on the attention weights. The paper mentions it without a value; the first released code had 0."""
    relu_dropout: float = 0.0
    """Dropout on the feed-forward network's inner activations (later tensor2tensor versions: 0.1)."""
    activation: Literal["relu", "swish", "gelu", "swiglu"] = "relu"
    """Of the feed-forward network: the paper's, that of Marian's published models, or what came later."""
    biases: Literal["feed_forward", "all"] = "feed_forward"
    """Where biases are: in the feed-forward network alone (the paper), or in attention and the logits too (Marian)."""
    norm: Literal["post", "pre"] = "post"
    """Layer normalisation after the residual sum (the paper) or before the sub-layer (later code)."""
    norm_kind: Literal["layer", "rms"] = "layer"
    """LayerNorm (the paper), or RMSNorm, which does not centre."""
    norm_epsilon: float = 1e-6
    """Added to the variance, or to the mean square, in normalisation."""
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "t5"] = "sinusoidal"
    """Added to the embeddings: fixed sinusoids, or a learned table (Table 3, row E). Or seen by self-attention as
    distances: rotary, ALiBi or T5's relative bias."""
    sinusoid_layout: Literal["interleaved", "concatenated"] = "interleaved"
    """sin and cos interleaved (the paper) or all sines before all cosines (tensor2tensor)."""
    max_positions: int = 1024
    """Rows of the learned position table, columns of Linformer's projections; the others have no such limit."""
    vocabulary_multiple: int = 128
    """The embedding gets zero rows up to a multiple of this, whatever the mesh; they are masked and never counted."""

    # What came before the paper and after it: docs/lineage.md has the formulas and the sources.
    family: Literal["transformer", "recurrent", "convolutional", "decoder", "encoder", "vision"] = "transformer"
    """The paper's model, one of those that it displaced, or one of its halves: a causal stack that goes on from the
    source, or an encoder that fills its gaps, or says what an image shows."""
    image_size: int = 8
    """vision: pixels of an image in each direction."""
    image_levels: int = 17
    """vision: intensities that a pixel may have."""
    patch_size: int = 2
    """vision: pixels of a patch in each direction."""
    recurrent_cell: Literal["lstm", "gru"] = "lstm"
    """recurrent: the cell."""
    kernel_width: int = 3
    """convolutional: positions that a convolution looks at; odd."""
    num_kv_heads: int | None = None
    """Heads that keys and values have, each shared by as many query heads: 1 is multi-query attention; None: all."""
    encoder_attention: Literal["full", "window", "performer", "linformer"] = "full"
    """Which pairs of positions the encoder's self-attention compares, or what it does instead."""
    decoder_attention: Literal["full", "window", "performer", "linformer"] = "full"
    """The same of the decoder's. Attention over the encoder's output is always full."""
    attention_window: int = 128
    """window: positions that a position sees before itself, or to either side in the encoder, itself included."""
    performer_features: int = 256
    """performer: random features that stand for a query or a key."""
    performer_seed: int = 0
    """performer: decides the features."""
    linformer_length: int = 64
    """linformer: positions that keys and values are projected to, whatever the sentence's length."""
    t5_buckets: int = 32
    """t5: biases a head; distances share them."""
    t5_max_distance: int = 128
    """t5: from this distance on, one bias serves all."""
    experts: int | None = None
    """Feed-forward networks in the place of one, of which a router picks some for each position; None: the paper's."""
    experts_per_token: int = 2
    """experts: how many of them are picked for a position."""
    expert_capacity: float = 1.25
    """experts: room for this many times an even share of a sentence's positions, in training. Others pass it by."""
    expert_balance: float = 0.01
    """experts: weight in the loss of how unevenly they are picked (1 for evenly)."""

    def __post_init__(self) -> None:
        check_types(self)
        check_positive(self, "num_layers", "d_model", "d_ff", "num_heads", "d_k", "d_v")
        check_positive(self, "max_positions", "vocabulary_multiple", "norm_epsilon")
        check_positive(self, "kernel_width", "num_kv_heads", "attention_window", "performer_features")
        check_positive(self, "linformer_length", "t5_buckets", "t5_max_distance")
        check_positive(self, "image_size", "image_levels", "patch_size")
        check_positive(self, "experts", "experts_per_token", "expert_capacity")
        check_probability(self, "dropout", "attention_dropout", "relu_dropout")
        headless = self.family in ("recurrent", "convolutional")
        if self.d_model % self.num_heads and (self.d_k is None or self.d_v is None) and not headless:
            raise ConfigError(
                f"model: d_model={self.d_model} is not divisible by num_heads={self.num_heads}; "
                "change one of them, or give both d_k and d_v."
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ConfigError(f"model: sinusoidal positions need an even d_model, not {self.d_model}.")
        check_combinations(self)

    @property
    def key_width(self) -> int:
        """d_k, resolved."""
        return self.d_model // self.num_heads if self.d_k is None else self.d_k

    @property
    def value_width(self) -> int:
        """d_v, resolved."""
        return self.d_model // self.num_heads if self.d_v is None else self.d_v

    @property
    def bounded(self) -> bool:
        """Whether it has a parameter for each position, so that what is beyond the training text's is untrained."""
        return self.positions == "learned" or self.encoder_attention == "linformer"

    def padded_vocabulary(self, vocabulary_size: int) -> int:
        """Rows of the embedding matrix: `vocabulary_size` rounded up to `vocabulary_multiple`."""
        return -(-vocabulary_size // self.vocabulary_multiple) * self.vocabulary_multiple


@dataclass(frozen=True)
class Data:
    """Where the text comes from and how it becomes batches, sections 5.1 and 5.2."""

    task: Literal["translation", "parsing", "text_to_text", "language_model", "masked_language_model", "digits"] = (
        "translation"
    )
    """What a model learns: the translation of a sentence, its constituency tree (section 6.3), both and the translation
    back, told apart by the source's beginning, the text of the target language, to fill gaps in that, or which
    digit an image shows."""
    source: Literal["embedded", "files", "tfds"] = "embedded"
    """The task's corpus inside the package, local files, or TensorFlow Datasets' WMT14."""
    directory: str | None = None
    """files: the folder of the text files. tfds: where archives and prepared records are kept (None: TFDS's own)."""
    source_language: str = "en"
    """Language translated from; the file name's ending for `files`."""
    target_language: str = "de"
    """Language translated to."""
    train: str = "train"
    """files: stem of train.en and train.de, or a TSV (train.tsv); of train.trees for parsing; any may be gzipped. tfds:
    the split's name."""
    validation: str = "valid"
    """Likewise, for the loss that is watched during training."""
    test: str = "test"
    """Likewise, for the scores at the end."""
    extra_train: str | None = None
    """files: stem of a second training corpus, mixed with the first; of parsed text for semi-supervised training."""
    extra_share: float = 0.5
    """Share of training pairs that come from `extra_train`: the corpus that has too few is repeated."""
    tokenizer: Literal["sentencepiece", "whitespace"] = "sentencepiece"
    """BPE made from the training text, or white space for text segmented elsewhere ('@@ ' is joined on output)."""
    tokenizer_from: str | None = None
    """A run directory or tokenizer file to reuse instead of training a tokenizer."""
    vocabulary_size: int = 37_000
    """Entries shared by both languages, special symbols included. whitespace: at most that many, the commonest."""
    byte_fallback: bool = True
    """sentencepiece: 256 entries spell characters that training never saw, so that any text survives the round trip."""
    character_coverage: float = 1.0
    """sentencepiece: share of the training text's characters that get entries of their own."""
    max_length: int = 256
    """Training pairs with a longer side (tokens, end of sentence included) are dropped and counted."""
    source_tokens_per_batch: int = 25_000
    """Cap on padded source positions in a global batch."""
    target_tokens_per_batch: int = 25_000
    """Cap on padded target positions in a global batch."""
    max_shapes: int = 32
    """Cap on the number of padded batch shapes, each of which is compiled once."""
    shapes: Literal["nested", "free"] = "nested"
    """Batch shapes that each hold all smaller ones, or any rectangles, which take longer to find and waste less."""
    corpora: tuple[str, ...] = ()
    """tfds: training corpora by TFDS's names (wmt14: see docs/wmt.md); none means the shared task's own."""
    vocabulary_sample: int = 2_000_000
    """sentencepiece: pairs the vocabulary is made from at most; of more, every second, fourth, eighth … is taken."""
    max_length_ratio: float | None = None
    """Training pairs with a side more than this many times as long as the other (in tokens) are dropped and counted."""
    drop_identical: bool = False
    """Whether training pairs whose sides are the same text are dropped and counted."""
    store: str | None = None
    """Folder of the tokenised corpus; None means RUN/data. Runs on the same data may share one."""

    def __post_init__(self) -> None:
        check_types(self)
        check_positive(self, "source_tokens_per_batch", "target_tokens_per_batch", "max_shapes", "vocabulary_sample")
        if self.max_length_ratio is not None and self.max_length_ratio < 1:
            raise ConfigError(f"data: max_length_ratio={self.max_length_ratio} must be at least 1.")
        if self.vocabulary_size <= len(SPECIAL_SYMBOLS):
            raise ConfigError(
                f"data: vocabulary_size={self.vocabulary_size} leaves no entry for text beside the "
                f"{len(SPECIAL_SYMBOLS)} special symbols."
            )
        if self.max_length < 2:
            raise ConfigError(
                f"data: max_length={self.max_length} leaves room for no token before the end of sentence."
            )
        for budget in ("source_tokens_per_batch", "target_tokens_per_batch"):
            if getattr(self, budget) < self.max_length:
                raise ConfigError(
                    f"data: {budget}={getattr(self, budget)} cannot hold one sentence of max_length={self.max_length}; "
                    "raise the budget or lower max_length."
                )
        if not 0.9 <= self.character_coverage <= 1:
            raise ConfigError(f"data: character_coverage={self.character_coverage} must lie between 0.9 and 1.")
        if not 0 < self.extra_share < 1:
            raise ConfigError(f"data: extra_share={self.extra_share} must lie between 0 and 1.")
        if self.extra_train is not None and self.source != "files":
            raise ConfigError(f"data: extra_train={self.extra_train!r} needs source='files', not {self.source!r}.")
        if self.task == "parsing" and (self.source == "tfds" or self.tokenizer != "sentencepiece"):
            raise ConfigError(
                "data: task='parsing' takes trees from source='embedded' or 'files' and tokenizer='sentencepiece', not "
                f"{self.source!r} and {self.tokenizer!r}."
            )
        if self.task in ("text_to_text", "language_model", "masked_language_model") and self.source == "tfds":
            raise ConfigError(f"data: task={self.task!r} takes text from source='embedded' or 'files', not 'tfds'.")
        if self.task == "digits" and (self.source, self.tokenizer) != ("embedded", "whitespace"):
            raise ConfigError(
                "data: task='digits' takes scikit-learn's images, with source='embedded' and tokenizer='whitespace', "
                f"not {self.source!r} and {self.tokenizer!r}."
            )
        if self.task == "text_to_text" and self.tokenizer != "sentencepiece":
            raise ConfigError(f"data: task='text_to_text' needs tokenizer='sentencepiece', not {self.tokenizer!r}.")
        if self.source_language == self.target_language:
            raise ConfigError(f"data: source_language and target_language are both {self.source_language!r}.")


@dataclass(frozen=True)
class Optimizer:
    """Adam with the warm-up, inverse-square-root schedule, section 5.3."""

    learning_rate_factor: float | None = None
    """lr = factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5). With neither this nor a peak, the paper's 1."""
    peak_learning_rate: float | None = None
    """The same curve, given by the rate it reaches at the end of the warm-up. One of the two."""
    warmup_steps: int = 4000
    """Steps of linear growth."""
    beta1: float = 0.9
    """Adam's decay of the first moment."""
    beta2: float = 0.98
    """Adam's decay of the second moment."""
    epsilon: float = 1e-9
    """Adam's epsilon."""
    gradient_clip: float | None = None
    """Scale gradients down to this global norm; None, the paper's, leaves them."""

    def __post_init__(self) -> None:
        check_types(self)
        check_positive(self, "learning_rate_factor", "peak_learning_rate", "warmup_steps", "epsilon", "gradient_clip")
        check_probability(self, "beta1", "beta2")
        if self.learning_rate_factor is not None and self.peak_learning_rate is not None:
            raise ConfigError(
                f"optimizer: learning_rate_factor={self.learning_rate_factor} and peak_learning_rate="
                f"{self.peak_learning_rate} both set the height of the schedule; set one of them to None."
            )


@dataclass(frozen=True)
class Training:
    """How long, from which seed, and what is kept, sections 5.2 to 5.4."""

    num_steps: int = 100_000
    """Optimizer steps."""
    seed: int = 1
    """Decides initial parameters, batches and dropout."""
    label_smoothing: float = 0.1
    """epsilon_ls, the share of the target distribution spread over the vocabulary."""
    label_smoothing_mass: Literal["vocabulary", "others"] = "vocabulary"
    """Spread over the whole vocabulary, the gold entry included (the paper), or over the others (tensor2tensor)."""
    accumulation: int = 1
    """Parts a global batch is computed in, one after another; the loss is that of the whole batch."""
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of matrix products; parameters, softmax, normalisation and loss stay in float32."""
    attention_kernel: Literal["xla", "cudnn", "blockwise"] = "xla"
    """What computes attention: XLA's products and softmax, or on NVIDIA GPUs cuDNN's fused kernel, which never writes
    out the weights; it needs bfloat16 and no dropout on them, and pays where sentences are long. "blockwise" never
    writes them out either, anywhere: memory linear in length for a third more work."""
    rematerialise: bool = False
    """Compute each layer's insides again on the way back instead of keeping them: a third more work, less memory."""
    log_every: int = 100
    """Steps between lines of metrics.jsonl."""
    trackers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ("tensorboard",)
    """Where the same numbers go besides: event files, Weights & Biases, MLflow. The last two are optional extras."""
    checkpoint_every: int = 1500
    """Steps (or epochs) between checkpoints; validation runs at each."""
    checkpoint_unit: Literal["steps", "epochs"] = "steps"
    """What checkpoint_every counts."""
    keep_checkpoints: int = 5
    """Newest checkpoints kept."""
    average_last: int = 5
    """Checkpoints averaged for evaluation; with fewer written, all of them."""
    patience: int | None = None
    """Stop after this many validations in a row without a better loss; None never stops early."""
    deterministic: bool = False
    """Ask GPUs for deterministic kernels; CPUs and TPUs are deterministic anyway."""
    initialise_from: str | None = None
    """A run whose averaged weights (and tokenizer) to start from."""

    def __post_init__(self) -> None:
        check_types(self)
        counts = ("num_steps", "accumulation", "log_every", "checkpoint_every", "keep_checkpoints", "average_last")
        check_positive(self, *counts, "patience")
        check_probability(self, "label_smoothing")
        if self.attention_kernel == "cudnn" and self.compute_dtype != "bfloat16":
            raise ConfigError("training: attention_kernel='cudnn' needs compute_dtype='bfloat16'.")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"training: seed={self.seed} must lie between 0 and 2^32 - 1.")
        if self.average_last > self.keep_checkpoints:
            raise ConfigError(
                f"training: average_last={self.average_last} needs as many checkpoints, but keep_checkpoints="
                f"{self.keep_checkpoints}; raise keep_checkpoints."
            )


@dataclass(frozen=True)
class Mesh:
    """Devices along each axis of the mesh; -1, on one axis at most, means all that are left."""

    data: int = -1
    """Rows of a batch are divided over this axis."""
    fsdp: int = 1
    """Rows too, and the d_model dimension of every matrix, which is gathered before use."""
    tensor: int = 1
    """Heads, feed-forward units and vocabulary."""
    expert: int = 1
    """Rows too, and the experts of a mixture, between which the tokens are exchanged."""

    def __post_init__(self) -> None:
        check_types(self)
        sizes = dataclasses.asdict(self)
        for name, size in sizes.items():
            if size < 1 and size != -1:
                raise ConfigError(f"mesh: {name}={size} must be at least 1, or -1 for all devices that are left.")
        if list(sizes.values()).count(-1) > 1:
            raise ConfigError(f"mesh: only one axis can be -1, not {[n for n, s in sizes.items() if s == -1]}.")


@dataclass(frozen=True)
class Decoding:
    """Beam search, section 6.1."""

    beam_size: int = 4
    """Hypotheses kept; 1 is greedy search."""
    alpha: float = 0.6
    """Strength of the length penalty; 0 compares plain log-probabilities."""
    length_penalty: Literal["gnmt", "length"] = "gnmt"
    """Divide by ((5 + |Y|) / 6)^alpha (the paper) or by |Y|^alpha (fairseq, Marian)."""
    extra_length: int = 50
    """A translation has at most as many tokens as its source plus this."""
    early_stopping: bool = True
    """Stop a sentence as soon as no open hypothesis can still win; the result is the same, sooner."""
    max_source_length: int = 1024
    """Longer sources are cut to this many tokens, and said so."""
    tokens_per_batch: int = 8192
    """Cap on padded source positions times beam decoded at once."""

    def __post_init__(self) -> None:
        check_types(self)
        check_positive(self, "beam_size", "max_source_length", "tokens_per_batch")
        if self.alpha < 0:
            raise ConfigError(f"decoding: alpha={self.alpha} must not be negative.")
        if self.extra_length < 0:
            raise ConfigError(f"decoding: extra_length={self.extra_length} must not be negative.")


@dataclass(frozen=True)
class Evaluation:
    """What `train` scores at its end and `evaluate` by default."""

    splits: tuple[Literal["validation", "test"], ...] = ("test",)
    """Splits to translate."""
    protocol: Literal["13a", "intl", "paper", "none"] = "13a"
    """BLEU that is headlined: sacreBLEU's 13a or intl, the paper's own, or none for text that is tokenised already."""

    def __post_init__(self) -> None:
        check_types(self)
        if not self.splits:
            raise ConfigError("evaluation: splits is empty; name at least one of validation and test.")


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a run."""

    name: str = "experiment"
    """Names the run directory, runs/NAME, when no --workdir is given."""
    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    optimizer: Optimizer = field(default_factory=Optimizer)
    training: Training = field(default_factory=Training)
    mesh: Mesh = field(default_factory=Mesh)
    decoding: Decoding = field(default_factory=Decoding)
    evaluation: Evaluation = field(default_factory=Evaluation)

    def __post_init__(self) -> None:
        check_types(self)
        if not re.fullmatch(r"[\w.-]+", self.name) or self.name.startswith("."):
            raise ConfigError(f"name={self.name!r} must be letters, digits, '_', '-' and '.', since it names a folder.")
        if self.data.tokenizer_from is not None and self.training.initialise_from is not None:
            raise ConfigError(
                "training: initialise_from takes the other run's tokenizer with its weights; leave out "
                f"data.tokenizer_from={self.data.tokenizer_from!r}."
            )
        check_computation(self.model, self.training)
        if self.model.family != "vision" and self.model.bounded and self.model.max_positions < self.data.max_length:
            raise ConfigError(
                f"model: max_positions={self.model.max_positions} is shorter than data.max_length="
                f"{self.data.max_length}; a learned table needs a row for every position."
            )
        check_task(self.model, self.data)
        if self.mesh.expert != 1 and (self.model.experts or 1) == 1:
            raise ConfigError(
                f"mesh: expert={self.mesh.expert} divides the experts of a mixture; model.experts={self.model.experts}."
            )
