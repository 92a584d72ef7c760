"""Encoders: BERT, those that have its blocks, from RoBERTa to ELECTRA, and ModernBERT."""

from dataclasses import replace

from model.config import Activation, ModelConfig


def _bert(
    depth: int,
    width: int,
    *,
    vocab_size: int,
    norm_epsilon: float = 1e-12,
    position_offset: int = 0,
    segments: int = 2,
) -> ModelConfig:
    """BERT (Devlin et al. 2019, section 3): post-norm, heads of 64, a pooler and a head of its own.

    GELU is the exact one, as in the released checkpoints.
    """
    return ModelConfig(
        family="encoder",
        vocab_size=vocab_size,
        context=512,
        width=width,
        depth=depth,
        heads=width // 64,
        kv_heads=width // 64,
        head_dim=64,
        ffn_width=4 * width,
        norm="layer",
        norm_placement="post",
        norm_epsilon=norm_epsilon,
        embedding_norm=True,
        positions="learned",
        position_offset=position_offset,
        activation="gelu",
        bias="all",
        segments=segments,
        head_transform=True,
        pooler=True,
    )


def _roberta(depth: int, width: int, *, vocab_size: int) -> ModelConfig:
    """RoBERTa (Liu et al. 2019) and XLM-R (Conneau et al. 2020, table 5): BERT without segments.

    One segment embedding is left over, and positions count from 2, after that of padding.
    """
    return _bert(
        depth, width, vocab_size=vocab_size, norm_epsilon=1e-5, position_offset=2, segments=1
    )


def _distilbert(vocab_size: int) -> ModelConfig:
    """DistilBERT (Sanh et al. 2019, section 3): half of BERT's layers, no segments, no pooler."""
    bert = _bert(6, 768, vocab_size=vocab_size)
    return replace(bert, segments=0, pooler=False, pooler_activation="relu")


def _albert(
    depth: int, width: int, heads: int, activation: Activation = "gelu_tanh"
) -> ModelConfig:
    """ALBERT, version 2 (Lan et al. 2020, table 1): one layer many times, embeddings of 128.

    The largest has the exact GELU, as in the released checkpoints.
    """
    return replace(
        _bert(depth, width, vocab_size=30_000),
        heads=heads,
        kv_heads=heads,
        head_dim=width // heads,
        shared_layers=True,
        embedding_width=128,
        activation=activation,
    )


def _electra(depth: int, width: int, *, embedding_width: int | None = None) -> ModelConfig:
    """The discriminator of ELECTRA (Clark et al. 2020, appendix B): BERT without a pooler, in the
    small model with embeddings half as wide.
    """
    return replace(
        _bert(depth, width, vocab_size=30_522),
        embedding_width=embedding_width,
        head_transform=False,
        detector=True,
        pooler=False,
        pooler_activation="gelu",
    )


def _deberta(depth: int, width: int, *, vocab_size: int = 128_100) -> ModelConfig:
    """DeBERTa, version 3 (He et al. 2023, table 2): BERT with disentangled attention, without
    absolute positions or segments.
    """
    return replace(
        _bert(depth, width, vocab_size=vocab_size, norm_epsilon=1e-7, segments=0),
        positions="disentangled",
        relative_buckets=512,
        relative_distance=512,
        pooler=False,
        pooler_activation="gelu",
    )


def _xlnet(depth: int, width: int) -> ModelConfig:
    """XLNet (Yang et al. 2019, appendix A.4.1): heads of 64, distances as sinusoids, relative
    segments, a vector for what is to be predicted, and a head with a bias.
    """
    return replace(
        _bert(depth, width, vocab_size=32_000),
        positions="relative_sinusoidal",
        embedding_norm=False,
        bias="feedforward",
        query_embedding=True,
        head_transform=False,
        head_bias=True,
        pooler=False,
    )


def _modernbert(depth: int, width: int, ffn_width: int) -> ModelConfig:
    """ModernBERT (Warner et al. 2024, section 2.1 and table 4): heads of 64, two local layers to a
    global one, no biases but the head's.
    """
    return ModelConfig(
        family="encoder",
        vocab_size=50_368,
        context=8192,
        width=width,
        depth=depth,
        heads=width // 64,
        kv_heads=width // 64,
        head_dim=64,
        ffn_width=ffn_width,
        norm="layer",
        norm_bias=False,
        embedding_norm=True,
        skip_first_norm=True,
        rope_theta=160_000.0,
        window=65,
        window_layers=(False, True, True),
        window_rope_theta=10_000.0,
        activation="geglu_exact",
        head_transform=True,
    )


ENCODERS: dict[str, ModelConfig] = {
    "bert-base-uncased": _bert(12, 768, vocab_size=30_522),
    "bert-large-uncased": _bert(24, 1024, vocab_size=30_522),
    "bert-base-cased": _bert(12, 768, vocab_size=28_996),
    "bert-large-cased": _bert(24, 1024, vocab_size=28_996),
    "roberta-base": _roberta(12, 768, vocab_size=50_265),
    "roberta-large": _roberta(24, 1024, vocab_size=50_265),
    "xlm-roberta-base": _roberta(12, 768, vocab_size=250_002),
    "xlm-roberta-large": _roberta(24, 1024, vocab_size=250_002),
    "distilbert-base-uncased": _distilbert(30_522),
    "distilbert-base-cased": _distilbert(28_996),
    "albert-base-v2": _albert(12, 768, 12),
    "albert-large-v2": _albert(24, 1024, 16),
    "albert-xlarge-v2": _albert(24, 2048, 16),
    "albert-xxlarge-v2": _albert(12, 4096, 64, "gelu"),
    "electra-small-discriminator": _electra(12, 256, embedding_width=128),
    "electra-base-discriminator": _electra(12, 768),
    "electra-large-discriminator": _electra(24, 1024),
    "deberta-v3-xsmall": _deberta(12, 384),
    "deberta-v3-small": _deberta(6, 768),
    "deberta-v3-base": _deberta(12, 768),
    "deberta-v3-large": _deberta(24, 1024),
    "mdeberta-v3-base": _deberta(12, 768, vocab_size=251_000),
    "xlnet-base-cased": _xlnet(12, 768),
    "xlnet-large-cased": _xlnet(24, 1024),
    "modernbert-base": _modernbert(22, 768, 1152),
    "modernbert-large": _modernbert(28, 1024, 2624),
}
