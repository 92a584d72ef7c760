"""The small masked LM that fills in tokens beside a network that is to find them (ELECTRA).

Plain arithmetic, so that a training is planned without PyTorch.
"""

import math
from dataclasses import replace

from model.config import ModelConfig
from model.flops import flops_per_token
from model.shapes import resized

SIZE = 0.25
"""Heads, width and feed-forward width of a generator, in shares of the network's."""


def generator_shape(config: ModelConfig, size: float) -> ModelConfig:
    """The generator beside a network: as many layers, fewer heads, the network's embeddings (Clark
    et al. 2020, ELECTRA, section 3.2).

    A matrix leads from embeddings to a smaller width; its head is tied where the network's is.
    """
    heads = max(1, round(config.heads * size))
    width = config.width * heads // config.heads
    smaller = resized(config, width=width, heads=heads, kv_heads=math.gcd(config.kv_heads, heads))
    return replace(
        smaller,
        embedding_width=None if width == config.embedded else config.embedded,
        head_transform=True,
        detector=False,
        head_bias=False,
        query_embedding=False,
        pooler=False,
    )


def detection_flops(config: ModelConfig, context: int, size: float) -> float:
    """Forward and backward FLOPs of the two networks for one training token (`model.flops`)."""
    generator = flops_per_token(generator_shape(config, size), context)
    return flops_per_token(config, context, lm_head=config.detector) + generator
