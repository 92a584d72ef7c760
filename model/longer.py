"""A context longer than the one that a network was trained on.

    config = lengthened(config, 32_768, "yarn")

Training goes on from there: weights are those of the shorter context, positions are stretched.
"""

import math
from dataclasses import replace
from typing import Literal

from model.config import ModelConfig, RopeScaling

Extension = Literal["yarn", "theta"]
UNBOUNDED = ("sinusoidal", "alibi", "relative", "disentangled", "relative_sinusoidal")
"""Positions that are defined for any length."""


def lengthened(config: ModelConfig, context: int, how: Extension) -> ModelConfig:
    """The shape for at least so many tokens; the same where it has room for them already.

    `yarn` slows the rotations that do not turn once in the first context, by what it grows, and
    scales the scores (Peng et al. 2023, sections 3.2-3.4). `theta` makes the base larger, by
    growth^(E / (E - 2)) for E rotated numbers, so that the slowest pair turns as far in the longer
    context as it did in the shorter. Raises ValueError where positions cannot be stretched.
    """
    if context <= config.context:
        return config
    longer = replace(config, context=context)
    if config.positions in UNBOUNDED:
        return longer
    if config.positions != "rope":
        raise ValueError(
            f"pretrain.context is {context}, and this model has a table of {config.context} "
            f"positions ({config.positions}): it cannot be stretched; at most {config.context}"
        )
    if how == "theta":
        growth, size = context / config.context, config.rope_dim
        return replace(longer, rope_theta=config.rope_theta * growth ** (size / (size - 2)))
    return replace(longer, rope_scaling=_yarn(config, context))


def _yarn(config: ModelConfig, context: int) -> RopeScaling:
    """YaRN's stretch of the first context to this one, with its alpha 1 and beta 32 for LLaMA."""
    known = config.rope_scaling
    if known and known.kind != "yarn":
        raise ValueError(
            f"model.longer is 'yarn', and its positions are stretched already ({known.kind}); "
            "'theta' makes their base larger"
        )
    first = known.original_context if known else config.context
    factor = context / first
    return RopeScaling(
        kind="yarn",
        factor=factor,
        low_frequency_factor=1.0,
        high_frequency_factor=32.0,
        original_context=first,
        attention_factor=0.1 * math.log(factor) + 1,
    )
