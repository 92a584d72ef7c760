"""Which Transformers models have our blocks, and what their `config.json` calls our fields.

One table a model: a field of ours has either an `Entry` there, which writes and reads it, or one
value that it always has. A field in no table has its default. `model.hub_config` works the tables;
`model.hub_weights` has the same for the names of tensors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model.hub_entries import (
    EXPERTS,
    FALCON_KV_HEADS,
    FALCON_RESIDUAL,
    LATENT,
    MASKED_LM_TIED,
    ROBERTA_POSITIONS,
    T5_TIED,
    YARN_SCALE,
    encoder_class,
    layers_of_encoder,
    masked_lm,
    query_scalar,
    rotary,
)
from model.hub_keys import Entry, follows, key, quotient, words


@dataclass(frozen=True)
class Counterpart:
    """A Transformers model with our blocks."""

    model_class: str
    fields: Mapping[str, Any]
    """Field of ours -> its `Entry`, or the value it always has there."""
    demands: Mapping[str, Any] = field(default_factory=dict)
    """Keys of theirs without a field here -> the value at which they do what our blocks do."""


# What they call our activations.
PLAIN = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "relu2": "relu2"}
GATED = {"swiglu": "silu", "geglu": "gelu_pytorch_tanh"}

GPT2 = Counterpart(
    "GPT2LMHeadModel",
    {
        "vocab_size": key("vocab_size"),
        "context": key("n_positions"),
        "width": key("n_embd"),
        "depth": key("n_layer"),
        "heads": key("n_head"),
        "kv_heads": follows(lambda file: file["n_head"]),
        "head_dim": quotient("n_embd", "n_head"),
        "ffn_width": key("n_inner", missing=lambda file: 4 * file["n_embd"]),
        "norm": "layer",
        "norm_epsilon": key("layer_norm_epsilon", missing=1e-5),
        "positions": "learned",
        "activation": words("activation_function", missing="gelu_new", **PLAIN),
        "bias": "all",
        "tie_embeddings": key("tie_word_embeddings", missing=True),
        "dropout": key("resid_pdrop", spread=("embd_pdrop", "attn_pdrop"), missing=0.1),
    },
    {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
)

OPENAI_GPT = Counterpart(
    "OpenAIGPTLMHeadModel",
    {
        **GPT2.fields,
        "ffn_width": follows(lambda file: 4 * file["n_embd"]),
        "norm_placement": "post",
        "activation": words("afn", gelu_tanh="gelu", relu="relu"),
    },
)

LLAMA = Counterpart(
    "LlamaForCausalLM",
    {
        "vocab_size": key("vocab_size"),
        "context": key("max_position_embeddings"),
        "width": key("hidden_size"),
        "depth": key("num_hidden_layers"),
        "heads": key("num_attention_heads"),
        "kv_heads": key("num_key_value_heads", missing=lambda file: file["num_attention_heads"]),
        "head_dim": key(
            "head_dim", missing=lambda file: file["hidden_size"] // file["num_attention_heads"]
        ),
        "ffn_width": key("intermediate_size"),
        "norm_epsilon": key("rms_norm_eps", missing=1e-6),
        **rotary(),
        "activation": words("hidden_act", missing="silu", **GATED),
        "bias": words("attention_bias", "mlp_bias", missing=False, none=False, all=True),
        "tie_embeddings": key("tie_word_embeddings", missing=False),
        "dropout": key("attention_dropout", missing=0.0),
    },
)

MISTRAL = Counterpart(
    "MistralForCausalLM",
    {**LLAMA.fields, "bias": "none", "window": key("sliding_window", missing=None)},
)

QWEN2 = Counterpart(
    "Qwen2ForCausalLM", {**LLAMA.fields, "bias": "qkv"}, {"use_sliding_window": False}
)

QWEN3 = Counterpart(
    "Qwen3ForCausalLM",
    {**LLAMA.fields, "bias": "none", "qk_norm": "head"},
    {"use_sliding_window": False, "attention_bias": False},
)

GEMMA2 = Counterpart(
    "Gemma2ForCausalLM",
    {
        **LLAMA.fields,
        "norm_placement": "sandwich",
        "activation": words("hidden_activation", **GATED),
        "bias": "none",
        "window": key("sliding_window", missing=None),
        "window_layers": (True, False),
        "attention_scale": query_scalar("query_pre_attn_scalar"),
        "attention_softcap": key("attn_logit_softcapping", missing=None),
        "logit_softcap": key("final_logit_softcapping", missing=None),
        "scale_embedding": True,
        "tie_embeddings": key("tie_word_embeddings", missing=True),
    },
    {"attention_bias": False},
)

FALCON = Counterpart(
    "FalconForCausalLM",
    {
        "vocab_size": key("vocab_size"),
        "context": key("max_position_embeddings", missing=2048),
        "width": key("hidden_size"),
        "depth": key("num_hidden_layers"),
        "heads": key("num_attention_heads"),
        "kv_heads": FALCON_KV_HEADS,
        "head_dim": quotient("hidden_size", "num_attention_heads"),
        "ffn_width": key("ffn_hidden_size", missing=lambda file: 4 * file["hidden_size"]),
        "norm": "layer",
        "norm_epsilon": key("layer_norm_epsilon", missing=1e-5),
        "residual": FALCON_RESIDUAL,
        **rotary(),
        "activation": words("activation", missing="gelu", **PLAIN),
        "bias": words("bias", missing=False, none=False, all=True),
        "tie_embeddings": key("tie_word_embeddings", missing=True),
        "dropout": key("hidden_dropout", spread=("attention_dropout",), missing=0.0),
    },
    {"alibi": False},
)

DEEPSEEK_V3 = Counterpart(
    "DeepseekV3ForCausalLM",
    {
        **LLAMA.fields,
        "norm_epsilon": 1e-6,  # which those of the latents have always
        "head_dim": follows(lambda file: file["qk_nope_head_dim"] + file["qk_rope_head_dim"]),
        "activation": words("hidden_act", missing="silu", **GATED),
        "bias": "none",
        "latent": LATENT,
        "attention_scale": YARN_SCALE,
        "experts": EXPERTS,
        "multi_token": Entry(  # whose modules Transformers leaves out
            lambda count, config: {"num_nextn_predict_layers": 0}, lambda file: 0
        ),
    },
    {
        "rms_norm_eps": 1e-6,
        "attention_bias": False,
        "rope_interleave": True,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
    },
)

BERT = Counterpart(
    "BertForMaskedLM",
    {
        "family": "encoder",
        "vocab_size": key("vocab_size"),
        "context": key("max_position_embeddings"),
        "width": key("hidden_size"),
        "depth": key("num_hidden_layers"),
        "heads": key("num_attention_heads"),
        "kv_heads": follows(lambda file: file["num_attention_heads"]),
        "head_dim": quotient("hidden_size", "num_attention_heads"),
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
        "activation": words(
            "feed_forward_proj", missing="relu",
            swiglu="gated-silu", geglu="gated-gelu", gelu="gelu", gelu_tanh="gelu_new",
            relu="relu", relu2="relu2",
        ),
        "attention_scale": 1.0,
        "tie_embeddings": T5_TIED,
        "logit_scale": follows(lambda file: file["d_model"] ** -0.5 if T5_TIED.read(file) else 1.0),
        "dropout": key("dropout_rate", missing=0.1),
    },
    {"is_encoder_decoder": True},
)  # fmt: skip

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
        "tie_embeddings": key("tie_word_embeddings", missing=True),
        "dropout": key("dropout", spread=("attention_dropout",), missing=0.1),
    },
    {"is_encoder_decoder": True},
)

COUNTERPARTS = {
    "llama": LLAMA,
    "gpt2": GPT2,
    "openai-gpt": OPENAI_GPT,
    "mistral": MISTRAL,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "gemma2": GEMMA2,
    "falcon": FALCON,
    "deepseek_v3": DEEPSEEK_V3,
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": XLM_ROBERTA,
    "t5": T5,
    "bart": BART,
}
"""By `model_type`. Where several have a shape, it is saved as the first."""
