"""The shape of a network: one frozen record, and the `depth` dial that fills it in.

Everything here is plain arithmetic: a shape is planned, counted and shown without PyTorch.

    config = from_depth(4, vocab_size=4096, context=256)    # a LLaMA shape, 128 wide
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

Norm = Literal["rms", "layer"]
NormPlacement = Literal["pre", "post", "sandwich"]
Positions = Literal["rope", "learned", "sinusoidal"]
Activation = Literal["swiglu", "geglu", "gelu", "gelu_tanh", "relu", "relu2"]
Bias = Literal["none", "qkv", "all"]

GATED: frozenset[Activation] = frozenset({"swiglu", "geglu"})


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How LLaMA 3.1 stretches rotary positions past the context it was first trained on.

    Wavelengths above `original_context / low_frequency_factor` are slowed by `factor`, those below
    `original_context / high_frequency_factor` are kept, and in between the two are blended.
    """

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_context: int


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A decoder-only transformer. The defaults are LLaMA's (Touvron et al. 2023, section 2.2).

    Raises `ValueError` that names the field when a value is outside what the blocks can build.
    """

    vocab_size: int
    context: int
    """Longest sequence in tokens: the training context, and the size of learned positions."""
    width: int
    """Size of the residual stream, d_model."""
    depth: int
    heads: int
    kv_heads: int
    """Key and value heads; fewer than `heads` is grouped-query attention (Ainslie et al. 2023)."""
    head_dim: int
    ffn_width: int
    norm: Norm = "rms"
    norm_placement: NormPlacement = "pre"
    """x + F(norm(x)), norm(x + F(x)), or x + norm(F(norm(x)))."""
    norm_epsilon: float = 1e-5
    positions: Positions = "rope"
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    activation: Activation = "swiglu"
    bias: Bias = "none"
    """Bias vectors in no linear layer, in the query-key-value projection only, or in all."""
    qk_norm: bool = False
    """RMSNorm over each query and key head before the rotation (Henry et al. 2020)."""
    window: int | None = None
    """A token sees itself and the `window - 1` tokens before it; None sees all before it."""
    window_layers: Literal["all", "even"] = "all"
    """Which layers keep to the window; `even` are the 1st, 3rd, ... as in Gemma 2."""
    attention_scale: float | None = None
    """Factor on query-key products; None is 1 / sqrt(head_dim)."""
    attention_softcap: float | None = None
    """Attention scores s become cap tanh(s / cap)."""
    logit_softcap: float | None = None
    scale_embedding: bool = False
    """Multiply token embeddings by sqrt(width) (Vaswani et al. 2017, section 3.4)."""
    tie_embeddings: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in SIZES:
            _require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name, choices in CHOICES.items():
            _require(getattr(self, name) in choices, name, getattr(self, name), " | ".join(choices))
        _require(
            self.heads % self.kv_heads == 0,
            "kv_heads",
            self.kv_heads,
            f"a divisor of {self.heads} heads",
        )
        _require(
            self.positions != "rope" or self.head_dim % 2 == 0,
            "head_dim", self.head_dim, "even, for rotary positions turn pairs of numbers",
        )  # fmt: skip
        _require(0 <= self.dropout < 1, "dropout", self.dropout, "at least 0 and below 1")

    @property
    def gated(self) -> bool:
        """Whether the feed-forward layer multiplies two projections (GLU; Shazeer 2020)."""
        return self.activation in GATED

    def layer_window(self, layer: int) -> int | None:
        """The attention window of one layer, counted from 0."""
        return self.window if self.window_layers == "all" or layer % 2 == 0 else None


SIZES = ("vocab_size", "context", "width", "depth", "heads", "kv_heads", "head_dim", "ffn_width")
CHOICES: dict[str, tuple[str, ...]] = {
    "norm": get_args(Norm),
    "norm_placement": get_args(NormPlacement),
    "positions": get_args(Positions),
    "activation": get_args(Activation),
    "bias": get_args(Bias),
}


def from_depth(
    depth: int,
    *,
    vocab_size: int,
    context: int,
    width: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    family: str = "decoder",
) -> ModelConfig:
    """The LLaMA shape of a given depth; `width`, `heads` and `kv_heads` override what it implies.

    Width grows as 8 depth^2 up to a width of 128 a layer, which passes through 128 at depth 4, and
    LLaMA's own 4096 at 32 and 5120 at 40. Heads are about sqrt(8 width) wide: 32 at 128, 128 at
    4096. SwiGLU is 8/3 of the width. The LM head is not tied: its learning rate should fall with
    the width and the embedding's should not (see `model.optim`).
    """
    _require(family == "decoder", "family", family, "decoder")
    _require(depth >= 1, "depth", depth, "at least 1")
    width = width or max(32, round(depth * min(8 * depth, 128) / 32) * 32)
    heads = heads or width // _head_dim(width)
    _require(width % heads == 0, "heads", heads, f"a divisor of the width {width}")
    return ModelConfig(
        vocab_size=vocab_size,
        context=context,
        width=width,
        depth=depth,
        heads=heads,
        kv_heads=kv_heads or heads,
        head_dim=width // heads,
        ffn_width=16 * math.ceil(width * 8 / 3 / 16),
        tie_embeddings=False,
    )


def _head_dim(width: int) -> int:
    """The power of two up to sqrt(8 width), within 16 to 128, or the first below that divides."""
    size = min(max(2 ** int(math.log2(8 * width) / 2), 16), 128)
    while width % size:
        size //= 2
    return size


def _require(holds: bool, field: str, value: object, allowed: str) -> None:
    if not holds:
        raise ValueError(f"model.{field} is {value!r}; it must be {allowed}")
