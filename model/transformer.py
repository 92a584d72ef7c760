"""The transformer: embeddings, blocks of attention and feed-forward, LM head.

    network = build(from_depth(4, vocab_size=4096, context=256))
    hidden_BTD = network(inputs_BT, documents_BT, positions_BT)
    logits_BTV = network.logits(hidden_BTD)

A `Stack` turns vectors into vectors. A decoder or encoder (`Transformer`) is a stack with an
embedding before it and a head behind; an encoder-decoder (`model.encoder_decoder`) is two stacks.

Letters: B rows, T positions, S encoder positions, D width, V vocabulary. Training never calls
`logits` on whole batches; `model.objectives` works through them in chunks.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from model.blocks import Block, Context, make_norm
from model.cache import Cache
from model.config import ModelConfig
from model.context_parallel import SplitsContext
from model.experts import ExpertLayer, passes
from model.feedforward import ACTIVATIONS
from model.initialise import initialise
from model.masks import Sight, cross_sight, self_sight, single
from model.multi_token import MultiToken
from model.positions import RelativeBias, alibi, rotation, sinusoids
from model.ragged import RaggedCache
from model.relative_attention import Relative, bucketed, measured


@dataclass(frozen=True)
class Memory:
    """What an encoder made of its inputs, for a decoder: states `[B, S, D]` and their documents.

    None for the documents is one a row, without padding.
    """

    states_BSD: Tensor
    documents_BS: Tensor | None = None

    def sight(self, documents_BT: Tensor | None) -> Sight:
        """What decoder positions of these documents see of it."""
        return cross_sight(documents_BT, self.documents_BS)

    def select(self, rows: Tensor) -> "Memory":
        """These rows in this order; a row named twice is copied (beam search)."""
        documents = None if self.documents_BS is None else self.documents_BS[rows]
        return Memory(self.states_BSD[rows], documents)


class LanguageModel(nn.Module, SplitsContext):
    """What all families share: an embedding of tokens, and a score for every token."""

    config: ModelConfig
    embedding: nn.Embedding
    detector: "Detector"
    """Of a network that has one in place of the LM head."""
    usable: int | None = None
    """So many ids are tokens; a published vocabulary may be padded beyond them."""
    headless: bool = False
    """Whether another head (`model.heads`) stands where the LM head was."""
    multiply_head: Callable[[Tensor, Tensor | None], Tensor] | None = None
    """What multiplies by `head_weight` in place of PyTorch (`model.generation.packed`)."""

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
            read = config.embedded if config.head_transform else config.width
            self.head = nn.Linear(read, config.vocab_size, bias=False)

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
            scores = self.multiply_head(x, self.head_bias)
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


class Stack(nn.Module, SplitsContext):
    """Blocks between positions and a last norm; `embedding`, if given, becomes a part of it.

    With `activation_checkpointing` set, training keeps only what goes into each block and computes
    the rest again on the way back: a third more arithmetic, far less memory (Chen et al. 2016).
    With `context_group` set (`model.context_parallel`), states are of this process's positions.
    """

    def __init__(
        self,
        config: ModelConfig,
        depth: int,
        *,
        causal: bool,
        cross: bool = False,
        embedding: nn.Embedding | None = None,
    ) -> None:
        super().__init__()
        self.config, self.causal, self.activation_checkpointing = config, causal, False
        layers = range(depth + config.multi_token)
        self.windows = {config.layer_window(layer) for layer in layers}
        self.ropes = {config.layer_rope(layer) for layer in layers}
        if embedding is not None:
            self.embedding = embedding
        if config.positions == "learned":
            rows = config.position_offset + config.context
            self.position_embedding = nn.Embedding(rows, config.embedded)
        elif config.positions == "relative":
            self.relative_bias = RelativeBias(config, causal)
        elif config.positions == "disentangled":
            self.relative_embedding = nn.Embedding(config.relative_buckets, config.width)
            self.relative_norm = make_norm(config)
        if config.segment_table:
            self.segment_embedding = nn.Embedding(config.segments, config.embedded)
        if config.embedding_norm:
            self.embedding_norm = make_norm(config, config.embedded)
        if config.embedding_width:
            self.embedding_projection = nn.Linear(config.embedding_width, config.width)
        made = [Block(config, n, cross) for n in range(1 if config.shared_layers else depth)]
        self.blocks = nn.ModuleList(made * depth if config.shared_layers else made)
        self.norm = nn.Identity() if config.norm_placement == "post" else make_norm(config)

    def run(
        self,
        x_BTD: Tensor,
        documents_BT: Tensor | None = None,
        positions_BT: Tensor | None = None,
        *,
        cache: Cache | RaggedCache | None = None,
        prefix_BT: Tensor | None = None,
        segments_BT: Tensor | None = None,
        order_BT: Tensor | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """Final hidden states `[B, T, D]` of token vectors; see `Transformer.forward`."""
        if positions_BT is None:
            assert not isinstance(cache, RaggedCache)
            seen = 0 if cache is None else cache.length
            positions_BT = torch.arange(seen, seen + x_BTD.shape[1], device=x_BTD.device)[None]
        x_BTD = self._place(x_BTD, positions_BT, segments_BT)
        context = self.context(
            x_BTD, documents_BT, positions_BT, cache, prefix_BT, memory, order_BT, segments_BT
        )
        x_BTD = self.own(x_BTD)
        for layer, block in enumerate(self.blocks):
            if self.activation_checkpointing and self.training:
                around = partial(passes, block)
                x_BTD = checkpoint(block, x_BTD, context, use_reentrant=False, context_fn=around)
            else:
                x_BTD = block(x_BTD, context, None if cache is None else cache.layers[layer])
        return self.norm(x_BTD)

    def context(
        self,
        x_BTD: Tensor,
        documents_BT: Tensor | None,
        positions_BT: Tensor,
        cache: Cache | RaggedCache | None = None,
        prefix_BT: Tensor | None = None,
        memory: Memory | None = None,
        order_BT: Tensor | None = None,
        segments_BT: Tensor | None = None,
    ) -> Context:
        """What the blocks look at beside `x_BTD`; tells the cache of the documents."""
        last_BT = cache.furthest_1N if isinstance(cache, RaggedCache) else None
        turns = {
            rope: None
            if rope is None
            else rotation(self.config, rope, self.own(positions_BT), x_BTD.dtype, last_BT)
            for rope in self.ropes
        }
        if isinstance(cache, RaggedCache):
            device = x_BTD.device
            rows = {window: cache.sights(window, self._bias, device) for window in self.windows}
            return Context(dict(rows), turns)
        queries, keys = x_BTD.shape[1], x_BTD.shape[1]
        sight_of_memory = memory.sight(documents_BT) if memory is not None else Sight()
        if cache is not None:
            keys += cache.length
            documents_BT = cache.extend(documents_BT, queries)
        elif single(documents_BT):
            documents_BT = None
        assert prefix_BT is None or queries == keys, "a prefix is read in one piece"
        sights = {
            window: self_sight(
                queries,
                keys,
                x_BTD.device,
                causal=self.causal,
                window=window,
                documents_BS=documents_BT,
                prefix_BS=prefix_BT,
                order_BS=order_BT,
            )
            for window in self.windows
        }
        bias_HTS = self._bias(queries, keys, x_BTD.device)
        if bias_HTS is not None:
            sights = {window: sight.biased(bias_HTS) for window, sight in sights.items()}
        states_BSD = None if memory is None else memory.states_BSD
        relative = self._relative(x_BTD, positions_BT, segments_BT)
        return Context(dict(sights), turns, states_BSD, sight_of_memory, relative)

    def _place(self, x_BTD: Tensor, positions_BT: Tensor, segments_BT: Tensor | None) -> Tensor:
        """Token vectors with those of their positions and segments."""
        config = self.config
        if config.positions == "learned":
            x_BTD = x_BTD + self.position_embedding(positions_BT + config.position_offset)
        elif config.positions == "sinusoidal":
            x_BTD = x_BTD + sinusoids(positions_BT, config.embedded).to(x_BTD.dtype)
        if config.segment_table:
            first = torch.zeros_like(positions_BT)
            x_BTD = x_BTD + self.segment_embedding(first if segments_BT is None else segments_BT)
        if config.embedding_norm:
            x_BTD = self.embedding_norm(x_BTD)
        x_BTD = F.dropout(x_BTD, config.dropout, self.training)
        return self.embedding_projection(x_BTD) if config.embedding_width else x_BTD

    def _relative(self, x_BTD: Tensor, at_BT: Tensor, segments: Tensor | None) -> Relative | None:
        if self.config.positions == "relative_sinusoidal":
            return measured(at_BT, segments, x_BTD)
        if self.config.positions != "disentangled":
            return None
        states_RD = self.relative_norm(self.relative_embedding.weight)
        return bucketed(states_RD, x_BTD.shape[1], self.config.relative_distance)

    def _bias(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        if self.config.positions == "alibi":
            return alibi(self.config.heads, queries, keys, device)
        return self.relative_bias(queries, keys) if self.config.positions == "relative" else None


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
    ) -> Tensor:
        """Final hidden states `[B, T, D]` of token ids `[B, T]`.

        `documents_BT` numbers the documents packed in each row (0: padding) and keeps attention
        inside them; None is one document a row. `positions_BT` counts from each document's start;
        None counts from the row's. With a `cache` the inputs continue what it has seen: without
        `documents_BT` they belong to its last document, without `positions_BT` they follow it.
        Tokens of a prefix (`prefix_BT` is True) see each other. `segments_BT` numbers the kinds of
        segments; None is 0. `order_BT` says in which order tokens are predicted (`masks.in_order`);
        a query stands at the position of its token, as the mask or the network's own vector.
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
        )

    def pool(self, hidden_BTD: Tensor) -> Tensor:
        """The first token's state, `[B, D]`, for the sequence; with a pooler, f(W h + b) of it.

        So BERT's released code feeds its next-sentence head, with tanh (Devlin et al. 2019).
        """
        first_BD = hidden_BTD[:, 0]
        if not self.config.pooler:
            return first_BD
        return POOLER_ACTIVATIONS[self.config.pooler_activation](self.pooler(first_BD))

    def detect(self, hidden: Tensor) -> Tensor:
        """Scores that tokens were replaced, `[...]`, of hidden states `[..., D]`."""
        return self.detector(hidden)

    def further(
        self,
        hidden_BTD: Tensor,
        inputs_BT: Tensor,
        documents_BT: Tensor | None = None,
        positions_BT: Tensor | None = None,
    ) -> Iterator[Tensor]:
        """Hidden states for the tokens after the next, each `[B, T, D]`; see `model.multi_token`.

        The logits of the k-th (from 1) score, at position i, token i + 1 + k. `hidden_BTD` is what
        the network made of the same other arguments.
        """
        if positions_BT is None:
            positions_BT = torch.arange(inputs_BT.shape[1], device=inputs_BT.device)[None]
        context = self.context(hidden_BTD, documents_BT, positions_BT)
        for k, module in enumerate(self.multi_token, 1):
            assert isinstance(module, MultiToken)
            hidden_BTD = module(hidden_BTD, self.embed(inputs_BT.roll(-k, 1)), context)
            yield module.norm(hidden_BTD)


POOLER_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "relu": F.relu,
}


class Detector(nn.Module):
    """w f(W h + b) + c, one score a token (the discriminator's head of ELECTRA's released code)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config, self.activation = config, ACTIVATIONS[config.activation]
        self.dense = nn.Linear(config.width, config.width)
        self.out = nn.Linear(config.width, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Of every hidden state, `[...]`."""
        return self.out(self.activation(self.dense(hidden)))[..., 0]


class HeadTransform(nn.Module):
    """norm(f(W h + b)), before the LM head (the masked-LM head of BERT's released code)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.dense = nn.Linear(config.width, config.embedded, bias=config.bias == "all")
        self.norm = make_norm(config, config.embedded)

    def forward(self, hidden: Tensor) -> Tensor:
        """Of every hidden state, as wide as an embedding."""
        return self.norm(self.activation(self.dense(hidden)))


def softcap(logits: Tensor, cap: float | None) -> Tensor:
    """Keep logits within (-cap, cap) smoothly; None leaves them."""
    return logits if cap is None else cap * torch.tanh(logits / cap)
