"""The `config.json` of a model: a shape in the words of Transformers, and back.

`counterpart` finds the Transformers model with the same blocks; `describe` and `parse` translate.
"""

from dataclasses import asdict
from typing import Any

from model.config import ModelConfig, RopeScaling

OWN = "headrace"
CLASSES = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
}
GATED = {"swiglu": "silu", "geglu": "gelu_pytorch_tanh"}
PLAIN = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu": "relu", "relu2": "relu2"}


def model_type(config: ModelConfig) -> str:
    """The Transformers `model_type` of a shape, or `headrace` when it has no counterpart."""
    return OWN if obstacle(config) else _nearest(config)


def obstacle(config: ModelConfig) -> str | None:
    """What keeps a shape out of Transformers, by field; None when nothing does."""
    nearest = _nearest(config)
    for field, values in _allowed(config, nearest).items():
        value = getattr(config, field)
        if value not in values:
            only = " or ".join(map(repr, values))
            return f"model.{field} is {value!r}, {CLASSES[nearest]} has only {only}"
    return None


def _nearest(config: ModelConfig) -> str:
    """What a shape is if it is anything: the first whose mark it bears."""
    marks = {
        "gpt2": config.positions == "learned",
        "gemma2": config.norm_placement == "sandwich",
        "qwen3": config.qk_norm,
        "qwen2": config.bias == "qkv",
        "mistral": config.window is not None,
    }
    return next((name for name, marked in marks.items() if marked), "llama")


def _allowed(config: ModelConfig, nearest: str) -> dict[str, tuple[Any, ...]]:
    """The values that the fields of a shape can take in a Transformers model."""
    gpt2, gemma2 = nearest == "gpt2", nearest == "gemma2"
    biases = {"gpt2": ("all",), "llama": ("none", "all"), "qwen2": ("qkv",)}
    allowed: dict[str, tuple[Any, ...]] = {
        "norm": ("layer",) if gpt2 else ("rms",),
        "norm_placement": ("sandwich",) if gemma2 else ("pre",),
        "positions": ("learned",) if gpt2 else ("rope",),
        "activation": tuple(PLAIN) if gpt2 else tuple(GATED),
        "bias": biases.get(nearest, ("none",)),
        "qk_norm": (nearest == "qwen3",),
        "scale_embedding": (gemma2,),
    }
    if gpt2:
        allowed |= {"kv_heads": (config.heads,), "head_dim": (config.width // config.heads,)}
    if gemma2:
        allowed["window_layers"] = ("even",)
    else:
        only_gemma = ("attention_scale", "attention_softcap", "logit_softcap")
        allowed |= dict.fromkeys(only_gemma, (None,)) | {"window_layers": ("all",)}
    if nearest not in ("gemma2", "mistral"):
        allowed["window"] = (None,)
    if nearest not in ("llama", "qwen2", "qwen3"):
        allowed["rope_scaling"] = (None,)
    return allowed


def describe(config: ModelConfig, model_type: str) -> dict[str, Any]:
    """The keys of `config.json` that say this shape."""
    if model_type == OWN:
        return asdict(config)
    if model_type == "gpt2":
        return _describe_gpt2(config)
    about: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context,
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.ffn_width,
        "rms_norm_eps": config.norm_epsilon,
        "hidden_act": GATED[config.activation],
        "attention_dropout": config.dropout,
        "tie_word_embeddings": config.tie_embeddings,
        "rope_theta": config.rope_theta,
        "rope_scaling": _describe_scaling(config.rope_scaling),
    }
    if model_type == "llama":
        about["attention_bias"] = about["mlp_bias"] = config.bias == "all"
    if model_type == "mistral":
        about["sliding_window"] = config.window
    if model_type == "gemma2":
        about |= _describe_gemma2(config)
    return about


def _describe_scaling(scaling: RopeScaling | None) -> dict[str, Any] | None:
    if scaling is None:
        return None
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_frequency_factor,
        "high_freq_factor": scaling.high_frequency_factor,
        "original_max_position_embeddings": scaling.original_context,
    }


def _describe_gemma2(config: ModelConfig) -> dict[str, Any]:
    scale = config.attention_scale or config.head_dim**-0.5
    local = [config.layer_window(layer) is not None for layer in range(config.depth)]
    return {
        "hidden_activation": GATED[config.activation],
        "query_pre_attn_scalar": round(scale**-2),
        "attn_logit_softcapping": config.attention_softcap,
        "final_logit_softcapping": config.logit_softcap,
        "sliding_window": config.window,
        "layer_types": [
            "sliding_attention" if is_local else "full_attention" for is_local in local
        ],
    }


def _describe_gpt2(config: ModelConfig) -> dict[str, Any]:
    return {
        "vocab_size": config.vocab_size,
        "n_positions": config.context,
        "n_embd": config.width,
        "n_layer": config.depth,
        "n_head": config.heads,
        "n_inner": config.ffn_width,
        "layer_norm_epsilon": config.norm_epsilon,
        "activation_function": PLAIN[config.activation],
        "tie_word_embeddings": config.tie_embeddings,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), config.dropout),
    }


def parse(about: dict[str, Any]) -> ModelConfig:
    """The shape that a `config.json` describes.

    Raises `KeyError` for a key that is missing and `ValueError` for a value without counterpart.
    """
    model_type = about["model_type"]
    if model_type == OWN:
        return _parse_own(about)
    if model_type == "gpt2":
        return _parse_gpt2(about)
    if model_type in CLASSES:
        return _parse_llama(about, model_type)
    known = ", ".join((*CLASSES, OWN))
    raise ValueError(f"model_type is {model_type!r}; it must be one of {known}")


def _parse_own(about: dict[str, Any]) -> ModelConfig:
    fields = {name: about[name] for name in ModelConfig.__dataclass_fields__}
    scaling = fields["rope_scaling"]
    fields["rope_scaling"] = scaling and RopeScaling(**scaling)
    return ModelConfig(**fields)


def _parse_gpt2(about: dict[str, Any]) -> ModelConfig:
    heads, width = about["n_head"], about["n_embd"]
    return ModelConfig(
        vocab_size=about["vocab_size"],
        context=about["n_positions"],
        width=width,
        depth=about["n_layer"],
        heads=heads,
        kv_heads=heads,
        head_dim=width // heads,
        ffn_width=about.get("n_inner") or 4 * width,
        norm="layer",
        norm_epsilon=about["layer_norm_epsilon"],
        positions="learned",
        activation=_our_activation(about["activation_function"], PLAIN),
        bias="all",
        tie_embeddings=about.get("tie_word_embeddings", True),
        dropout=about.get("resid_pdrop", 0.0),
    )


def _parse_llama(about: dict[str, Any], model_type: str) -> ModelConfig:
    rope = about.get("rope_parameters") or {**(about.get("rope_scaling") or {})}
    heads, width = about["num_attention_heads"], about["hidden_size"]
    gemma = model_type == "gemma2"
    biased = "all" if about.get("attention_bias") and about.get("mlp_bias") else "none"
    return ModelConfig(
        vocab_size=about["vocab_size"],
        context=about["max_position_embeddings"],
        width=width,
        depth=about["num_hidden_layers"],
        heads=heads,
        kv_heads=about.get("num_key_value_heads") or heads,
        head_dim=about.get("head_dim") or width // heads,
        ffn_width=about["intermediate_size"],
        norm_epsilon=about["rms_norm_eps"],
        norm_placement="sandwich" if gemma else "pre",
        activation=_our_activation(about["hidden_activation" if gemma else "hidden_act"], GATED),
        bias="qkv" if model_type == "qwen2" else biased,  # type: ignore[arg-type]
        qk_norm=model_type == "qwen3",
        rope_theta=rope.get("rope_theta") or about.get("rope_theta") or 10_000.0,
        rope_scaling=_parse_scaling(rope),
        window=about.get("sliding_window") if gemma or model_type == "mistral" else None,
        window_layers="even" if gemma else "all",
        attention_scale=about["query_pre_attn_scalar"] ** -0.5 if gemma else None,
        attention_softcap=about["attn_logit_softcapping"] if gemma else None,
        logit_softcap=about["final_logit_softcapping"] if gemma else None,
        scale_embedding=gemma,
        tie_embeddings=about.get("tie_word_embeddings", gemma),
        dropout=about.get("attention_dropout", 0.0),
    )


def _parse_scaling(rope: dict[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ValueError(f"rope_type is {kind!r}; it must be default | llama3")
    return RopeScaling(
        factor=rope["factor"],
        low_frequency_factor=rope["low_freq_factor"],
        high_frequency_factor=rope["high_freq_factor"],
        original_context=rope["original_max_position_embeddings"],
    )


def _our_activation(theirs: str, names: dict[str, str]) -> Any:
    for ours, name in names.items():
        if name == theirs:
            return ours
    raise ValueError(f"the activation is {theirs!r}; it must be one of {', '.join(names.values())}")
