"""Published shapes by name. A preset is a `ModelConfig`: build it, count it, or change it.

    preset("gpt2-xl")
    replace(preset("llama-3.1-8b"), depth=4)

Each family is one function from the sizes that differ to a config, with its paper; the details that
papers leave out are those of the released checkpoints.
"""

from model.config import ModelConfig, RopeScaling


def preset(name: str) -> ModelConfig:
    """The config of a published model; `ValueError` with the known names for any other."""
    if name not in PRESETS:
        raise ValueError(f"model.preset is {name!r}; it must be one of {', '.join(PRESETS)}")
    return PRESETS[name]


def _gpt(
    depth: int, width: int, heads: int, *, vocab_size: int = 50_257, context: int = 1024
) -> ModelConfig:
    """GPT-2 (Radford et al. 2019, table 2) and GPT-3 (Brown et al. 2020, table 2.1).

    GPT-3's alternating sparse attention layers are dense here.
    """
    return ModelConfig(
        vocab_size=vocab_size,
        context=context,
        width=width,
        depth=depth,
        heads=heads,
        kv_heads=heads,
        head_dim=width // heads,
        ffn_width=4 * width,
        norm="layer",
        positions="learned",
        activation="gelu_tanh",
        bias="all",
    )


def _llama_2(depth: int, width: int, heads: int, kv_heads: int, ffn_width: int) -> ModelConfig:
    """LLaMA 2 (Touvron et al. 2023b, table 1)."""
    return ModelConfig(
        vocab_size=32_000,
        context=4096,
        width=width,
        depth=depth,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width // heads,
        ffn_width=ffn_width,
        tie_embeddings=False,
    )


def _llama_3_1(depth: int, width: int, heads: int, ffn_width: int) -> ModelConfig:
    """LLaMA 3.1 (Grattafiori et al. 2024, table 3)."""
    return ModelConfig(
        vocab_size=128_256,
        context=131_072,
        width=width,
        depth=depth,
        heads=heads,
        kv_heads=8,
        head_dim=width // heads,
        ffn_width=ffn_width,
        rope_theta=500_000.0,
        rope_scaling=RopeScaling(
            factor=8.0,
            low_frequency_factor=1.0,
            high_frequency_factor=4.0,
            original_context=8192,
        ),
        tie_embeddings=False,
    )


def _mistral() -> ModelConfig:
    """Mistral 7B v0.1, with its sliding window (Jiang et al. 2023, table 1)."""
    return ModelConfig(
        vocab_size=32_000,
        context=32_768,
        width=4096,
        depth=32,
        heads=32,
        kv_heads=8,
        head_dim=128,
        ffn_width=14_336,
        window=4096,
        tie_embeddings=False,
    )


def _qwen(
    depth: int,
    width: int,
    heads: int,
    kv_heads: int,
    ffn_width: int,
    *,
    vocab_size: int,
    context: int,
    tied: bool,
) -> ModelConfig:
    """Qwen2.5 (Yang et al. 2024, table 1): LLaMA's shape with biases on queries, keys, values."""
    return ModelConfig(
        vocab_size=vocab_size,
        context=context,
        width=width,
        depth=depth,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width // heads,
        ffn_width=ffn_width,
        norm_epsilon=1e-6,
        rope_theta=1_000_000.0,
        bias="qkv",
        tie_embeddings=tied,
    )


def _gemma_2(
    depth: int,
    width: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    ffn_width: int,
    *,
    query_scalar: int,
) -> ModelConfig:
    """Gemma 2 (Gemma Team 2024, table 1): norms on both sides, capped scores, local layers."""
    return ModelConfig(
        vocab_size=256_000,
        context=8192,
        width=width,
        depth=depth,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn_width=ffn_width,
        norm_placement="sandwich",
        norm_epsilon=1e-6,
        activation="geglu",
        window=4096,
        window_layers="even",
        attention_scale=query_scalar**-0.5,
        attention_softcap=50.0,
        logit_softcap=30.0,
        scale_embedding=True,
    )


PRESETS: dict[str, ModelConfig] = {
    "gpt2": _gpt(12, 768, 12),
    "gpt2-medium": _gpt(24, 1024, 16),
    "gpt2-large": _gpt(36, 1280, 20),
    "gpt2-xl": _gpt(48, 1600, 25),
    "gpt-3": _gpt(96, 12_288, 96, context=2048),
    "llama-2-7b": _llama_2(32, 4096, 32, 32, 11_008),
    "llama-2-13b": _llama_2(40, 5120, 40, 40, 13_824),
    "llama-2-70b": _llama_2(80, 8192, 64, 8, 28_672),
    "llama-3.1-8b": _llama_3_1(32, 4096, 32, 14_336),
    "llama-3.1-70b": _llama_3_1(80, 8192, 64, 28_672),
    "llama-3.1-405b": _llama_3_1(126, 16_384, 128, 53_248),
    "mistral-7b": _mistral(),
    "qwen2.5-0.5b": _qwen(24, 896, 14, 2, 4864, vocab_size=151_936, context=32_768, tied=True),
    "qwen2.5-7b": _qwen(28, 3584, 28, 4, 18_944, vocab_size=152_064, context=131_072, tied=False),
    "qwen2.5-72b": _qwen(80, 8192, 64, 8, 29_568, vocab_size=152_064, context=131_072, tied=False),
    "gemma-2-2b": _gemma_2(26, 2304, 8, 4, 256, 9216, query_scalar=256),
    "gemma-2-9b": _gemma_2(42, 3584, 16, 8, 256, 14_336, query_scalar=256),
    "gemma-2-27b": _gemma_2(46, 4608, 32, 16, 128, 36_864, query_scalar=144),
}
