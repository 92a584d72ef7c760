"""The fields of ours that `config.json` says in a way of its own: latents, experts, ties.

The `Entry` values of the tables in `model.counterparts` that are more than a key.
"""

from collections.abc import Callable
from typing import Any

from model.config import ExpertConfig, LatentConfig, ModelConfig
from model.counterparts.keys import Entry, File


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
        scalar: int = file.get(name, 256)
        return None if scalar == file.get("head_dim", 256) else scalar**-0.5

    return Entry(write, read)


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

DEEPSEEK_EXPERTS = {
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
BALANCE = {"aux_loss_alpha": 1e-4, "bias_update_speed": 1e-3}
"""How DeepSeek-V3 balances its experts (2024, section 4.2), which its file need not say."""


def experts(
    keys: dict[str, str],
    missing: File,
    implied: Callable[[File], dict[str, Any]] = lambda file: {},
    say: Callable[[ExpertConfig, ModelConfig], File] = lambda experts, config: {},
) -> Entry:
    """Experts whose settings have these `keys`, with what a file means that lacks some.

    `implied` are settings that the file says otherwise, and `say` how; the rest are as by default.
    """

    def write(value: ExpertConfig | None, config: ModelConfig) -> File:
        if value is None:
            return {}
        return {theirs: getattr(value, ours) for ours, theirs in keys.items()} | say(value, config)

    def read(file: File) -> ExpertConfig:
        file = missing | {key: said for key, said in file.items() if said is not None}
        return ExpertConfig(**{ours: file[theirs] for ours, theirs in keys.items()} | implied(file))

    return Entry(write, read)


def deepseek_experts(file: File) -> dict[str, Any]:
    """What DeepSeek's experts always have."""
    balance = file["bias_update_speed"] or BALANCE["bias_update_speed"]
    shared = file["n_shared_experts"] or 1
    return {"scoring": "sigmoid", "shared": shared, "balance_bias": balance}


def qwen_experts(file: File) -> dict[str, Any]:
    """How many, by either of two keys; and the layers without: all but each so many, and some."""
    count, each = file["num_hidden_layers"], file.get("decoder_sparse_step", 1)
    listed = file.get("mlp_only_layers") or ()
    dense = tuple(n for n in range(count) if n in listed or (n + 1) % each)
    first = dense == tuple(range(len(dense)))
    routed = file["num_experts"] if "num_experts" in file else file["num_local_experts"]
    return {"routed": routed, "dense_layers": len(dense) if first else dense}


def say_qwen_experts(experts: ExpertConfig, config: ModelConfig) -> File:
    """The same, with the layers listed."""
    listed = [layer for layer in range(config.depth) if not experts.at(layer)]
    return {"num_experts": experts.routed, "mlp_only_layers": listed, "decoder_sparse_step": 1}


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


DEBERTA: File = {
    "relative_attention": True,
    "position_biased_input": False,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
}
"""How DeBERTa's released models, from version 2 on, know positions."""


def _read_disentangled(file: File) -> str:
    meant = {"position_biased_input": True, "norm_rel_ebd": "none"} | file
    for name, value in DEBERTA.items():
        if meant.get(name) != value:
            raise ValueError(f"{name} is {meant.get(name)!r}; it must be {value!r}")
    kinds = file.get("pos_att_type") or ()
    if set(kinds.split("|") if isinstance(kinds, str) else kinds) != {"c2p", "p2c"}:
        raise ValueError(f"pos_att_type is {kinds!r}; it must be c2p and p2c")
    if file.get("position_buckets", -1) < 1:
        raise ValueError(f"position_buckets is {file.get('position_buckets')!r}; it must be set")
    return "disentangled"


def _furthest(file: File) -> int:
    said: int = file.get("max_relative_positions", -1)
    return said if said > 0 else file["max_position_embeddings"]


DISENTANGLED = {
    "positions": Entry(
        lambda positions, config: {**DEBERTA, "pos_att_type": ["p2c", "c2p"]},
        _read_disentangled,
        ("disentangled",),
    ),
    "relative_buckets": Entry(
        lambda buckets, config: {"position_buckets": buckets // 2},
        lambda file: 2 * file.get("position_buckets", 0),
    ),
    "relative_distance": Entry(
        lambda distance, config: {"max_relative_positions": distance}, _furthest
    ),
}

EMBEDDING_WIDTH = Entry(
    lambda width, config: {"embedding_size": config.embedded},
    lambda file: (
        None if file.get("embedding_size", 128) == file["hidden_size"]
        else file.get("embedding_size", 128)
    ),
)  # fmt: skip
"""ELECTRA has no matrix where embeddings are as wide as the rest."""


def _electra_class(_: bool, config: ModelConfig) -> File:
    """The discriminator, or the generator, or neither's head."""
    head = "MaskedLM" if config.head_transform else "PreTraining" if config.detector else ""
    return {"architectures": [f"ElectraFor{head}" if head else "ElectraModel"]}


def _is_class(ending: str) -> Callable[[File], bool]:
    return lambda file: str(file.get("architectures")).endswith(f"{ending}']")


ELECTRA_HEADS = {
    "detector": Entry(_electra_class, _is_class("PreTraining")),
    "head_transform": Entry(_electra_class, _is_class("MaskedLM")),
    "tie_embeddings": Entry(
        lambda tied, config: {"tie_word_embeddings": tied},
        lambda file: not _is_class("MaskedLM")(file) or file.get("tie_word_embeddings", True),
    ),
}

XLNET_HEAD = Entry(
    lambda head, config: {"architectures": ["XLNetLMHeadModel" if head else "XLNetModel"]},
    _is_class("LMHeadModel"),
)


def _read_d_head(file: File) -> float:
    share = file["d_model"] / file["n_head"]
    if file.get("d_head") not in (None, share):
        raise ValueError(f"d_head is {file['d_head']!r}; it must be d_model / n_head, {share:g}")
    return int(share) if share.is_integer() else share


XLNET_HEAD_DIM = Entry(lambda size, config: {"d_head": size}, _read_d_head)

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

T5_SCALE = Entry(
    lambda scale, config: {"scale_decoder_outputs": scale != 1},
    lambda file: file["d_model"] ** -0.5 if _t5_scales(file) else 1.0,
)
"""T5 scales what goes into its head; version 1.1, known by its own untied head, does not."""


def _t5_scales(file: File) -> bool:
    return file.get("scale_decoder_outputs", file.get("tie_word_embeddings", True) is not False)


WITH_HEAD = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MaskedLM", "ForPreTraining")


def tied(missing: bool) -> Entry:
    """`tie_embeddings`, with what a file means that does not say.

    A file for a class without the LM head has no place for a matrix of its own.
    """

    def read(file: File) -> bool:
        kind, *_ = file.get("architectures") or WITH_HEAD
        said = file.get("tie_word_embeddings")
        return not kind.endswith(WITH_HEAD) or (missing if said is None else said)

    return Entry(lambda tied, config: {"tie_word_embeddings": tied}, read)
