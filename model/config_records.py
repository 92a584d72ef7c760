"""The parts of a network's shape that are records of their own: rotary positions, latents, experts,
recurrent layers.

`model.config` has the whole.
"""

from dataclasses import dataclass
from typing import Literal, get_args

Cell = Literal["rnn", "lstm", "gru"]
Alignment = Literal["additive", "dot", "general"]
DenseActivation = Literal["tanh", "relu", "sigmoid"]
DenseLoss = Literal["cross_entropy", "mse"]


def require(holds: bool, field: str, value: object, allowed: str) -> None:
    """Raise `ValueError` that names a field of the shape, its value and what is allowed."""
    if not holds:
        raise ValueError(f"model.{field} is {value!r}; it must be {allowed}")


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How rotary positions are stretched past the context a network was first trained on.

    Each frequency turns `original_context` x frequency / 2 pi times in the first context. Those
    that turn at most `low_frequency_factor` times are slowed by `factor`, those that turn at least
    `high_frequency_factor` times are kept, and in between the two are blended: evenly in turns
    (`llama3`, LLaMA 3.1) or evenly in the index of the frequency (`yarn`, Peng et al. 2023, section
    3.2, where the bounds are 1 and 32). `linear` slows them all (Chen et al. 2023) and has no
    bounds. `longrope` has a divisor for each frequency (Ding et al. 2024), one of `long_factors`
    where a row is longer than the first context, else of `short_factors`, and no `factor`. What a
    cache holds of a row that grows past it stays as it was turned (Transformers reads it again).
    Cosines and sines are multiplied by `attention_factor`; YaRN's is 0.1 ln(factor) + 1.
    """

    kind: Literal["llama3", "yarn", "linear", "longrope"] = "llama3"
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_context: int = 8192
    attention_factor: float = 1.0
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()


@dataclass(frozen=True)
class Rope:
    """How one layer's rotary positions turn: the base of their frequencies, and the stretch."""

    theta: float
    scaling: RopeScaling | None = None


@dataclass(frozen=True, kw_only=True)
class LatentConfig:
    """Multi-head latent attention (DeepSeek-V2, section 2.1): keys and values of low rank.

    A token leaves `kv_rank + rope_dim` numbers in the cache, whatever the number of heads. Of a
    query's and key's `head_dim` numbers the last `rope_dim` are rotated and the rest are not.
    """

    kv_rank: int
    query_rank: int | None = None
    """Rank of the queries; None projects them directly."""
    rope_dim: int
    value_dim: int


@dataclass(frozen=True, kw_only=True)
class ExpertConfig:
    """Mixture of experts in place of the feed-forward layer (Shazeer et al. 2017).

    A token goes through its `active` best of `routed` experts and through all `shared` ones, each
    `width` wide (DeepSeekMoE, Dai et al. 2024, section 3).
    """

    routed: int
    active: int
    width: int
    shared: int = 0
    dense_layers: int | tuple[int, ...] = 0
    """So many first layers, or those of these numbers from 0, keep a plain feed-forward layer of
    `ffn_width`."""
    scoring: Literal["softmax", "sigmoid"] = "softmax"
    normalise: bool = True
    """Whether the weights of a token's chosen experts are divided by their sum."""
    scale: float = 1.0
    """Factor on the sum of the routed experts."""
    groups: int = 1
    active_groups: int = 1
    """Experts are chosen within the best `active_groups` of `groups` (DeepSeek-V3, section 2.1)."""
    balance_loss: float = 0.01
    """Coefficient of the balance loss (Fedus et al. 2022, Switch, equation 4); 0 is none."""
    balance_bias: float = 0.0
    """Step of the bias that evens out the experts' loads without a loss (Wang et al. 2024); 0 has
    no such bias."""

    def __post_init__(self) -> None:
        for name in ("routed", "active", "width", "groups", "active_groups"):
            value = getattr(self, name)
            require(value >= 1, f"experts.{name}", value, "at least 1")
        whole = self.routed % self.groups == 0
        require(whole, "experts.groups", self.groups, f"a divisor of {self.routed} experts")
        few = self.active_groups <= self.groups
        require(few, "experts.active_groups", self.active_groups, f"at most {self.groups}")
        among = self.routed // self.groups * self.active_groups
        require(self.active <= among, "experts.active", self.active, f"at most {among}")

    def at(self, layer: int) -> bool:
        """Whether a layer, counted from 0, has experts."""
        dense = self.dense_layers
        return layer >= dense if isinstance(dense, int) else layer not in dense


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    """Recurrent layers in place of attention and feed-forward (`model.recurrent`)."""

    cell: Cell
    bptt: int | None = None
    """In training, gradients go back through so many steps at most, as states are cut off from
    what made them at each such number of a document's tokens; None goes back to its beginning.
    """
    apart: bool = False
    """An encoder's two directions know nothing of each other, and each predicts (ELMo)."""
    attention: Alignment | None = None
    """How a decoder scores an encoder's states (Bahdanau et al. 2015: additive, within the
    recurrence; Luong et al. 2015: dot or general, on top of it); None sees the last ones only."""

    def __post_init__(self) -> None:
        for name, choices in (
            ("cell", get_args(Cell)),
            ("attention", (*get_args(Alignment), None)),
        ):
            value = getattr(self, name)
            require(value in choices, f"recurrent.{name}", value, " | ".join(map(str, choices)))
        require(self.bptt is None or self.bptt >= 1, "recurrent.bptt", self.bptt, "at least 1")

    @property
    def states(self) -> int:
        """Vectors that a cell keeps: an LSTM's have a memory beside what it gives."""
        return 2 if self.cell == "lstm" else 1

    @property
    def gates(self) -> int:
        """Matrices of a cell on its input, and as many on its state."""
        return {"rnn": 1, "gru": 3, "lstm": 4}[self.cell]
