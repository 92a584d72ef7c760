"""The shape of a network: one frozen record (`model.shapes` has the `depth` dial that fills it in).

Everything here is plain arithmetic: a shape is planned, counted and shown without PyTorch.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from model.config_checks import check_latent, check_recurrent
from model.config_records import (
    ExpertConfig,
    LatentConfig,
    RecurrentConfig,
    Rope,
    RopeScaling,
    require,
)

Family = Literal["decoder", "encoder", "encoder_decoder"]
Norm = Literal["rms", "layer"]
NormPlacement = Literal["pre", "post", "sandwich", "after"]
Residual = Literal["serial", "parallel", "parallel_norms"]
Positions = Literal[
    "rope", "learned", "sinusoidal", "alibi", "relative", "disentangled", "relative_sinusoidal",
    "none",
]  # fmt: skip
Activation = Literal["swiglu", "geglu", "geglu_exact", "gelu", "gelu_tanh", "relu", "relu2"]
Bias = Literal["none", "qkv", "attention", "feedforward", "all"]
QKNorm = Literal["none", "head", "all"]
PoolerActivation = Literal["tanh", "gelu", "relu"]

ParameterKind = Literal["matrices", "head", "embeddings", "positions", "vectors"]
MATRIX_KINDS: tuple[ParameterKind, ...] = ("matrices", "head", "embeddings", "positions")
"""Parameters of two dimensions; `vectors` are gains and biases (`model.optim`)."""
GATED: frozenset[Activation] = frozenset({"swiglu", "geglu", "geglu_exact"})
Rule = tuple[bool, str, str]
"""Whether it holds, the field that is at fault where it does not, and what is allowed."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A transformer. The defaults are LLaMA's (Touvron et al. 2023, section 2.2).

    Raises `ValueError` that names the field when a value is outside what the blocks can build.
    """

    family: Family = "decoder"
    """Each token sees those before it; or all; or an encoder of the latter kind beneath a decoder
    of the former that also sees the encoder's states."""
    vocab_size: int
    context: int
    """Longest sequence in tokens: the training context, and the size of learned positions."""
    width: int
    """Size of the residual stream, d_model."""
    depth: int
    """Layers; of an encoder-decoder, those of its decoder."""
    encoder_depth: int | None = None
    """Layers of an encoder-decoder's encoder; None is `depth`."""
    shared_layers: bool = False
    """All layers of a stack are one, passed through so many times (ALBERT, section 3.1)."""
    heads: int
    kv_heads: int
    """Key and value heads; fewer than `heads` is grouped-query attention (Ainslie et al. 2023)."""
    head_dim: int
    ffn_width: int

    norm: Norm = "rms"
    norm_placement: NormPlacement = "pre"
    """x + F(norm(x)), norm(x + F(x)), x + norm(F(norm(x))), or x + norm(F(x))."""
    norm_bias: bool = True
    """Whether a LayerNorm adds a vector; RMSNorm has none."""
    norm_epsilon: float = 1e-5
    residual: Residual = "serial"
    """Feed-forward after attention, or both beside each other on one norm (GPT-J, Falcon 7B) or on
    a norm each (GPT-NeoX, Falcon 40B)."""
    embedding_norm: bool = False
    """A norm of the embeddings, before the first layer (BERT, BART, BLOOM)."""
    skip_first_norm: bool = False
    """The first layer's attention takes the normed embeddings as they are (ModernBERT)."""

    positions: Positions = "rope"
    position_offset: int = 0
    """Rows at the start of the table of learned positions that no token uses (RoBERTa, BART: 2)."""
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    rope_layers: tuple[bool, ...] = (True,)
    """Which layers have rotary positions, over and over: of (True, True, True, False) each fourth
    has none (SmolLM3)."""
    rotary_dim: int | None = None
    """Numbers of each head that turn, its first ones (GPT-NeoX), one more if they are odd; None
    turns all."""
    relative_buckets: int = 32
    relative_distance: int = 128
    """Relative positions (T5: a bias each; DeBERTa, disentangled: a vector each): learned buckets,
    and the distance from which all share the last."""

    activation: Activation = "swiglu"
    experts: ExpertConfig | None = None
    bias: Bias = "none"
    """Bias vectors in no linear layer, in the query-key-value projection, in all of attention, in
    the feed-forward layer only, or in all."""
    qk_norm: QKNorm = "none"
    """RMSNorm over each query and key head before the rotation (Henry et al. 2020), or over all
    heads together (OLMo 2)."""
    latent: LatentConfig | None = None
    """Multi-head latent attention in place of multi-head attention."""
    recurrent: RecurrentConfig | None = None
    """Recurrent layers in place of attention and feed-forward; of the sizes the width is theirs."""
    window: int | None = None
    """A token sees itself and the `window - 1` tokens before it (in an encoder, also after it);
    None sees all."""
    window_layers: tuple[bool, ...] = (True,)
    """Which layers keep to the window, over and over: (True, False) are the 1st, 3rd, ... as in
    Gemma 2."""
    window_rope_theta: float | None = None
    """Base of the rotary positions of those layers, which are not scaled then (Gemma 3); None
    leaves them like the others."""
    attention_scale: float | None = None
    """Factor on query-key products; None is 1 / sqrt(head_dim)."""
    attention_softcap: float | None = None
    """Attention scores s become cap tanh(s / cap)."""

    embedding_width: int | None = None
    """Numbers of an embedding, which a matrix maps to the width (Lan et al. 2020, ALBERT, section
    3.1); None is the width itself."""
    scale_embedding: bool = False
    """Multiply token embeddings by sqrt(width) (Vaswani et al. 2017, section 3.4)."""
    segments: int = 0
    """Kinds of segments with an embedding of their own (BERT's token types); 0 is none. With
    positions relative_sinusoidal 2: scores know whether two tokens are of one segment (XLNet)."""
    tie_embeddings: bool = True
    head_transform: bool = False
    """A dense layer and a norm before the LM head, and a bias after it (BERT, RoBERTa)."""
    head_bias: bool = False
    """A bias after an LM head without such a layer (XLNet)."""
    query_embedding: bool = False
    """A vector that stands for a token to be predicted, in place of a mask's (XLNet)."""
    logit_scale: float = 1.0
    """Factor on hidden states before the LM head (T5: 1 / sqrt(width) when tied)."""
    logit_softcap: float | None = None
    detector: bool = False
    """A head that says of every token whether it was replaced, and no LM head (ELECTRA)."""
    pooler: bool = False
    """A dense layer on the first token's state, for whole sequences (BERT)."""
    pooler_activation: PoolerActivation = "tanh"
    multi_token: int = 0
    """Tokens after the next that are predicted too, by a block each (DeepSeek-V3, section 2.2)."""
    dropout: float = 0.0
    mup_base_width: int | None = None
    """Where given, the network is scaled so that training it is alike at every width (Yang et al.
    2022, Tensor Programs V, table 3), and at this one as it is without: the LM head starts smaller
    in wider networks, matrices learn slower (`model.optim`), and scores are q k / head_dim."""

    def __post_init__(self) -> None:
        for name in SIZES:
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name, choices in CHOICES.items():
            require(getattr(self, name) in choices, name, getattr(self, name), " | ".join(choices))
        for holds, name, allowed in self._rules():
            require(holds, name, getattr(self, name), allowed)
        if self.latent is not None:
            check_latent(self, self.latent)
        if self.recurrent is not None:
            check_recurrent(self, self.recurrent)

    def _rules(self) -> Iterator[Rule]:
        """All of them, in the order in which faults are told."""
        yield from self._rules_of_attention()
        yield from self._rules_of_layers()
        yield from self._rules_of_mup()
        yield 0 <= self.dropout < 1, "dropout", "at least 0 and below 1"

    def _rules_of_attention(self) -> Iterator[Rule]:
        yield (
            self.heads % self.kv_heads == 0,
            "kv_heads", f"a divisor of {self.heads} heads",
        )  # fmt: skip
        yield (
            self.positions != "rope" or self.rotary_dim is not None or self.rope_dim % 2 == 0,
            "head_dim", "even, for rotary positions turn pairs of numbers",
        )  # fmt: skip
        yield (
            self.positions not in ("disentangled", "relative_sinusoidal")
            or (self.family, self.kv_heads, self.qk_norm) == ("encoder", self.heads, "none"),
            "positions", "another unless family is encoder, kv_heads all heads and qk_norm none",
        )  # fmt: skip
        sinusoidal = self.positions == "relative_sinusoidal"
        yield not sinusoidal or self.width % 2 == 0, "width", "even, with relative sinusoids"
        yield (
            not sinusoidal or self.segments in (0, 2),
            "segments",
            "0 or 2 with relative sinusoids",
        )
        turned = 2 * math.ceil((self.rotary_dim or 0) / 2)
        yield turned <= self.head_dim, "rotary_dim", f"at most {self.head_dim // 2 * 2}"
        for name in ("rope_layers", "window_layers"):
            yield bool(getattr(self, name)), name, "a choice for at least one layer"

    def _rules_of_layers(self) -> Iterator[Rule]:
        yield (
            not self.skip_first_norm
            or (self.embedding_norm, self.norm_placement, self.residual) == (True, "pre", "serial"),
            "skip_first_norm", "False unless embedding_norm is True, norm_placement pre and "
            "residual serial",
        )  # fmt: skip
        yield (
            self.residual == "serial"
            or (self.norm_placement == "pre" and self.family != "encoder_decoder"),
            "residual", "serial unless norm_placement is pre and family decoder or encoder",
        )  # fmt: skip
        yield (
            self.family == "encoder_decoder" or self.encoder_depth is None,
            "encoder_depth", "None unless family is encoder_decoder",
        )  # fmt: skip
        alike = max(len(self.rope_layers), len(self.window_layers)) == 1
        yield (
            not self.shared_layers or (alike and not self.experts and not self.skip_first_norm),
            "shared_layers", "False where layers differ, as with experts or skip_first_norm",
        )  # fmt: skip
        yield (
            self.multi_token == 0 or self.family == "decoder",
            "multi_token", "0 unless family is decoder",
        )  # fmt: skip
        for name, without in ENCODERS_ONLY.items():
            plain = getattr(self, name) == without
            yield plain or self.family == "encoder", name, f"{without} unless family is encoder"
        yield (
            not (self.detector and (self.biased_head or not self.tie_embeddings)),
            "detector", "False with an LM head: head_transform, head_bias, or one not tied",
        )  # fmt: skip
        yield (
            self.experts is None or not self.feedforward_bias,
            "bias", "none, qkv or attention with model.experts",
        )  # fmt: skip

    def _rules_of_mup(self) -> Iterator[Rule]:
        yield (
            not (self.mup_base_width and self.tie_embeddings),
            "tie_embeddings", "False with model.mup: an embedding and a head learn at other rates",
        )  # fmt: skip
        yield not (self.mup_base_width and self.latent), "latent", "None with model.mup"
        sinusoidal = self.positions == "relative_sinusoidal"
        yield not (self.mup_base_width and sinusoidal), "positions", "another with model.mup"

    @property
    def gated(self) -> bool:
        """Whether the feed-forward layer multiplies two projections (GLU; Shazeer 2020)."""
        return self.activation in GATED

    @property
    def rope_dim(self) -> int:
        """Numbers of a query or key that rotary positions turn."""
        return self.latent.rope_dim if self.latent else self.rotary_dim or self.head_dim

    @property
    def attention_bias(self) -> bool:
        """Whether what attention gives has a bias vector, and not only what it takes."""
        return self.bias in ("attention", "all")

    @property
    def feedforward_bias(self) -> bool:
        """Whether the feed-forward layer has bias vectors."""
        return self.bias in ("feedforward", "all")

    @property
    def qkv_bias(self) -> bool:
        """Whether queries, keys and values have bias vectors."""
        return self.bias in ("qkv", "attention", "all")

    @property
    def biased_head(self) -> bool:
        """Whether the LM head has a bias."""
        return self.head_transform or self.head_bias

    @property
    def segment_table(self) -> bool:
        """Whether segments have vectors that are added to those of tokens."""
        return self.segments > 0 and self.positions != "relative_sinusoidal"

    @property
    def apart(self) -> bool:
        """Whether an encoder's two directions know nothing of each other."""
        return self.recurrent is not None and self.recurrent.apart

    @property
    def embedded(self) -> int:
        """Numbers of an embedding; each direction that is apart reads the whole of one."""
        return self.embedding_width or (self.width // 2 if self.apart else self.width)

    @property
    def head_width(self) -> int:
        """Numbers that the LM head reads."""
        return self.embedded if self.head_transform or self.apart else self.width

    @property
    def score_scale(self) -> float:
        """Factor on query-key products, 1 / sqrt(head_dim) unless the shape has its own. With muP
        it falls as 1 / head_dim, and is the usual one for heads of 16, the narrowest of the dial.
        Disentangled scores are sums of three products (He et al. 2021, section 3.1).
        """
        if self.mup_base_width:
            return math.sqrt(16) / self.head_dim
        sums = 3 if self.positions == "disentangled" else 1
        return self.attention_scale or 1 / math.sqrt(sums * self.head_dim)

    def layer_window(self, layer: int) -> int | None:
        """The attention window of one layer, counted from 0."""
        return self.window if self.window_layers[layer % len(self.window_layers)] else None

    def layer_rope(self, layer: int) -> Rope | None:
        """The rotary positions of one layer, counted from 0; None where it has none."""
        if self.positions != "rope" or not self.rope_layers[layer % len(self.rope_layers)]:
            return None
        if self.window_rope_theta is not None and self.layer_window(layer) is not None:
            return Rope(self.window_rope_theta)
        return Rope(self.rope_theta, self.rope_scaling)

    def layer_experts(self, layer: int) -> ExpertConfig | None:
        """The experts of one layer, counted from 0; None where it is dense."""
        return self.experts if self.experts and self.experts.at(layer) else None


ENCODERS_ONLY = {
    "pooler": False, "detector": False, "embedding_width": None, "query_embedding": False,
}  # fmt: skip
"""What only an encoder may have, and what it is without."""
SIZES = ("vocab_size", "context", "width", "depth", "heads", "kv_heads", "head_dim", "ffn_width")
CHOICES: dict[str, tuple[str, ...]] = {
    "family": get_args(Family),
    "norm": get_args(Norm),
    "norm_placement": get_args(NormPlacement),
    "residual": get_args(Residual),
    "positions": get_args(Positions),
    "activation": get_args(Activation),
    "bias": get_args(Bias),
    "qk_norm": get_args(QKNorm),
    "pooler_activation": get_args(PoolerActivation),
}
