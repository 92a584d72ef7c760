"""Encoder-decoders: T5 and BART."""

from model.counterparts.entries import (
    T5_SCALE,
    layers_of_encoder,
    tied,
)
from model.counterparts.keys import (
    PLAIN,
    Counterpart,
    follows,
    key,
    quotient,
    words,
)

T5_ACTIVATIONS = {"swiglu": "gated-silu", "geglu": "gated-gelu", **PLAIN}

T5 = Counterpart(
    "T5ForConditionalGeneration",
    {
        "family": "encoder_decoder",
        "vocab_size": key("vocab_size"),
        "context": key("n_positions", missing=512),
        "width": key("d_model"),
        "depth": key("num_decoder_layers", missing=lambda file: file["num_layers"]),
        "encoder_depth": layers_of_encoder("num_layers", "num_decoder_layers"),
        "heads": key("num_heads"),
        "kv_heads": follows(lambda file: file["num_heads"]),
        "head_dim": key("d_kv"),
        "ffn_width": key("d_ff"),
        "norm_epsilon": key("layer_norm_epsilon", missing=1e-6),
        "positions": "relative",
        "relative_buckets": key("relative_attention_num_buckets", missing=32),
        "relative_distance": key("relative_attention_max_distance", missing=128),
        "activation": words("feed_forward_proj", missing="relu", **T5_ACTIVATIONS),
        "attention_scale": 1.0,
        "tie_embeddings": tied(True),
        "logit_scale": T5_SCALE,
        "dropout": key("dropout_rate", missing=0.1),
    },
    {"is_encoder_decoder": True},
)  # fmt: skip

MT5 = Counterpart(
    "MT5ForConditionalGeneration",
    {
        **{name: entry for name, entry in T5.fields.items() if name != "logit_scale"},
        "activation": words("feed_forward_proj", missing="gated-gelu", **T5_ACTIVATIONS),
    },
    T5.demands,
)

BART = Counterpart(
    "BartForConditionalGeneration",
    {
        "family": "encoder_decoder",
        "vocab_size": key("vocab_size"),
        "context": key("max_position_embeddings"),
        "width": key("d_model"),
        "depth": key("decoder_layers"),
        "encoder_depth": layers_of_encoder("encoder_layers", "decoder_layers"),
        "heads": key("decoder_attention_heads", "encoder_attention_heads"),
        "kv_heads": follows(lambda file: file["decoder_attention_heads"]),
        "head_dim": quotient("d_model", "decoder_attention_heads"),
        "ffn_width": key("decoder_ffn_dim", "encoder_ffn_dim"),
        "norm": "layer",
        "norm_placement": "post",
        "embedding_norm": True,
        "positions": "learned",
        "position_offset": 2,
        "activation": words("activation_function", missing="gelu", **PLAIN),
        "bias": "all",
        "scale_embedding": key("scale_embedding", missing=False),
        "tie_embeddings": tied(True),
        "dropout": key("dropout", spread=("attention_dropout",), missing=0.1),
    },
    {"is_encoder_decoder": True},
)
