"""The layers of a transformer: attention and feed-forward on residual branches.

Letters: B rows, T positions, S encoder positions, D width.
"""

from dataclasses import dataclass, field

import torch.nn.functional as F
from torch import Tensor, nn

from model.attention import Attention, CrossAttention
from model.cache import LayerCache
from model.config import ModelConfig, Rope
from model.experts import ExpertLayer
from model.feedforward import FeedForward
from model.latent_attention import LatentAttention
from model.masks import Sight
from model.norms import RMSNorm
from model.positions import Rotation
from model.ragged import RaggedLayer
from model.relative_attention import DisentangledAttention, Relative, SinusoidalAttention
from model.sights import Seen


@dataclass(frozen=True)
class Context:
    """What the layers of a stack look at beside their input.

    The sight of self-attention by window (of ragged rows one each), rotary angles by their kind,
    an encoder's states with the sight of them, and vectors of distances.
    """

    sights: dict[int | None, Seen | list[Sight]]
    rotations: dict[Rope | None, Rotation | None]
    memory_BSD: Tensor | None = None
    memory_sight: Sight = field(default_factory=Sight)
    relative: Relative | None = None

    def places(self, rope: Rope | None) -> Rotation | Relative | None:
        """What tells a layer where tokens are, with rotary positions of this kind."""
        return self.relative or self.rotations[rope]


ATTENTION: dict[str, type[Attention]] = {
    "disentangled": DisentangledAttention,
    "relative_sinusoidal": SinusoidalAttention,
}
"""Attention for the positions that need one of their own; all others have `Attention`."""


class Block(nn.Module):
    """One layer: self-attention, in a decoder on an encoder cross-attention, then feed-forward.

    Or in parallel, x + attention(norm(x)) + feedforward(norm(x)) (Wang and Komatsuzaki 2021, GPT-J;
    Falcon), where the two branches share the first's norm or have one each.
    """

    def __init__(self, config: ModelConfig, layer: int, cross: bool = False) -> None:
        super().__init__()
        self.config = config
        self.window, self.rope = config.layer_window(layer), config.layer_rope(layer)
        attention = LatentAttention if config.latent else ATTENTION.get(config.positions, Attention)
        experts = config.layer_experts(layer)
        skipped = layer == 0 and config.skip_first_norm
        self.attention = Residual(config, attention(config), normed=not skipped)
        if cross:
            self.cross = Residual(config, CrossAttention(config))
        self.feedforward = Residual(
            config,
            ExpertLayer(config, experts) if experts else FeedForward(config),
            normed=config.residual != "parallel",
        )

    def forward(
        self, x_BTD: Tensor, context: Context, past: LayerCache | RaggedLayer | None = None
    ) -> Tensor:
        """The next layer's input, `[B, T, D]`."""
        attending = (context.sights[self.window], context.places(self.rope), past)
        if self.config.residual != "serial":
            return self._parallel(x_BTD, *attending)
        x_BTD = self.attention(x_BTD, *attending)
        if context.memory_BSD is not None:
            x_BTD = self.cross(x_BTD, context.memory_BSD, context.memory_sight, past)
        return self.feedforward(x_BTD)

    def _parallel(self, x_BTD: Tensor, *attending: object) -> Tensor:
        first_BTD = self.attention.norm(x_BTD)
        shared = self.config.residual == "parallel"
        second_BTD = first_BTD if shared else self.feedforward.norm(x_BTD)
        mixed_BTD = self.attention.drop(self.attention.inner(first_BTD, *attending))
        return x_BTD + mixed_BTD + self.feedforward.drop(self.feedforward.inner(second_BTD))


class Residual(nn.Module):
    """A sublayer F on a residual branch, with its norm before, after, or on both sides.

    pre: x + F(norm(x)) (GPT-2 and on); post: norm(x + F(x)) (Vaswani et al. 2017);
    sandwich: x + norm(F(norm(x))) (Gemma 2); after: x + norm(F(x)) (OLMo 2). Why pre is easier to
    train: Xiong et al. 2020.
    """

    def __init__(self, config: ModelConfig, inner: nn.Module, normed: bool = True) -> None:
        super().__init__()
        self.placement = config.norm_placement
        self.dropout = config.dropout
        self.inner = inner
        before = normed and self.placement != "after"
        self.norm = make_norm(config) if before else nn.Identity()
        if self.placement in ("sandwich", "after"):
            self.norm_out = make_norm(config)

    def forward(self, x_BTD: Tensor, *context: object) -> Tensor:
        """The input plus what the sublayer makes of it, `[B, T, D]`."""
        if self.placement == "post":
            return self.norm(x_BTD + self.drop(self.inner(x_BTD, *context)))
        y_BTD = self.inner(self.norm(x_BTD), *context)
        if self.placement in ("sandwich", "after"):
            y_BTD = self.norm_out(y_BTD)
        return x_BTD + self.drop(y_BTD)

    def drop(self, y_BTD: Tensor) -> Tensor:
        """Dropout of the branch before it is added, in training."""
        return F.dropout(y_BTD, self.dropout, self.training) if self.dropout else y_BTD


def make_norm(config: ModelConfig, width: int | None = None) -> nn.Module:
    """RMSNorm or LayerNorm (Ba et al. 2016) over a width, the network's own if none is given."""
    width = width or config.width
    if config.norm == "rms":
        return RMSNorm(width, config.norm_epsilon)
    return nn.LayerNorm(width, config.norm_epsilon, bias=config.norm_bias)
