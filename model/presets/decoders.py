"""Decoders: GPT, LLaMA, Mistral, Qwen, Gemma, OLMo, SmolLM, Phi, Falcon, Pythia and DeepSeek."""

import math
from dataclasses import replace

from model.config import ExpertConfig, LatentConfig, ModelConfig, RopeScaling


def _gpt(
    depth: int,
    width: int,
    heads: int,
    *,
    head_dim: int | None = None,
    vocab_size: int = 50_257,
    context: int = 1024,
) -> ModelConfig:
    """GPT-2 (Radford et al. 2019, table 2)."""
    return ModelConfig(
        vocab_size=vocab_size,
        context=context,
        width=width,
        depth=depth,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim or width // heads,
        ffn_width=4 * width,
        norm="layer",
        positions="learned",
        activation="gelu_tanh",
        bias="all",
    )


def _gpt_1() -> ModelConfig:
    """GPT (Radford et al. 2018, section 4.1): post-norm."""
    return replace(_gpt(12, 768, 12, vocab_size=40_478, context=512), norm_placement="post")


def _gpt_3(depth: int, width: int, heads: int, head_dim: int) -> ModelConfig:
    """GPT-3 (Brown et al. 2020, table 2.1), its alternating sparse layers dense.

    The table gives the 1.3B model 24 heads of 128, which is more than its width and its count;
    16 is what fits both. The 13B model's width of 5140 is as printed.
    """
    return _gpt(depth, width, heads, head_dim=head_dim, context=2048)


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
    scaling = RopeScaling(
        factor=8.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context=8192
    )
    return replace(
        _llama_2(depth, width, heads, 8, ffn_width),
        vocab_size=128_256,
        context=131_072,
        rope_theta=500_000.0,
        rope_scaling=scaling,
    )


def _mistral() -> ModelConfig:
    """Mistral 7B v0.1, with its sliding window (Jiang et al. 2023, table 1)."""
    return replace(_llama_2(32, 4096, 32, 8, 14_336), context=32_768, window=4096)


def _qwen(
    depth: int,
    width: int,
    heads: int,
    kv_heads: int,
    ffn_width: int,
    *,
    context: int = 131_072,
    norm_epsilon: float = 1e-6,
    tied: bool = False,
) -> ModelConfig:
    """Qwen2.5 (Yang et al. 2024, table 1): LLaMA's shape with biases on queries, keys, values.

    The models that tie their LM head round their vocabulary up to less.
    """
    return replace(
        _llama_2(depth, width, heads, kv_heads, ffn_width),
        vocab_size=151_936 if tied else 152_064,
        context=context,
        norm_epsilon=norm_epsilon,
        rope_theta=1_000_000.0,
        bias="qkv",
        tie_embeddings=tied,
    )


def _mixtral() -> ModelConfig:
    """Mixtral 8x7B (Jiang et al. 2024, table 1)."""
    return replace(
        _mistral(),
        window=None,
        rope_theta=1_000_000.0,
        experts=ExpertConfig(routed=8, active=2, width=14_336, balance_loss=0.02),
    )


def _qwen_3(
    depth: int, width: int, heads: int, ffn_width: int, *, kv_heads: int = 8, tied: bool = False
) -> ModelConfig:
    """Qwen3 (Yang et al. 2025, table 1): heads of 128, normed, and no biases."""
    qwen = _qwen(depth, width, heads, kv_heads, ffn_width, context=40_960, tied=tied)
    return replace(qwen, vocab_size=151_936, head_dim=128, bias="none", qk_norm="head")


def _qwen_3_moe() -> ModelConfig:
    """Qwen3-30B-A3B (Yang et al. 2025, table 2)."""
    return replace(
        _qwen_3(48, 2048, 32, 6144, kv_heads=4),
        experts=ExpertConfig(routed=128, active=8, width=768, balance_loss=0.001),
    )


def _gemma(
    depth: int, width: int, heads: int, kv_heads: int, ffn_width: int, *, head_dim: int = 256
) -> ModelConfig:
    """Gemma (Gemma Team 2024a, table 1)."""
    return ModelConfig(
        vocab_size=256_000,
        context=8192,
        width=width,
        depth=depth,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn_width=ffn_width,
        norm_epsilon=1e-6,
        activation="geglu",
        scale_embedding=True,
    )


def _gemma_2(
    depth: int, width: int, heads: int, kv_heads: int, ffn_width: int, *, head_dim: int = 256
) -> ModelConfig:
    """Gemma 2 (Gemma Team 2024, table 1): norms on both sides, capped scores, local layers."""
    return replace(
        _gemma(depth, width, heads, kv_heads, ffn_width, head_dim=head_dim),
        norm_placement="sandwich",
        window=4096,
        window_layers=(True, False),
        attention_softcap=50.0,
        logit_softcap=30.0,
    )


def _gemma_3(depth: int, width: int, ffn_width: int) -> ModelConfig:
    """Gemma 3's text-only sizes (Gemma Team 2025, section 2): five local layers to a global one."""
    return replace(
        _gemma(depth, width, 4, 1, ffn_width),
        vocab_size=262_144,
        context=32_768,
        norm_placement="sandwich",
        qk_norm="head",
        rope_theta=1_000_000.0,
        window=512,
        window_layers=(True, True, True, True, True, False),
        window_rope_theta=10_000.0,
    )


def _olmo_2(depth: int, width: int, heads: int, ffn_width: int) -> ModelConfig:
    """OLMo 2 (OLMo Team 2025, table 3): norms behind the branches, and of all heads together."""
    return replace(
        _llama_2(depth, width, heads, heads, ffn_width),
        vocab_size=100_352,
        norm_placement="after",
        norm_epsilon=1e-6,
        qk_norm="all",
        rope_theta=500_000.0,
    )


def _smollm_3() -> ModelConfig:
    """SmolLM3 (Bakouch et al. 2025): each fourth layer without rotary positions."""
    return replace(
        _llama_2(36, 2048, 16, 4, 11_008),
        vocab_size=128_256,
        context=65_536,
        norm_epsilon=1e-6,
        rope_theta=5_000_000.0,
        rope_layers=(True, True, True, False),
        tie_embeddings=True,
    )


def _phi_3() -> ModelConfig:
    """Phi-3-mini with a context of 4096 (Abdin et al. 2024, section 2)."""
    return replace(_llama_2(32, 3072, 32, 32, 8192), vocab_size=32_064, window=2047)


def _pythia(depth: int, width: int, heads: int, *, vocab_size: int = 50_304) -> ModelConfig:
    """Pythia (Biderman et al. 2023, table 1): GPT-NeoX, a quarter of each head turns."""
    return ModelConfig(
        vocab_size=vocab_size,
        context=2048,
        width=width,
        depth=depth,
        heads=heads,
        kv_heads=heads,
        head_dim=width // heads,
        ffn_width=4 * width,
        norm="layer",
        residual="parallel_norms",
        rotary_dim=width // heads // 4,
        activation="gelu",
        bias="all",
        tie_embeddings=False,
    )


def _falcon(depth: int, heads: int, kv_heads: int) -> ModelConfig:
    """Falcon (Almazrouei et al. 2023, table 2): attention and feed-forward side by side.

    Heads are 64 wide. The files of the hub hold the tied LM head a second time.
    """
    return ModelConfig(
        vocab_size=65_024,
        context=2048,
        width=64 * heads,
        depth=depth,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=64,
        ffn_width=256 * heads,
        norm="layer",
        residual="parallel" if kv_heads == 1 else "parallel_norms",
        activation="gelu",
    )


def _deepseek_v3() -> ModelConfig:
    """DeepSeek-V3 (DeepSeek-AI 2024, section 4.2): 671 billion parameters, 37 of them active.

    As in that figure, the multi-token module is not counted: `multi_token=1` adds its 11.5
    billion. YaRN also multiplies the attention scale by (0.1 ln 40 + 1)^2.
    """
    return ModelConfig(
        vocab_size=129_280,
        context=163_840,
        width=7168,
        depth=61,
        heads=128,
        kv_heads=128,
        head_dim=192,
        ffn_width=18_432,
        norm_epsilon=1e-6,
        rope_scaling=RopeScaling(
            kind="yarn",
            factor=40.0,
            low_frequency_factor=1.0,
            high_frequency_factor=32.0,
            original_context=4096,
        ),
        latent=LatentConfig(kv_rank=512, query_rank=1536, rope_dim=64, value_dim=128),
        attention_scale=192**-0.5 * (0.1 * math.log(40) + 1) ** 2,
        experts=ExpertConfig(
            routed=256,
            active=8,
            width=2048,
            shared=1,
            dense_layers=3,
            scoring="sigmoid",
            scale=2.5,
            groups=8,
            active_groups=4,
            balance_loss=1e-4,
            balance_bias=1e-3,
        ),
        tie_embeddings=False,
    )


DECODERS: dict[str, ModelConfig] = {
    "openai-gpt": _gpt_1(),
    "gpt2": _gpt(12, 768, 12),
    "gpt2-medium": _gpt(24, 1024, 16),
    "gpt2-large": _gpt(36, 1280, 20),
    "gpt2-xl": _gpt(48, 1600, 25),
    "gpt3-125m": _gpt_3(12, 768, 12, 64),
    "gpt3-350m": _gpt_3(24, 1024, 16, 64),
    "gpt3-760m": _gpt_3(24, 1536, 16, 96),
    "gpt3-1.3b": _gpt_3(24, 2048, 16, 128),
    "gpt3-2.7b": _gpt_3(32, 2560, 32, 80),
    "gpt3-6.7b": _gpt_3(32, 4096, 32, 128),
    "gpt3-13b": _gpt_3(40, 5140, 40, 128),
    "gpt3-175b": _gpt_3(96, 12_288, 96, 128),
    "llama-2-7b": _llama_2(32, 4096, 32, 32, 11_008),
    "llama-2-13b": _llama_2(40, 5120, 40, 40, 13_824),
    "llama-2-70b": _llama_2(80, 8192, 64, 8, 28_672),
    "llama-3.1-8b": _llama_3_1(32, 4096, 32, 14_336),
    "llama-3.1-70b": _llama_3_1(80, 8192, 64, 28_672),
    "llama-3.1-405b": _llama_3_1(126, 16_384, 128, 53_248),
    "mistral-7b": _mistral(),
    "qwen2.5-0.5b": _qwen(24, 896, 14, 2, 4864, context=32_768, tied=True),
    "qwen2.5-1.5b": _qwen(28, 1536, 12, 2, 8960, tied=True),
    "qwen2.5-3b": _qwen(36, 2048, 16, 2, 11_008, context=32_768, tied=True),
    "qwen2.5-7b": _qwen(28, 3584, 28, 4, 18_944),
    "qwen2.5-14b": _qwen(48, 5120, 40, 8, 13_824, norm_epsilon=1e-5),
    "qwen2.5-32b": _qwen(64, 5120, 40, 8, 27_648, norm_epsilon=1e-5),
    "qwen2.5-72b": _qwen(80, 8192, 64, 8, 29_568, norm_epsilon=1e-5),
    "gemma-2-2b": _gemma_2(26, 2304, 8, 4, 9216),
    "gemma-2-9b": _gemma_2(42, 3584, 16, 8, 14_336),
    "gemma-2-27b": replace(
        _gemma_2(46, 4608, 32, 16, 36_864, head_dim=128), attention_scale=1 / 12
    ),
    "mixtral-8x7b": _mixtral(),
    "qwen3-0.6b": _qwen_3(28, 1024, 16, 3072, tied=True),
    "qwen3-1.7b": _qwen_3(28, 2048, 16, 6144, tied=True),
    "qwen3-8b": _qwen_3(36, 4096, 32, 12_288),
    "qwen3-30b-a3b": _qwen_3_moe(),
    "gemma-2b": _gemma(18, 2048, 8, 1, 16_384),
    "gemma-7b": _gemma(28, 3072, 16, 16, 24_576),
    "gemma-3-270m": _gemma_3(18, 640, 2048),
    "gemma-3-1b": _gemma_3(26, 1152, 6912),
    "olmo-2-1b": _olmo_2(16, 2048, 16, 8192),
    "olmo-2-7b": _olmo_2(32, 4096, 32, 11_008),
    "smollm3-3b": _smollm_3(),
    "phi-3-mini-4k": _phi_3(),
    "pythia-70m": _pythia(6, 512, 8),
    "pythia-160m": _pythia(12, 768, 12),
    "pythia-410m": _pythia(24, 1024, 16),
    "pythia-1b": _pythia(16, 2048, 8),
    "pythia-1.4b": _pythia(24, 2048, 16),
    "pythia-2.8b": _pythia(32, 2560, 32),
    "pythia-6.9b": _pythia(32, 4096, 32, vocab_size=50_432),
    "pythia-12b": _pythia(36, 5120, 40, vocab_size=50_688),
    "falcon-7b": _falcon(32, 71, 1),
    "falcon-40b": _falcon(60, 128, 8),
    "falcon-180b": _falcon(80, 232, 8),
    "deepseek-v3": _deepseek_v3(),
}
