"""Shapes of networks from a dial, and in other sizes.

config = from_depth(4, vocab_size=4096, context=256)    # a LLaMA shape, 128 wide
config = from_depth(4, vocab_size=4096, context=256, family="encoder")    # a BERT shape
"""

import math
from dataclasses import replace
from typing import Any

from model.config import CHOICES, GATED, ModelConfig
from model.config_records import RecurrentConfig, require
from model.styles import RECURRENT, STYLES


def from_depth(
    depth: int,
    *,
    vocab_size: int,
    context: int,
    width: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    family: str = "decoder",
    recurrent: RecurrentConfig | None = None,
) -> ModelConfig:
    """The shape of a given depth; `width`, `heads` and `kv_heads` override what it implies.

    A decoder is LLaMA's, an encoder BERT's, an encoder-decoder T5's (version 1.1, with `depth`
    layers on each side). Width grows as 8 depth^2 up to a width of 128 a layer, which passes
    through 128 at depth 4, and LLaMA's own 4096 at 32 and 5120 at 40. Heads are about
    sqrt(8 width) wide: 32 at 128, 128 at 4096. A gated feed-forward layer is 8/3 of the width, a
    plain one 4. The LM head is not tied, as BERT's is: its learning rate should fall with the width
    and the embedding's should not (see `model.optim`).
    """
    require(family in CHOICES["family"], "family", family, " | ".join(CHOICES["family"]))
    require(depth >= 1, "depth", depth, "at least 1")
    width = width or max(32, round(depth * min(8 * depth, 128) / 32) * 32)
    if recurrent is not None:
        return _recurrent(family, vocab_size, context, width, depth, heads or kv_heads, recurrent)
    heads = heads or width // _head_dim(width)
    require(width % heads == 0, "heads", heads, f"a divisor of the width {width}")
    style = STYLES[family]
    gated = style.get("activation", "swiglu") in GATED
    return ModelConfig(
        vocab_size=vocab_size,
        context=context,
        width=width,
        depth=depth,
        heads=heads,
        kv_heads=kv_heads or heads,
        head_dim=width // heads,
        ffn_width=16 * math.ceil(width * 8 / 3 / 16) if gated else 4 * width,
        **style,
    )


def resized(
    config: ModelConfig,
    *,
    depth: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
) -> ModelConfig:
    """A shape in another size; what is None stays, the feed-forward layer grows with the width.

    Experts and latent attention have widths of their own, so such a shape keeps its width.
    """
    width, count = width or config.width, heads or config.heads
    own = config.experts or config.latent
    require(not own or width == config.width, "width", width, f"{config.width}, the preset's")
    same = (width, count) == (config.width, config.heads)
    require(same or width % count == 0, "heads", count, f"a divisor of the width {width}")
    return replace(
        config,
        depth=depth or config.depth,
        encoder_depth=config.encoder_depth and (depth or config.encoder_depth),
        width=width,
        heads=count,
        kv_heads=kv_heads or heads or config.kv_heads,
        head_dim=config.head_dim if same else width // count,
        rotary_dim=config.rotary_dim
        if same or not config.rotary_dim
        else config.rotary_dim * (width // count) // config.head_dim,
        ffn_width=config.ffn_width * width // config.width,
        embedding_width=config.embedding_width and config.embedding_width * width // config.width,
    )


def _head_dim(width: int) -> int:
    """The power of two up to sqrt(8 width), within 16 to 128, or the first below that divides."""
    size = min(max(2 ** int(math.log2(8 * width) / 2), 16), 128)
    while width % size:
        size //= 2
    return size


def _recurrent(
    family: str,
    vocab_size: int,
    context: int,
    width: int,
    depth: int,
    heads: int | None,
    recurrent: RecurrentConfig,
) -> ModelConfig:
    """The shape of a recurrent network, which has no heads."""
    require(heads is None, "heads", heads, "left out with model.recurrent")
    sizes = {"vocab_size": vocab_size, "context": context, "width": width, "depth": depth}
    unused = {"heads": 1, "kv_heads": 1, "head_dim": width, "ffn_width": width}
    style: dict[str, Any] = {"family": family, "recurrent": recurrent, **RECURRENT}
    return ModelConfig(**sizes, **unused, **style)
