"""The encoder-decoder of "Attention Is All You Need", as pure functions of a parameter tree.

Axis letters, used in every shape comment and einsum of the project:

    B rows           S source length     T target length    D d_model      H heads
    K d_k per head   V d_v per head      F d_ff             Z vocabulary   W beam
    Q queries (T in training, W in a decoding step)
"""

from t2t_jax.model.encoder_decoder import EncoderDecoder
from t2t_jax.model.families import build
from t2t_jax.model.sequence_model import SequenceModel, Unprojected
from t2t_jax.model.transformer import Cache, Transformer

__all__ = ["Cache", "EncoderDecoder", "SequenceModel", "Transformer", "Unprojected", "build"]
