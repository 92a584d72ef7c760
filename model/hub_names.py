"""What Transformers calls the modules of a network: one table a model, ours -> theirs.

`*` is the number of a layer, `#` that of an expert. Where theirs are several, ours is one matrix
with the rows of all. Weight and bias go by the same name in both; a tensor that is neither has its
whole name here, behind an `=`.
"""

from collections.abc import Callable

from model.config import ModelConfig
from model.hub_names_encoders import (
    ALBERT,
    ALBERT_BASE,
    BERT,
    BERT_BASE,
    DEBERTA_V2,
    DEBERTA_V2_BASE,
    DISTILBERT,
    DISTILBERT_BASE,
    ELECTRA,
    ELECTRA_BASE,
    MODERNBERT,
    MODERNBERT_BASE,
    ROBERTA,
    XLNET,
    XLNET_BASE,
)
from model.hub_table import QKV, Names, attention, cross, feedforward, layers, within


def names_of(config: ModelConfig, model_type: str) -> Names:
    """The names of all modules that a network of this shape can have."""
    variant = VARIANTS.get(model_type)
    return NAMES[model_type] | (variant(config) if variant else {})


GPT2: Names = {
    "embedding": "transformer.wte",
    "position_embedding": "transformer.wpe",
    **layers(
        "transformer.h.*.",
        attention("ln_1", "attn.c_attn", "attn.c_proj"),
        feedforward("ln_2", "mlp.c_fc", "mlp.c_proj"),
    ),
    "norm": "transformer.ln_f",
    "head": "lm_head",
}
OPENAI_GPT: Names = {
    **GPT2,
    "embedding": "transformer.tokens_embed",
    "position_embedding": "transformer.positions_embed",
}

LLAMA: Names = {
    "embedding": "model.embed_tokens",
    **layers(
        "model.layers.*.",
        attention("input_layernorm", QKV, "self_attn.o_proj"),
        feedforward("post_attention_layernorm", ("mlp.gate_proj", "mlp.up_proj"), "mlp.down_proj"),
    ),
    "norm": "model.norm",
    "head": "lm_head",
}
QWEN3_LAYER: Names = {
    "attention.inner.q_norm": "self_attn.q_norm",
    "attention.inner.k_norm": "self_attn.k_norm",
}
OLMO2_LAYER: Names = {
    **QWEN3_LAYER,
    "attention.norm_out": "post_attention_layernorm",
    "feedforward.norm_out": "post_feedforward_layernorm",
}
PHI3_LAYER: Names = {
    "attention.inner.qkv": "self_attn.qkv_proj",
    "feedforward.inner.up": "mlp.gate_up_proj",
}
MIXTRAL_LAYER: Names = {
    "feedforward.inner.router.gate": "block_sparse_moe.gate",
    "=feedforward.inner.up": (
        "block_sparse_moe.experts.#.w1.weight",
        "block_sparse_moe.experts.#.w3.weight",
    ),
    "=feedforward.inner.down": "block_sparse_moe.experts.#.w2.weight",
}
QWEN3_MOE_LAYER: Names = {
    "feedforward.inner.router.gate": "mlp.gate",
    "=feedforward.inner.up": (
        "mlp.experts.#.gate_proj.weight",
        "mlp.experts.#.up_proj.weight",
    ),
    "=feedforward.inner.down": "mlp.experts.#.down_proj.weight",
}
GEMMA2_LAYER: Names = {
    "attention.norm_out": "post_attention_layernorm",
    "feedforward.norm": "pre_feedforward_layernorm",
    "feedforward.norm_out": "post_feedforward_layernorm",
}
DEEPSEEK_V3_LAYER: Names = {
    "attention.inner.query": "self_attn.q_b_proj",
    "attention.inner.query_compress": "self_attn.q_a_proj",
    "attention.inner.query_norm": "self_attn.q_a_layernorm",
    "attention.inner.kv_compress": "self_attn.kv_a_proj_with_mqa",
    "attention.inner.kv_norm": "self_attn.kv_a_layernorm",
    "attention.inner.kv": "self_attn.kv_b_proj",
    "feedforward.inner.shared.up": (
        "mlp.shared_experts.gate_proj",
        "mlp.shared_experts.up_proj",
    ),
    "feedforward.inner.shared.down": "mlp.shared_experts.down_proj",
    **QWEN3_MOE_LAYER,
    "=feedforward.inner.router.bias": "mlp.gate.e_score_correction_bias",
}


def _deepseek_v3(config: ModelConfig) -> Names:
    full = config.latent is not None and config.latent.query_rank is None
    query: Names = {"blocks.*.attention.inner.query": "model.layers.*.self_attn.q_proj"}
    return query if full else {}


def _side_by_side(attended: str) -> tuple[Names, Names]:
    """A layer of Falcon or GPT-NeoX, whose attention is called so."""
    return (
        attention("input_layernorm", f"{attended}.query_key_value", f"{attended}.dense"),
        feedforward("post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    )


FALCON: Names = {
    "embedding": "transformer.word_embeddings",
    **layers("transformer.h.*.", *_side_by_side("self_attention")),
    "norm": "transformer.ln_f",
    "head": "lm_head",
}
GPT_NEOX: Names = {
    "embedding": "gpt_neox.embed_in",
    **layers("gpt_neox.layers.*.", *_side_by_side("attention")),
    "norm": "gpt_neox.final_layer_norm",
    "head": "embed_out",
}


def _falcon(config: ModelConfig) -> Names:
    norms: Names = {"attention.norm": "ln_attn", "feedforward.norm": "ln_mlp"}
    two = config.residual == "parallel_norms"
    return layers("transformer.h.*.", norms) if two else {}


def _encoder(base: Names) -> Callable[[ModelConfig], Names]:
    """The class without a head has no prefix."""
    return lambda config: {} if config.biased_head or config.detector else base


def _t5_stack(stack: str, last: str) -> Names:
    own, other = "layer.0.SelfAttention", "layer.1.EncDecAttention"
    dense = f"{last}.DenseReluDense"
    layer = (
        attention("layer.0.layer_norm", tuple(f"{own}.{x}" for x in "qkv"), f"{own}.o"),
        cross("layer.1.layer_norm", f"{other}.q", (f"{other}.k", f"{other}.v"), f"{other}.o"),
        feedforward(f"{last}.layer_norm", f"{dense}.wi", f"{dense}.wo"),
    )
    return {
        f"{stack}.relative_bias.table": f"{stack}.block.0.{own}.relative_attention_bias",
        **within(f"{stack}.", f"{stack}.", layers("block.*.", *layer)),
        f"{stack}.norm": f"{stack}.final_layer_norm",
    }


T5: Names = {
    "embedding": "shared",
    **_t5_stack("encoder", "layer.1"),
    **_t5_stack("decoder", "layer.2"),
    "head": "lm_head",
}


def _t5(config: ModelConfig) -> Names:
    def two(module: str) -> tuple[str, str]:
        return f"{module}.DenseReluDense.wi_0", f"{module}.DenseReluDense.wi_1"

    gated: Names = {
        "encoder.blocks.*.feedforward.inner.up": two("encoder.block.*.layer.1"),
        "decoder.blocks.*.feedforward.inner.up": two("decoder.block.*.layer.2"),
    }
    return gated if config.gated else {}


BART_STACK: Names = {
    "position_embedding": "embed_positions",
    "embedding_norm": "layernorm_embedding",
    **layers(
        "layers.*.",
        attention("self_attn_layer_norm", QKV, "self_attn.out_proj"),
        cross(
            "encoder_attn_layer_norm",
            "encoder_attn.q_proj",
            ("encoder_attn.k_proj", "encoder_attn.v_proj"),
            "encoder_attn.out_proj",
        ),
        feedforward("final_layer_norm", "fc1", "fc2"),
    ),
}
BART: Names = {
    "embedding": "model.shared",
    **within("encoder.", "model.encoder.", BART_STACK),
    **within("decoder.", "model.decoder.", BART_STACK),
    "head": "lm_head",
}


def _llama(layer: Names) -> Names:
    """LLaMA's with these of a layer."""
    return LLAMA | layers("model.layers.*.", layer)


NAMES: dict[str, Names] = {
    "gpt2": GPT2,
    "openai-gpt": OPENAI_GPT,
    "llama": LLAMA,
    "mistral": LLAMA,
    "mixtral": _llama(MIXTRAL_LAYER),
    "qwen2": LLAMA,
    "qwen3": _llama(QWEN3_LAYER),
    "qwen3_moe": _llama(QWEN3_LAYER | QWEN3_MOE_LAYER),
    "gemma": LLAMA,
    "gemma2": _llama(GEMMA2_LAYER),
    "gemma3_text": _llama(GEMMA2_LAYER | QWEN3_LAYER),
    "olmo2": _llama(OLMO2_LAYER),
    "olmo3": _llama(OLMO2_LAYER),
    "smollm3": LLAMA,
    "phi3": _llama(PHI3_LAYER),
    "deepseek_v3": _llama(DEEPSEEK_V3_LAYER),
    "falcon": FALCON,
    "gpt_neox": GPT_NEOX,
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "distilbert": DISTILBERT,
    "albert": ALBERT,
    "electra": ELECTRA,
    "deberta-v2": DEBERTA_V2,
    "xlnet": XLNET,
    "modernbert": MODERNBERT,
    "t5": T5,
    "mt5": T5,
    "bart": BART,
}
VARIANTS: dict[str, Callable[[ModelConfig], Names]] = {
    "deepseek_v3": _deepseek_v3,
    "falcon": _falcon,
    "bert": _encoder(BERT_BASE),
    "roberta": _encoder(BERT_BASE),
    "xlm-roberta": _encoder(BERT_BASE),
    "distilbert": _encoder(DISTILBERT_BASE),
    "albert": _encoder(ALBERT_BASE),
    "electra": _encoder(ELECTRA_BASE),
    "deberta-v2": _encoder(DEBERTA_V2_BASE),
    "xlnet": _encoder(XLNET_BASE),
    "modernbert": _encoder(MODERNBERT_BASE),
    "t5": _t5,
    "mt5": _t5,
}
"""Where the names depend on more than the model."""
