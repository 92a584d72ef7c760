"""What a shape costs: parameters, floating-point operations, bytes. Arithmetic only, no PyTorch.

The tests hold these counts equal to those of the built modules.
"""

from dataclasses import dataclass
from typing import Literal

from model.config import ModelConfig

Precision = Literal["fp32", "bf16", "fp16"]


def parameter_count(config: ModelConfig) -> int:
    """Every parameter, with the LM head; tied weights are counted once."""
    embeddings = config.vocab_size * config.width
    if config.positions == "learned":
        embeddings += config.context * config.width
    head = 0 if config.tie_embeddings else config.vocab_size * config.width
    final_norm = 0 if config.norm_placement == "post" else _norm(config)
    return embeddings + config.depth * _block(config) + final_norm + head


def non_embedding_parameter_count(config: ModelConfig) -> int:
    """The N of Kaplan et al. 2020 (section 1.3): no token or position embeddings, no head."""
    embeddings = config.vocab_size * config.width * (1 if config.tie_embeddings else 2)
    if config.positions == "learned":
        embeddings += config.context * config.width
    return parameter_count(config) - embeddings


def flops_per_token(config: ModelConfig, context: int | None = None) -> float:
    """Forward and backward FLOPs for one training token in a sequence of `context` tokens.

    6 for every weight that is multiplied (the head is, even when tied; embeddings are looked up),
    and 12 x heads x head_dim x context a layer for attention scores and mixing; the causal half is
    not discounted (Chowdhery et al. 2022, appendix B). A window caps the context of its layers.
    """
    context = context or config.context
    weights = config.depth * _matrices(config) + config.vocab_size * config.width
    spans = (min(context, config.layer_window(layer) or context) for layer in range(config.depth))
    return 6 * weights + 12 * config.heads * config.head_dim * sum(spans)


@dataclass(frozen=True, kw_only=True)
class TrainingBytes:
    """Memory of one device while training, in bytes."""

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations


def training_bytes(
    config: ModelConfig,
    *,
    zero_stage: int = 0,
    workers: int = 1,
    precision: Precision = "fp32",
    tokens: int = 0,
) -> TrainingBytes:
    """Bytes per device with Adam under ZeRO (Rajbhandari et al. 2020, section 3.1 and figure 1).

    fp32 keeps weights and gradients in 4 bytes and two moments in 8; 16-bit training keeps 2 + 2
    and, in the optimizer, an fp32 copy of the weights with both moments: 12. Stage 1 splits the
    optimizer over the workers, 2 the gradients too, 3 the weights too. `tokens` is the size of a
    device's micro-batch; its activations are an estimate, see `activation_bytes`.
    """
    count = parameter_count(config)
    size, optimizer = (4, 8) if precision == "fp32" else (2, 12)
    share = [workers if zero_stage >= stage else 1 for stage in (1, 2, 3)]
    return TrainingBytes(
        optimizer=_ceil_div(count * optimizer, share[0]),
        gradients=_ceil_div(count * size, share[1]),
        weights=_ceil_div(count * size, share[2]),
        activations=activation_bytes(config, tokens, precision),
    )


def activation_bytes(config: ModelConfig, tokens: int, precision: Precision = "fp32") -> int:
    """Estimate of what the backward pass keeps of `tokens` tokens, without recomputation.

    Counted per token and layer, in numbers: the input and output of both norms, queries, keys,
    values and their mix before and after rotation, and the feed-forward layer's projections with
    their product. Fused attention keeps no scores and the chunked loss no logits.
    """
    attention = 2 * (config.heads + config.kv_heads) * config.head_dim
    attention += (config.heads + config.kv_heads) * config.head_dim
    feedforward = config.ffn_width * (4 if config.gated else 2)
    numbers = config.depth * (4 * config.width + attention + feedforward) + 3 * config.width
    return tokens * numbers * (4 if precision == "fp32" else 2)


def _block(config: ModelConfig) -> int:
    qkv = (config.heads + 2 * config.kv_heads) * config.head_dim
    biases = qkv if config.bias != "none" else 0
    if config.bias == "all":
        biases += config.width + config.ffn_width * (1 + config.gated) + config.width
    norms = (4 if config.norm_placement == "sandwich" else 2) * _norm(config)
    qk_norms = 2 * config.head_dim if config.qk_norm else 0
    return _matrices(config) + biases + norms + qk_norms


def _matrices(config: ModelConfig) -> int:
    qkv = config.width * (config.heads + 2 * config.kv_heads) * config.head_dim
    out = config.heads * config.head_dim * config.width
    feedforward = config.width * config.ffn_width * (2 + config.gated)
    return qkv + out + feedforward


def _norm(config: ModelConfig) -> int:
    return config.width * (2 if config.norm == "layer" else 1)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)
