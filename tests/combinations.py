"""Small models that between them have every choice of an architecture, for tests of what must hold for all of them."""

from dataclasses import replace

from t2t_jax.config import Model

SMALL = Model(num_layers=1, d_model=16, d_ff=24, num_heads=4, dropout=0.0, vocabulary_multiple=8, max_positions=16)

COMBINATIONS = {
    "rotary, grouped, windows": replace(
        SMALL,
        norm="pre",
        norm_kind="rms",
        activation="swiglu",
        positions="rotary",
        num_kv_heads=2,
        encoder_attention="window",
        decoder_attention="window",
        attention_window=2,
    ),
    "t5, multi-query": replace(SMALL, activation="gelu", positions="t5", num_kv_heads=1),
    "alibi, experts": replace(SMALL, positions="alibi", experts=4, dropout=0.1),
    "linformer and causal performer": replace(
        SMALL,
        encoder_attention="linformer",
        linformer_length=4,
        decoder_attention="performer",
        performer_features=8,
        num_kv_heads=2,
    ),
    "performer": replace(SMALL, encoder_attention="performer", performer_features=8, positions="learned"),
    "lstm": replace(SMALL, family="recurrent", num_layers=2, dropout=0.1),
    "gru": replace(SMALL, family="recurrent", recurrent_cell="gru"),
    "decoder": replace(SMALL, family="decoder", num_layers=2, norm="pre", dropout=0.1),
    "decoder, rotary, grouped, experts": replace(
        SMALL, family="decoder", positions="rotary", num_kv_heads=2, experts=4, norm_kind="rms"
    ),
    "decoder, alibi": replace(SMALL, family="decoder", positions="alibi", num_kv_heads=1),
    "convolutional": replace(SMALL, family="convolutional", num_layers=2, positions="learned"),
}

# Families that learn one task alone; the first writes nothing that could be searched for.
ONE_TASK = {
    "encoder": replace(SMALL, family="encoder", positions="rotary", num_kv_heads=2, dropout=0.1),
    "vision": replace(SMALL, family="vision", image_size=2, patch_size=1, norm="pre", dropout=0.1),
}
