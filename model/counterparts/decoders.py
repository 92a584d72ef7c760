"""Decoders: GPT, LLaMA and what came of it, Falcon, GPT-NeoX and DeepSeek."""

from model.counterparts.entries import (
    BALANCE,
    DEEPSEEK_EXPERTS,
    FALCON_KV_HEADS,
    FALCON_RESIDUAL,
    LATENT,
    deepseek_experts,
    experts,
    query_scalar,
    qwen_experts,
    say_qwen_experts,
    tied,
)
from model.counterparts.keys import (
    ATTENTION_BIAS,
    BIASES,
    GATED,
    NO_PADDING,
    PLAIN,
    Counterpart,
    Entry,
    follows,
    key,
    sizes,
    words,
)
from model.counterparts.layers import ROTARY_LAYERS, turns, windows
from model.counterparts.rotary import YARN_SCALE, layered_rotary, rotary

USUAL = ("hidden_size", "num_hidden_layers", "num_attention_heads")

GPT2 = Counterpart(
    "GPT2LMHeadModel",
    {
        **sizes(key("n_positions"), "n_embd", "n_layer", "n_head"),
        "ffn_width": key("n_inner", missing=lambda file: 4 * file["n_embd"]),
        "norm": "layer",
        "norm_epsilon": key("layer_norm_epsilon", missing=1e-5),
        "positions": "learned",
        "activation": words("activation_function", missing="gelu_new", **PLAIN),
        "bias": "all",
        "tie_embeddings": tied(True),
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
        **sizes(key("max_position_embeddings"), *USUAL),
        "kv_heads": key("num_key_value_heads", missing=lambda file: file["num_attention_heads"]),
        "head_dim": key(
            "head_dim", missing=lambda file: file["hidden_size"] // file["num_attention_heads"]
        ),
        "ffn_width": key("intermediate_size"),
        "norm_epsilon": key("rms_norm_eps", missing=1e-6),
        **rotary(),
        "activation": words("hidden_act", missing="silu", **GATED),
        "bias": words("attention_bias", "mlp_bias", missing=False, **BIASES),
        "tie_embeddings": tied(False),
        "dropout": key("attention_dropout", missing=0.0),
    },
)

# A file of LLaMA's without `num_key_value_heads` means as many as heads. Other classes have other
# defaults, so that their files must have the key; null in it means as many as heads.
GROUPED = {
    **LLAMA.fields,
    "kv_heads": key("num_key_value_heads", null=lambda file: file["num_attention_heads"]),
}

MISTRAL = Counterpart(
    "MistralForCausalLM",
    {**GROUPED, "bias": "none", "window": key("sliding_window", missing=4096, null=None)},
)

MIXTRAL = Counterpart(
    "MixtralForCausalLM",
    {
        **MISTRAL.fields,
        "norm_epsilon": key("rms_norm_eps", missing=1e-5),
        **rotary(1e6),
        "window": key("sliding_window", missing=None),
        "experts": experts(
            {
                "routed": "num_local_experts",
                "active": "num_experts_per_tok",
                "width": "intermediate_size",
                "balance_loss": "router_aux_loss_coef",
            },
            {"num_local_experts": 8, "num_experts_per_tok": 2, "router_aux_loss_coef": 1e-3},
        ),
    },
)

QWEN_WINDOWS = windows(
    lambda layer, file: layer >= file.get("max_window_layers", 28),
    missing=4096,
    flag="use_sliding_window",
)
QWEN2 = Counterpart("Qwen2ForCausalLM", {**GROUPED, "bias": "qkv", **QWEN_WINDOWS})

QWEN3 = Counterpart(
    "Qwen3ForCausalLM",
    {
        **GROUPED,
        "head_dim": key("head_dim", missing=128),
        "bias": ATTENTION_BIAS,
        "qk_norm": "head",
        **QWEN_WINDOWS,
    },
)

QWEN3_MOE = Counterpart(
    "Qwen3MoeForCausalLM",
    {
        **QWEN3.fields,
        "head_dim": LLAMA.fields["head_dim"],
        **windows(lambda layer, file: True, missing=4096, flag="use_sliding_window", typed=False),
        "experts": experts(
            {
                "active": "num_experts_per_tok",
                "width": "moe_intermediate_size",
                "normalise": "norm_topk_prob",
                "balance_loss": "router_aux_loss_coef",
            },
            {"norm_topk_prob": False, "router_aux_loss_coef": 1e-3},
            qwen_experts,
            say_qwen_experts,
        ),
    },
)

GEMMA = Counterpart(
    "GemmaForCausalLM",
    {
        **GROUPED,
        "head_dim": key("head_dim", missing=256),
        "activation": words(
            "hidden_act", missing="gelu_pytorch_tanh", geglu="gelu_pytorch_tanh", swiglu="silu"
        ),
        "bias": ATTENTION_BIAS,
        "scale_embedding": True,
        "tie_embeddings": tied(True),
    },
    {"use_bidirectional_attention": False},
)

GEMMA2 = Counterpart(
    "Gemma2ForCausalLM",
    {
        **GEMMA.fields,
        "norm_placement": "sandwich",
        "activation": words("hidden_activation", missing="gelu_pytorch_tanh", **GATED),
        **windows(lambda layer, file: layer % 2 == 0, missing=4096),
        "attention_scale": query_scalar("query_pre_attn_scalar"),
        "attention_softcap": key("attn_logit_softcapping", missing=50.0, null=None),
        "logit_softcap": key("final_logit_softcapping", missing=30.0, null=None),
    },
    GEMMA.demands,
)

GEMMA3 = Counterpart(
    "Gemma3ForCausalLM",
    {
        **GEMMA2.fields,
        **layered_rotary(1e6, 1e4, key="rope_theta", local_key="rope_local_base_freq"),
        **windows(
            lambda layer, file: bool((layer + 1) % file.get("sliding_window_pattern", 6)),
            missing=4096,
        ),
        "qk_norm": "head",
        "attention_softcap": None,
        "logit_softcap": key("final_logit_softcapping", missing=None),
    },
    {**GEMMA.demands, "attn_logit_softcapping": None},
)

OLMO2 = Counterpart(
    "Olmo2ForCausalLM",
    {
        **LLAMA.fields,
        "norm_placement": "after",
        "norm_epsilon": key("rms_norm_eps", missing=1e-5),
        "bias": ATTENTION_BIAS,
        "qk_norm": "all",
    },
)

OLMO3 = Counterpart(
    "Olmo3ForCausalLM",
    {
        **OLMO2.fields,
        **layered_rotary(5e5, 5e5, key="rope_theta"),
        **windows(lambda layer, file: bool((layer + 1) % 4), missing=4096),
    },
)

SMOLLM3 = Counterpart(
    "SmolLM3ForCausalLM",
    {
        **GROUPED,
        **rotary(2e6),
        "rope_layers": ROTARY_LAYERS,
        **windows(lambda layer, file: not turns(layer, file), flag="use_sliding_window"),
        "tie_embeddings": tied(True),
    },
    says=NO_PADDING,
)

PHI3 = Counterpart(
    "Phi3ForCausalLM",
    {
        **LLAMA.fields,
        "norm_epsilon": key("rms_norm_eps", missing=1e-5),
        "bias": "none",
        "window": key("sliding_window", missing=None),
        **rotary(share=1.0),
        "dropout": key("resid_pdrop", spread=("embd_pdrop", "attention_dropout"), missing=0.0),
    },
    says=NO_PADDING,
)

GPT_NEOX = Counterpart(
    "GPTNeoXForCausalLM",
    {
        **sizes(key("max_position_embeddings"), *USUAL),
        "ffn_width": key("intermediate_size"),
        "norm": "layer",
        "norm_epsilon": key("layer_norm_eps", missing=1e-5),
        "residual": words("use_parallel_residual", missing=True, parallel_norms=True, serial=False),
        **rotary(key="rotary_emb_base", share=0.25, share_key="rotary_pct"),
        "activation": words("hidden_act", missing="gelu", **PLAIN),
        "bias": words("attention_bias", missing=True, all=True, feedforward=False),
        "tie_embeddings": tied(False),
        "dropout": key("hidden_dropout", spread=("attention_dropout",), missing=0.0),
    },
    {"is_decoder": False},
)

FALCON = Counterpart(
    "FalconForCausalLM",
    {
        **sizes(key("max_position_embeddings", missing=2048), *USUAL),
        "kv_heads": FALCON_KV_HEADS,
        "ffn_width": key("ffn_hidden_size", missing=lambda file: 4 * file["hidden_size"]),
        "norm": "layer",
        "norm_epsilon": key("layer_norm_epsilon", missing=1e-5),
        "residual": FALCON_RESIDUAL,
        **rotary(),
        "activation": words("activation", missing="gelu", **PLAIN),
        "bias": words("bias", missing=False, none=False, all=True),
        "tie_embeddings": tied(True),
        "dropout": key("hidden_dropout", spread=("attention_dropout",), missing=0.0),
    },
    {"alibi": False},
)

DEEPSEEK_V3 = Counterpart(
    "DeepseekV3ForCausalLM",
    {
        **LLAMA.fields,
        "norm_epsilon": 1e-6,  # as the norms of the latents always have
        "head_dim": follows(lambda file: file["qk_nope_head_dim"] + file["qk_rope_head_dim"]),
        "activation": words("hidden_act", missing="silu", **GATED),
        "bias": "none",
        "latent": LATENT,
        "attention_scale": YARN_SCALE,
        "experts": experts(DEEPSEEK_EXPERTS, BALANCE, deepseek_experts),
        "multi_token": Entry(  # Transformers leaves these modules out
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
