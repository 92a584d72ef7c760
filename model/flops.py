"""What a shape costs: parameters, floating-point operations, bytes. Arithmetic only, no PyTorch.

Sums over `model.parts`.
"""

from collections.abc import Callable
from typing import Literal

from model.config import ModelConfig
from model.part import Part
from model.parts import parts

Precision = Literal["fp32", "bf16", "fp16", "bf16_weights"]
Recompute = Literal["none", "selective", "whole"]


def parameter_count(config: ModelConfig) -> int:
    """Every parameter; tied weights are counted once.

    Decoders and encoder-decoders have their LM head. Encoders are counted as they are published:
    the base model with its pooler, without the head of masked LM.
    """
    return sum(part.params for part in parts(config) if part.role != "own head")


def active_parameter_count(config: ModelConfig) -> int:
    """Those that one token uses: of the routed experts, the chosen ones only."""
    return sum(part.active_params for part in parts(config) if part.role != "own head")


def trained_parameter_count(config: ModelConfig) -> int:
    """Every parameter of the built network: with an encoder's LM head too."""
    return sum(part.params for part in parts(config))


def held_parameter_count(config: ModelConfig, team: int) -> int:
    """Those of the built network that each of so many processes holds, when they have it together
    (tensor parallelism, `model.tensor_parallel`).
    """
    divided = sum(part.layers * part.divided for part in parts(config))
    return trained_parameter_count(config) - divided + divided // team


def non_embedding_parameter_count(config: ModelConfig) -> int:
    """The N of Kaplan et al. 2020 (section 1.3): no token or position embeddings, no head."""
    return sum(part.params for part in parts(config) if part.role == "body")


def approximate_parameter_count(config: ModelConfig) -> int:
    """#H ~ 2 d L (2 d_V + d_FF), d_V being the values of all heads (Kaplan et al. 2020, table 1).

    Queries, keys, values and output are 4 d d_V a layer, feed-forward 2 d d_FF: without
    embeddings, biases and norms, of one stack that has no gates, shared keys or experts.
    """
    values = config.heads * config.head_dim
    return 2 * config.width * config.depth * (2 * values + config.ffn_width)


def flops_per_token(
    config: ModelConfig, context: int | None = None, *, lm_head: bool = True
) -> float:
    """Forward and backward FLOPs for one training token in a sequence of `context` tokens.

    6 for every weight that is multiplied (the head is, even when tied; embeddings are looked up; of
    experts only the active ones), and 12 x heads x head_dim x context a layer for attention scores
    and mixing; the causal half is not discounted (Chowdhery et al. 2022, appendix B). A window caps
    the context of its layers. An encoder-decoder's token is a source token with a target token.
    A network whose states are read by another head than its own does without `lm_head`.
    """
    counted = (p for p in parts(config, context) if lm_head or p.role not in ("head", "own head"))
    return sum(part.flops for part in counted)


def training_bytes(config: ModelConfig) -> dict[str, int]:
    """Bytes that fp32 training with Adam takes on one device, beside the activations of its batch:
    of each parameter 4 for the weight, 4 for the gradient, 8 for the two moments.
    """
    count = trained_parameter_count(config)
    return {"weights": 4 * count, "gradients": 4 * count, "optimizer": 8 * count}


def activation_bytes(
    config: ModelConfig,
    tokens: int,
    precision: Precision = "fp32",
    team: int = 1,
    again: Recompute = "none",
    *,
    on_gpu: bool = False,
) -> int:
    """Estimate of the bytes that are kept of `tokens` tokens for the backward pass. Where some is
    computed `again` (`model.recompute`), these are the input of every layer and all of one layer.

    Counted per token and layer, in numbers: the input and output of every norm, queries, keys,
    values and their mix before and after rotation, and the feed-forward layer's projections with
    their product. Fused attention keeps no scores and the chunked loss no logits. Of a `team` with
    one network, what one process keeps.
    """
    found, size = list(parts(config)), 4 if precision == "fp32" else 2

    def total(numbers: Callable[[Part], int]) -> int:
        return sum(part.layers * numbers(part) // (team if part.divided else 1) for part in found)

    kept = size * total(lambda part: part.kept)
    kept += 2 * total(lambda part: _fp32_in_norms(part, precision, on_gpu))
    if again != "none":
        layers = config.depth + (config.encoder_depth or 0)
        products = total(lambda part: part.products) if again == "selective" else 0
        kept = kept // layers + 4 * layers * config.width + size * products
    return tokens * (kept + 3 * config.width * size)


def _fp32_in_norms(part: Part, precision: Precision, on_gpu: bool) -> int:
    """Numbers of norms that are kept in fp32, while `kept` counts two bytes for each: with
    bf16_weights none are, unless a norm is written out in fp32 (`model.part`).
    """
    if precision == "fp32":
        return 0
    written_out = 0 if on_gpu else part.written_out
    return part.wide + written_out if precision != "bf16_weights" or written_out else 0


def half_weight_bytes(config: ModelConfig) -> int:
    """What autocast keeps from the forward pass to the backward one of the layers' matrices."""
    return sum(2 * p.layers * (p.weights + p.idle) for p in parts(config) if p.role == "body")
