"""The transformer: embeddings, blocks of attention and feed-forward, LM head.

    network = build(from_depth(4, vocab_size=4096, context=256))
    hidden_BTD = network(inputs_BT, documents_BT, positions_BT)
    logits_BTV = network.logits(hidden_BTD)

A decoder or encoder (`Transformer`) is a stack (`model.stack`) with an embedding before it and a
head behind; an encoder-decoder (`model.encoder_decoder`) is two stacks.

Letters: B rows, T positions, S encoder positions, D width, V vocabulary. Training never calls
`logits` on whole batches; `model.objectives` works through them in chunks.
"""

import math
from collections.abc import Callable, Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.cache import Cache
from model.config import ModelConfig
from model.context_parallel import SplitsContext
from model.experts import ExpertLayer
from model.head_parts import Detector, HeadTransform, softcap
from model.initialise import initialise
from model.multi_token import MultiToken
from model.ragged import RaggedCache
from model.stack import Stack


class LanguageModel(nn.Module, SplitsContext):
    """What all families share: an embedding of tokens, and a score for every token."""

    config: ModelConfig
    embedding: nn.Embedding
    detector: Detector
    """ELECTRA's, in a network that has it in place of the LM head."""
    usable: int | None = None
    """So many ids are tokens; a published vocabulary may be padded beyond them."""
    headless: bool = False
    """Whether another head (`model.heads`) stands where the LM head was."""
    rate_shares: Mapping[str, float] | None = None
    """The share of the learning rate at which each kind of its parameters was trained
    (`model.optim`)."""
    multiply_head: Callable[[Tensor], Tensor] | None = None
    """The head's product in place of PyTorch's (`model.generation.packed`)."""

    def add_head(self) -> None:
        """Make the LM head, after the rest of the network."""
        config = self.config
        self.head_bias: nn.Parameter | None = None
        if config.head_transform:
            self.head_transform = HeadTransform(config)
        if config.biased_head:
            self.head_bias = nn.Parameter(torch.zeros(config.vocab_size))
        if config.detector:
            self.detector = Detector(config)
        if not config.tie_embeddings:
            self.head = nn.Linear(config.head_width, config.vocab_size, bias=False)

    @property
    def head_weight(self) -> Tensor:
        """The LM head's matrix `[V, D]`: the embedding itself when tied (Press and Wolf 2017). It
        is as wide as an embedding where a dense layer comes before it.
        """
        return self.embedding.weight if self.config.tie_embeddings else self.head.weight

    def head_input(self, hidden: Tensor) -> Tensor:
        """What `head_weight` is multiplied with, `[..., D]`, of hidden states `[..., D]`."""
        if self.config.head_transform:
            hidden = self.head_transform(hidden)
        return hidden if self.config.logit_scale == 1 else hidden * self.config.logit_scale

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of every token, `[..., V]`, from hidden states `[..., D]`."""
        x = self.head_input(hidden)
        if self.multiply_head is not None:
            scores = self.multiply_head(x)
        else:
            scores = F.linear(x, self.head_weight, self.head_bias)
        return softcap(scores, self.config.logit_softcap)

    def embed(self, inputs_BT: Tensor) -> Tensor:
        """The vectors of tokens, `[B, T, D]`."""
        x_BTD = self.embedding(inputs_BT)
        return x_BTD * math.sqrt(self.config.width) if self.config.scale_embedding else x_BTD

    def balance_loss(self) -> Tensor | None:
        """What experts add to the loss of the last forward pass; None without experts."""
        layers = [m for m in self.modules() if isinstance(m, ExpertLayer)]
        losses = [layer.balance_loss for layer in layers if layer.balance_loss is not None]
        return torch.stack(losses).sum() if losses else None


class Transformer(Stack, LanguageModel):
    """A decoder or encoder with its head; tied weights are one parameter.

    Initialised on construction.
    """

    def __init__(self, config: ModelConfig) -> None:
        assert config.family != "encoder_decoder", "that is model.encoder_decoder.EncoderDecoder"
        super().__init__(
            config,
            config.depth,
            causal=config.family == "decoder",
            embedding=nn.Embedding(config.vocab_size, config.embedded),
        )
        if config.pooler:
            self.pooler = nn.Linear(config.width, config.width)
        if config.query_embedding:
            self.query_embedding = nn.Parameter(torch.empty(config.width))
        if config.multi_token:
            self.multi_token = nn.ModuleList(
                MultiToken(config, config.depth + k) for k in range(config.multi_token)
            )
        self.add_head()
        initialise(self)

    def forward(
        self,
        inputs_BT: Tensor,
        documents_BT: Tensor | None = None,
        positions_BT: Tensor | None = None,
        cache: Cache | RaggedCache | None = None,
        prefix_BT: Tensor | None = None,
        segments_BT: Tensor | None = None,
        order_BT: Tensor | None = None,
        begins_N: Tensor | None = None,
    ) -> Tensor:
        """Final hidden states `[B, T, D]` of token ids `[B, T]`.

        `documents_BT` numbers the documents packed in each row (0: padding) and keeps attention
        inside them; None is one document a row. `positions_BT` counts from each document's start;
        None counts from the row's. With a `cache` the inputs continue what it has seen: without
        `documents_BT` they belong to its last document, without `positions_BT` they follow it.
        Tokens of a prefix (`prefix_BT` is True) see each other. `segments_BT` numbers the kinds of
        segments; None is 0. `order_BT` says in which order tokens are predicted (`masks.in_order`);
        a query stands at the position of its token, as the mask or the network's own vector.
        `begins_N` says where documents begin (`model.documents`), which attention on a GPU wants to
        know.
        """
        x_BTD = self.embed(inputs_BT)
        if order_BT is not None and self.config.query_embedding:
            x_BTD = torch.where(order_BT[..., None] < 0, self.query_embedding, x_BTD)
        return self.run(
            x_BTD,
            documents_BT,
            positions_BT,
            cache=cache,
            prefix_BT=prefix_BT,
            segments_BT=segments_BT,
            order_BT=order_BT,
            begins_N=begins_N,
        )

    def pool(self, hidden_BTD: Tensor) -> Tensor:
        """The first token's state, `[B, D]`, for the sequence; with a pooler, f(W h + b) of it.

        So BERT's released code feeds its next-sentence head, with tanh (Devlin et al. 2019).
        """
        first_BD = hidden_BTD[:, 0]
        if not self.config.pooler:
            return first_BD
        return POOLER_ACTIVATIONS[self.config.pooler_activation](self.pooler(first_BD))

    def further(
        self,
        hidden_BTD: Tensor,
        inputs_BT: Tensor,
        documents_BT: Tensor | None = None,
        positions_BT: Tensor | None = None,
        begins_N: Tensor | None = None,
    ) -> Iterator[Tensor]:
        """Hidden states for the tokens after the next, each `[B, T, D]`; see `model.multi_token`.

        The logits of the k-th (from 1) score, at position i, token i + 1 + k. `hidden_BTD` is what
        the network made of the same other arguments.
        """
        if positions_BT is None:
            positions_BT = torch.arange(inputs_BT.shape[1], device=inputs_BT.device)[None]
        context = self.context(hidden_BTD, documents_BT, positions_BT, begins_N=begins_N)
        for k, module in enumerate(self.multi_token, 1):
            assert isinstance(module, MultiToken)
            hidden_BTD = module(hidden_BTD, self.embed(inputs_BT.roll(-k, 1)), context)
            yield module.norm(hidden_BTD)


POOLER_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "relu": F.relu,
}
