"""Encoders: BERT and what followed it, from RoBERTa to ModernBERT."""

from model.counterparts.entries import (
    DISENTANGLED,
    ELECTRA_HEADS,
    EMBEDDING_WIDTH,
    MASKED_LM_TIED,
    ROBERTA_POSITIONS,
    XLNET_HEAD,
    XLNET_HEAD_DIM,
    encoder_class,
    masked_lm,
    tied,
)
from model.counterparts.keys import (
    BIASES,
    GATED,
    NO_PADDING,
    PLAIN,
    Counterpart,
    key,
    sizes,
    words,
)
from model.counterparts.layers import windows
from model.counterparts.rotary import layered_rotary

BERT = Counterpart(
    "BertForMaskedLM",
    {
        "family": "encoder",
        **sizes(
            key("max_position_embeddings"),
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
        ),
        "ffn_width": key("intermediate_size"),
        "norm": "layer",
        "norm_placement": "post",
        "norm_epsilon": key("layer_norm_eps", missing=1e-12),
        "embedding_norm": True,
        "positions": "learned",
        "activation": words("hidden_act", missing="gelu", **PLAIN),
        "bias": "all",
        "segments": key("type_vocab_size", missing=2),
        "head_transform": encoder_class("BertModel", "BertForMaskedLM"),
        "pooler": key("add_pooling_layer", missing=lambda file: not masked_lm(file)),
        "tie_embeddings": MASKED_LM_TIED,
        "dropout": key(
            "hidden_dropout_prob", spread=("attention_probs_dropout_prob",), missing=0.1
        ),
    },
    {"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"},
)

DISTILBERT = Counterpart(
    "DistilBertForMaskedLM",
    {
        **{name: BERT.fields[name] for name in BERT.fields if name != "segments"},
        **sizes(BERT.fields["context"], "dim", "n_layers", "n_heads"),
        "ffn_width": key("hidden_dim"),
        "norm_epsilon": 1e-12,
        "activation": words("activation", missing="gelu", gelu="gelu", relu="relu"),
        "head_transform": encoder_class("DistilBertModel", "DistilBertForMaskedLM"),
        "pooler": key("add_pooling_layer", missing=False),
        "pooler_activation": "relu",
        "dropout": key("dropout", spread=("attention_dropout",), missing=0.1),
    },
)

ALBERT = Counterpart(
    "AlbertForMaskedLM",
    {
        **BERT.fields,
        "shared_layers": True,
        "embedding_width": key("embedding_size", missing=128),
        "activation": words("hidden_act", missing="gelu_new", **PLAIN),
        "head_transform": encoder_class("AlbertModel", "AlbertForMaskedLM"),
        "dropout": key(
            "hidden_dropout_prob", spread=("attention_probs_dropout_prob",), missing=0.0
        ),
    },
    {"num_hidden_groups": 1, "inner_group_num": 1},
)

ROBERTA = Counterpart(
    "RobertaForMaskedLM",
    {
        **BERT.fields,
        **ROBERTA_POSITIONS,
        "head_transform": encoder_class("RobertaModel", "RobertaForMaskedLM"),
    },
    BERT.demands,
)

XLM_ROBERTA = Counterpart(
    "XLMRobertaForMaskedLM",
    {
        **ROBERTA.fields,
        "head_transform": encoder_class("XLMRobertaModel", "XLMRobertaForMaskedLM"),
    },
    BERT.demands,
)

ELECTRA = Counterpart(
    "ElectraForMaskedLM",
    {
        **BERT.fields,
        **ELECTRA_HEADS,
        "embedding_width": EMBEDDING_WIDTH,
        "activation": words("hidden_act", missing="gelu", gelu="gelu"),
        "pooler": key("add_pooling_layer", missing=False),
        "pooler_activation": "gelu",
    },
    BERT.demands,
)

DEBERTA_V2 = Counterpart(
    "DebertaV2ForMaskedLM",
    {
        **BERT.fields,
        **DISENTANGLED,
        "norm_epsilon": key("layer_norm_eps", missing=1e-7),
        "segments": key("type_vocab_size", missing=0),
        "head_transform": encoder_class("DebertaV2Model", "DebertaV2ForMaskedLM"),
        "pooler": key("add_pooling_layer", missing=False),
        "pooler_activation": "gelu",
    },
    {"legacy": True, "pooler_hidden_act": "gelu", "conv_kernel_size": 0},
)

XLNET = Counterpart(
    "XLNetLMHeadModel",
    {
        "family": "encoder",
        **sizes(key("headrace_context", missing=512), "d_model", "n_layer", "n_head"),
        "head_dim": XLNET_HEAD_DIM,
        "ffn_width": key("d_inner"),
        "norm": "layer",
        "norm_placement": "post",
        "norm_epsilon": key("layer_norm_eps", missing=1e-12),
        "positions": "relative_sinusoidal",
        "activation": words("ff_activation", missing="gelu", **PLAIN),
        "bias": "feedforward",
        "segments": 2,
        "query_embedding": True,
        "head_bias": XLNET_HEAD,
        "pooler": key("add_pooling_layer", missing=False),
        "tie_embeddings": tied(True),
        "dropout": key("dropout", missing=0.1),
    },
    {"attn_type": "bi", "bi_data": False, "clamp_len": -1, "untie_r": True},
)
"""Its context is no limit there, so Transformers has no key for it."""

MODERNBERT = Counterpart(
    "ModernBertForMaskedLM",
    {
        **{name: BERT.fields[name] for name in BERT.fields if name not in ("segments", "pooler")},
        "norm_placement": "pre",
        "norm_epsilon": key("norm_eps", missing=1e-5),
        "norm_bias": key("norm_bias", missing=False),
        "skip_first_norm": True,
        "positions": "rope",
        **layered_rotary(
            160_000.0, 1e4, key="global_rope_theta", local_key="local_rope_theta", both=True
        ),
        **windows(
            lambda layer, file: bool(layer % file.get("global_attn_every_n_layers", 3)),
            key="local_attention",
            missing=128,
            reach=lambda across: across // 2 + 1,
            say=lambda window: 2 * (window - 1),
        ),
        "activation": words(
            "hidden_activation", "classifier_activation", missing="gelu", **GATED
        ),
        "bias": words(
            "attention_bias", "mlp_bias", "classifier_bias", missing=False,
            **{ours: (*said, ours == "all") for ours, said in BIASES.items()},
        ),
        "head_transform": encoder_class("ModernBertModel", "ModernBertForMaskedLM"),
        "dropout": key(
            "mlp_dropout", spread=("attention_dropout", "embedding_dropout"), missing=0.0
        ),
    },
    {"decoder_bias": True},
    NO_PADDING,
)  # fmt: skip
