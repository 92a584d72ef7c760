"""The decoder-only transformer: embeddings, blocks of attention and feed-forward, LM head.

    network = Transformer(from_depth(4, vocab_size=4096, context=256))
    hidden_BTD = network(inputs_BT, documents_BT, positions_BT)
    logits_BTV = network.logits(hidden_BTD)

Letters: B rows, T positions, D width, V vocabulary. Training never calls `logits` on whole batches;
`model.objectives` works through them in chunks.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.attention import Attention, Cache, attention_mask, rotation
from model.config import ModelConfig
from model.feedforward import FeedForward


class Transformer(nn.Module):
    """A decoder with its LM head; tied weights are one parameter. Initialised on construction."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        if config.positions == "learned":
            self.position_embedding = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm = nn.Identity() if config.norm_placement == "post" else make_norm(config)
        if not config.tie_embeddings:
            self.head = nn.Linear(config.width, config.vocab_size, bias=False)
        initialise(self)

    @property
    def head_weight(self) -> Tensor:
        """The LM head's matrix `[V, D]`: the embedding itself when tied (Press and Wolf 2017)."""
        return self.embedding.weight if self.config.tie_embeddings else self.head.weight

    def forward(
        self,
        inputs_BT: Tensor,
        documents_BT: Tensor | None = None,
        positions_BT: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Final hidden states `[B, T, D]` of token ids `[B, T]`.

        `documents_BT` numbers the documents packed in each row (0: padding) and keeps attention
        inside them; None is one document a row. `positions_BT` counts from each document's start;
        None counts from the row's. With a `cache`, the inputs continue what it has seen, and both
        must be given.
        """
        positions_BT = self._positions(inputs_BT) if positions_BT is None else positions_BT
        if cache is not None:
            assert documents_BT is not None, "a cache needs the documents of its tokens"
            documents_BT = cache.extend(documents_BT)
        x_BTD = self._embed(inputs_BT, positions_BT)
        turn = (
            rotation(self.config, positions_BT, x_BTD.dtype)
            if self.config.positions == "rope"
            else None
        )
        masks = self._masks(inputs_BT, documents_BT)
        for layer, block in enumerate(self.blocks):
            past = cache.layers[layer] if cache is not None else None
            x_BTD = block(x_BTD, turn, masks[self.config.layer_window(layer)], past)
        return self.norm(x_BTD)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of every next token, `[..., V]`, from hidden states `[..., D]`."""
        return softcap(F.linear(hidden, self.head_weight), self.config.logit_softcap)

    def _positions(self, inputs_BT: Tensor) -> Tensor:
        return torch.arange(inputs_BT.shape[1], device=inputs_BT.device)[None]

    def _embed(self, inputs_BT: Tensor, positions_BT: Tensor) -> Tensor:
        x_BTD = self.embedding(inputs_BT)
        if self.config.scale_embedding:
            x_BTD = x_BTD * math.sqrt(self.config.width)
        if self.config.positions == "learned":
            x_BTD = x_BTD + self.position_embedding(positions_BT)
        elif self.config.positions == "sinusoidal":
            x_BTD = x_BTD + sinusoids(positions_BT, self.config.width).to(x_BTD.dtype)
        return F.dropout(x_BTD, self.config.dropout, self.training)

    def _masks(
        self, inputs_BT: Tensor, documents_BS: Tensor | None
    ) -> dict[int | None, Tensor | None]:
        queries = inputs_BT.shape[1]
        keys = queries if documents_BS is None else documents_BS.shape[1]
        windows = {self.config.layer_window(layer) for layer in range(self.config.depth)}
        return {
            w: attention_mask(queries, documents_BS, keys, w, inputs_BT.device) for w in windows
        }


class Block(nn.Module):
    """Attention, then feed-forward, each on a residual branch."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = Residual(config, Attention(config))
        self.feedforward = Residual(config, FeedForward(config))

    def forward(self, x_BTD: Tensor, *context: object) -> Tensor:
        """One layer, `[B, T, D]`; `context` is what attention takes beside its input."""
        return self.feedforward(self.attention(x_BTD, *context))


class Residual(nn.Module):
    """A sublayer F on a residual branch, with its norm before, after, or on both sides.

    pre: x + F(norm(x)) (GPT-2 and on); post: norm(x + F(x)) (Vaswani et al. 2017);
    sandwich: x + norm(F(norm(x))) (Gemma 2). Why pre is easier to train: Xiong et al. 2020.
    """

    def __init__(self, config: ModelConfig, inner: nn.Module) -> None:
        super().__init__()
        self.placement = config.norm_placement
        self.dropout = config.dropout
        self.inner = inner
        self.norm = make_norm(config)
        if self.placement == "sandwich":
            self.norm_out = make_norm(config)

    def forward(self, x_BTD: Tensor, *context: object) -> Tensor:
        """The input plus what the sublayer makes of it, `[B, T, D]`."""
        if self.placement == "post":
            return self.norm(x_BTD + self._drop(self.inner(x_BTD, *context)))
        y_BTD = self.inner(self.norm(x_BTD), *context)
        if self.placement == "sandwich":
            y_BTD = self.norm_out(y_BTD)
        return x_BTD + self._drop(y_BTD)

    def _drop(self, y_BTD: Tensor) -> Tensor:
        return F.dropout(y_BTD, self.dropout, self.training)


def make_norm(config: ModelConfig) -> nn.Module:
    """RMSNorm (Zhang and Sennrich 2019) or LayerNorm (Ba et al. 2016) over the width."""
    kind: Callable[..., nn.Module] = nn.RMSNorm if config.norm == "rms" else nn.LayerNorm
    return kind(config.width, config.norm_epsilon)


def softcap(logits: Tensor, cap: float | None) -> Tensor:
    """Keep logits within (-cap, cap) smoothly; None leaves them."""
    return logits if cap is None else cap * torch.tanh(logits / cap)


def sinusoids(positions_BT: Tensor, width: int) -> Tensor:
    """p(t) = sin(t / 10000^(2k/d)), cos(...) in alternation (Vaswani et al. 2017, section 3.5)."""
    pairs = torch.arange(0, width, 2, device=positions_BT.device, dtype=torch.float32)
    angles = positions_BT[..., None].float() * 10_000 ** (-pairs / width)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)[..., :width]


def initialise(network: Transformer) -> None:
    """Draw the weights, from PyTorch's global generator.

    Embeddings and the head N(0, .02). Matrices N(0, 1 / fan-in), so that a layer's output is the
    size of its input at any width; except those that write to the residual stream, which start at
    zero. Every block is then the identity at first, and depth does not drown the tokens before the
    branches have learnt something (Zhang et al. 2019, Fixup; Bachlechner et al. 2021, ReZero).
    """
    for name, module in network.named_modules():
        if isinstance(module, nn.Embedding) or name == "head":
            nn.init.normal_(module.weight, std=0.02)
        elif isinstance(module, nn.Linear):
            if name.endswith(("inner.out", "inner.down")):
                nn.init.zeros_(module.weight)
            else:
                nn.init.normal_(module.weight, std=1 / math.sqrt(module.in_features))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
