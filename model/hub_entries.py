"""The fields of ours that `config.json` says in a way of its own: rotary scaling, latents, experts.

The `Entry` values of the tables in `model.hub_counterparts` that are more than a key.
"""

import math
from typing import Any

from model.config import ExpertConfig, LatentConfig, ModelConfig, RopeScaling
from model.hub_keys import Entry, File, follows

BOUNDS = {"llama3": ("low_freq_factor", "high_freq_factor"), "yarn": ("beta_slow", "beta_fast")}
"""What the two bounds of a rotary scaling are called."""


def layers_of_encoder(encoder: str, decoder: str) -> Entry:
    """`encoder_depth`, which is None where it equals that of the decoder."""

    def read(file: File) -> int | None:
        layers: int = file[encoder]
        return None if layers == (file.get(decoder) or layers) else layers

    return Entry(lambda depth, config: {encoder: depth or config.depth}, read)


def query_scalar(name: str) -> Entry:
    """Gemma's `attention_scale`: given as the dimension whose inverse root it is."""

    def write(scale: float | None, config: ModelConfig) -> File:
        return {name: round(scale**-2) if scale else config.head_dim}

    def read(file: File) -> float | None:
        scalar: int = file[name]
        return None if scalar == file["head_dim"] else scalar**-0.5

    return Entry(write, read)


def rotary() -> dict[str, Entry]:
    """`rope_theta` and `rope_scaling`: newer files keep them together, older ones in two keys."""
    theta = Entry(
        lambda theta, config: {"rope_theta": theta},
        lambda file: _rotary(file).get("rope_theta") or 10_000.0,
    )
    return {"rope_theta": theta, "rope_scaling": Entry(_write_scaling, _read_scaling)}


def _rotary(file: File) -> File:
    older = {"rope_theta": file.get("rope_theta"), **(file.get("rope_scaling") or {})}
    return {**older, **(file.get("rope_parameters") or {})}


def _write_scaling(scaling: RopeScaling | None, config: ModelConfig) -> File:
    if scaling is None:
        return {"rope_scaling": None}
    said: File = {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind in BOUNDS:
        low, high = BOUNDS[scaling.kind]
        said |= {low: scaling.low_frequency_factor, high: scaling.high_frequency_factor}
        said["original_max_position_embeddings"] = scaling.original_context
    if scaling.kind == "yarn":
        said["attention_factor"] = scaling.attention_factor
        if config.attention_scale is not None:
            stretch = math.sqrt(config.attention_scale * math.sqrt(config.head_dim))
            said["mscale_all_dim"] = round(10 * (stretch - 1) / math.log(scaling.factor), 12)
    return {"rope_scaling": said}


def _read_scaling(file: File) -> RopeScaling | None:
    rope = _rotary(file)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=rope["factor"])
    if kind not in BOUNDS:
        raise ValueError(f"rope_type is {kind!r}; it must be default, linear, {', '.join(BOUNDS)}")
    low, high = BOUNDS[kind]
    return RopeScaling(
        kind=kind,
        factor=rope["factor"],
        low_frequency_factor=rope.get(low, 1.0),
        high_frequency_factor=rope.get(high, 32.0),
        original_context=rope["original_max_position_embeddings"],
        attention_factor=_attention_factor(rope) if kind == "yarn" else 1.0,
    )


def _attention_factor(rope: File) -> float:
    """YaRN's: given, or 0.1 m ln(factor) + 1, which DeepSeek divides by another such number."""
    given: float | None = rope.get("attention_factor")
    if given is not None:
        return given
    over, under = rope.get("mscale"), rope.get("mscale_all_dim")
    if over and under:
        return _mscale(rope["factor"], over) / _mscale(rope["factor"], under)
    return _mscale(rope["factor"], 1)


def _mscale(factor: float, m: float) -> float:
    return 0.1 * m * math.log(factor) + 1


def _read_yarn_scale(file: File) -> float | None:
    rope = _rotary(file)
    if not rope.get("mscale_all_dim"):
        return None
    head_dim: int = file["qk_nope_head_dim"] + file["qk_rope_head_dim"]
    return head_dim**-0.5 * _mscale(rope["factor"], rope["mscale_all_dim"]) ** 2


YARN_SCALE = follows(_read_yarn_scale)
"""DeepSeek's `attention_scale`, which grows with its rotary scaling."""


def _write_latent(latent: LatentConfig | None, config: ModelConfig) -> File:
    if latent is None:
        return {}
    return {
        "q_lora_rank": latent.query_rank,
        "kv_lora_rank": latent.kv_rank,
        "qk_rope_head_dim": latent.rope_dim,
        "qk_nope_head_dim": config.head_dim - latent.rope_dim,
        "v_head_dim": latent.value_dim,
    }


def _read_latent(file: File) -> LatentConfig:
    return LatentConfig(
        kv_rank=file["kv_lora_rank"],
        query_rank=file["q_lora_rank"],
        rope_dim=file["qk_rope_head_dim"],
        value_dim=file["v_head_dim"],
    )


LATENT = Entry(_write_latent, _read_latent)

EXPERT_KEYS = {
    "routed": "n_routed_experts",
    "active": "num_experts_per_tok",
    "width": "moe_intermediate_size",
    "shared": "n_shared_experts",
    "dense_layers": "first_k_dense_replace",
    "normalise": "norm_topk_prob",
    "scale": "routed_scaling_factor",
    "groups": "n_group",
    "active_groups": "topk_group",
    "balance_loss": "aux_loss_alpha",
    "balance_bias": "bias_update_speed",
}
BALANCE = {"balance_loss": 1e-4, "balance_bias": 1e-3}
"""How DeepSeek-V3 balances its experts (2024, section 4.2), which its file need not say."""


def _write_experts(experts: ExpertConfig | None, config: ModelConfig) -> File:
    if experts is None:
        return {}
    return {theirs: getattr(experts, ours) for ours, theirs in EXPERT_KEYS.items()}


def _read_experts(file: File) -> ExpertConfig:
    file = {EXPERT_KEYS[ours]: value for ours, value in BALANCE.items()} | file
    said: dict[str, Any] = {ours: file[theirs] for ours, theirs in EXPERT_KEYS.items()}
    always: dict[str, Any] = {
        "scoring": "sigmoid",
        "shared": said["shared"] or 1,
        "balance_bias": said["balance_bias"] or BALANCE["balance_bias"],
    }
    return ExpertConfig(**said | always)


EXPERTS = Entry(_write_experts, _read_experts)


def _write_falcon(residual: str, config: ModelConfig) -> File:
    """Falcon 7B's architecture shares a norm, and one key-value head or none; 40B's is newer."""
    new = residual == "parallel_norms" or config.kv_heads not in (1, config.heads)
    return {
        "new_decoder_architecture": new,
        "parallel_attn": residual != "serial",
        "num_ln_in_parallel_attn": 2 if residual == "parallel_norms" else 1,
    }


def _read_falcon(file: File) -> str:
    if file.get("new_decoder_architecture"):
        return "parallel" if file.get("num_ln_in_parallel_attn") == 1 else "parallel_norms"
    return "parallel" if file.get("parallel_attn", True) else "serial"


FALCON_RESIDUAL = Entry(_write_falcon, _read_falcon)


def _read_falcon_kv_heads(file: File) -> int:
    heads: int = file["num_attention_heads"]
    if file.get("new_decoder_architecture"):
        return file.get("num_kv_heads") or heads
    return 1 if file.get("multi_query", True) else heads


FALCON_KV_HEADS = Entry(
    lambda heads, config: {"num_kv_heads": heads, "multi_query": heads == 1},
    _read_falcon_kv_heads,
)


def encoder_class(base: str, with_head: str) -> Entry:
    """`head_transform`: whether the class that a file is for has the head of masked LM."""
    return Entry(lambda head, config: {"architectures": [with_head if head else base]}, masked_lm)


def masked_lm(file: File) -> bool:
    """Whether a file is for an encoder with the head of masked LM."""
    return str(file.get("architectures")).endswith(("MaskedLM']", "PreTraining']"))


MASKED_LM_TIED = Entry(
    lambda tied, config: {"tie_word_embeddings": tied},
    lambda file: not masked_lm(file) or file.get("tie_word_embeddings", True),
)
"""A class without the head has no place for a matrix of its own."""

ROBERTA_POSITIONS = {
    "context": Entry(
        lambda context, config: {"max_position_embeddings": context + config.position_offset},
        lambda file: file["max_position_embeddings"] - file.get("pad_token_id", 1) - 1,
    ),
    "position_offset": Entry(
        lambda offset, config: {"pad_token_id": offset - 1},
        lambda file: file.get("pad_token_id", 1) + 1,
    ),
}
"""RoBERTa counts positions from the row behind that of its padding token."""

T5_TIED = Entry(
    lambda tied, config: {"tie_word_embeddings": tied, "scale_decoder_outputs": tied},
    lambda file: file.get("scale_decoder_outputs", file.get("tie_word_embeddings", True)),
)
"""T5 scales what goes into a tied head. Newer files call version 1.1's head, which is not, tied."""
