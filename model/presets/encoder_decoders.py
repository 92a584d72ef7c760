"""Encoder-decoders: the original Transformer, T5, mT5 and BART. Versions 1.1 of T5 do not tie."""

from dataclasses import replace

from model.config import ModelConfig


def _original(width: int, heads: int) -> ModelConfig:
    """The Transformer (Vaswani et al. 2017, section 3 and table 3).

    The paper shares "about 37,000" tokens between English and German, but its parameter counts
    leave room for 41,000 in the base model (65 million) and 36,000 in the big one (213 million);
    39,000 meets both within 2 %.
    """
    return ModelConfig(
        family="encoder_decoder",
        vocab_size=39_000,
        context=512,
        width=width,
        depth=6,
        heads=heads,
        kv_heads=heads,
        head_dim=width // heads,
        ffn_width=4 * width,
        norm="layer",
        norm_placement="post",
        norm_epsilon=1e-6,
        positions="sinusoidal",
        activation="relu",
        bias="all",
        scale_embedding=True,
    )


def _t5(depth: int, width: int, heads: int, ffn_width: int, *, head_dim: int = 64) -> ModelConfig:
    """T5 (Raffel et al. 2020, section 3.7 and appendix): relative positions, unscaled attention.

    The tied head takes states divided by sqrt(width).
    """
    return ModelConfig(
        family="encoder_decoder",
        vocab_size=32_128,
        context=512,
        width=width,
        depth=depth,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        ffn_width=ffn_width,
        norm_epsilon=1e-6,
        positions="relative",
        activation="relu",
        attention_scale=1.0,
        logit_scale=width**-0.5,
    )


def _t5_1_1(
    depth: int, width: int, heads: int, ffn_width: int, *, vocab_size: int = 32_128
) -> ModelConfig:
    """T5 1.1 (Shazeer 2020; Raffel et al.'s later checkpoints) and mT5 (Xue et al. 2021, table 1):
    gated, with a head of its own that is not scaled.
    """
    return replace(
        _t5(depth, width, heads, ffn_width),
        vocab_size=vocab_size,
        activation="geglu",
        logit_scale=1.0,
        tie_embeddings=False,
    )


def _bart(depth: int, width: int) -> ModelConfig:
    """BART (Lewis et al. 2020, section 2.1): BERT's blocks on both sides, heads of 64."""
    return ModelConfig(
        family="encoder_decoder",
        vocab_size=50_265,
        context=1024,
        width=width,
        depth=depth,
        heads=width // 64,
        kv_heads=width // 64,
        head_dim=64,
        ffn_width=4 * width,
        norm="layer",
        norm_placement="post",
        embedding_norm=True,
        positions="learned",
        position_offset=2,
        activation="gelu",
        bias="all",
    )


ENCODER_DECODERS: dict[str, ModelConfig] = {
    "transformer-base": _original(512, 8),
    "transformer-big": _original(1024, 16),
    "t5-small": _t5(6, 512, 8, 2048),
    "t5-base": _t5(12, 768, 12, 3072),
    "t5-large": _t5(24, 1024, 16, 4096),
    "t5-3b": _t5(24, 1024, 32, 16_384, head_dim=128),
    "t5-11b": _t5(24, 1024, 128, 65_536, head_dim=128),
    "t5-v1_1-small": _t5_1_1(8, 512, 6, 1024),
    "t5-v1_1-base": _t5_1_1(12, 768, 12, 2048),
    "t5-v1_1-large": _t5_1_1(24, 1024, 16, 2816),
    "mt5-small": _t5_1_1(8, 512, 6, 1024, vocab_size=250_112),
    "mt5-base": _t5_1_1(12, 768, 12, 2048, vocab_size=250_112),
    "bart-base": _bart(6, 768),
    "bart-large": _bart(12, 1024),
}
