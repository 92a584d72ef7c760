"""A stack of blocks: vectors of tokens in, vectors out, with positions before and a norm behind.

A decoder or encoder (`model.transformer`) is one; an encoder-decoder (`model.encoder_decoder`) has
two.

Letters: B rows, T positions, S encoder positions, D width, N documents of all rows.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.blocks import Block, Context, make_norm
from model.cache import Cache
from model.config import ModelConfig
from model.context_parallel import SplitsContext
from model.flops import Recompute
from model.masks import Sight, self_sight, single
from model.memory import Memory
from model.positions import RelativeBias, alibi, alibi_by_distance, rotation, sinusoids
from model.ragged import RaggedCache
from model.recompute import recomputed
from model.recurrent import Reading, reading, recurrent_layer
from model.relative_attention import Relative, bucketed, measured
from model.sights import Blocks, Lengths, Seen, kernel_sight, on_gpu


class Stack(nn.Module, SplitsContext):
    """Blocks between positions and a last norm; `embedding`, if given, becomes a part of it.

    With `activation_checkpointing` set (`model.recompute`), training keeps less of what blocks make
    and computes the rest again on the way back. With `context_group` set
    (`model.context_parallel`), the states are those of this process's positions.
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
        self.config, self.causal = config, causal
        self.activation_checkpointing: Recompute = "none"
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
        layer = recurrent_layer if config.recurrent else Block
        made = [layer(config, n, cross) for n in range(1 if config.shared_layers else depth)]
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
        begins_N: Tensor | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """Final hidden states `[B, T, D]` of token vectors; see `Transformer.forward`."""
        if positions_BT is None:
            assert not isinstance(cache, RaggedCache)
            seen = 0 if cache is None else cache.length
            positions_BT = torch.arange(seen, seen + x_BTD.shape[1], device=x_BTD.device)[None]
        x_BTD = self._place(x_BTD, positions_BT, segments_BT)
        context = self.context(
            x_BTD,
            documents_BT,
            positions_BT,
            cache,
            memory,
            prefix_BT=prefix_BT,
            order_BT=order_BT,
            segments_BT=segments_BT,
            begins_N=begins_N,
        )
        x_BTD = self.own(x_BTD)
        if cache is None:
            return self.layers(x_BTD, context)
        for block, past in zip(self.blocks, cache.layers, strict=True):
            x_BTD = block(x_BTD, context, past)
        return self.norm(x_BTD)

    def layers(self, x_BTD: Tensor, context: Context | Reading) -> Tensor:
        """Final hidden states of what goes into the first block."""
        again = self.activation_checkpointing if self.training else "none"
        for block in self.blocks:
            if again == "none":
                x_BTD = block(x_BTD, context)
            else:
                x_BTD = recomputed(again, block, x_BTD, context)
        return self.norm(x_BTD)

    def compile_layers(self) -> None:
        """Compile all blocks as one: kernels then reach from one into the next."""
        self.layers = torch.compile(self.layers, dynamic=False)  # pyrefly: ignore

    def context(
        self,
        x_BTD: Tensor,
        documents_BT: Tensor | None,
        positions_BT: Tensor,
        cache: Cache | RaggedCache | None = None,
        memory: Memory | None = None,
        *,
        prefix_BT: Tensor | None = None,
        order_BT: Tensor | None = None,
        segments_BT: Tensor | None = None,
        begins_N: Tensor | None = None,
    ) -> Context | Reading:
        """What the blocks look at beside `x_BTD`; tells the cache of the documents."""
        if self.config.recurrent:
            return reading(self.config.recurrent, x_BTD, documents_BT, cache, memory, self.causal)
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
        sight_of_memory = memory.sight(documents_BT) if memory is not None else Sight()
        sights: dict[int | None, Seen | list[Sight]] = {}
        for window in self.windows if cache is None and order_BT is None and on_gpu(x_BTD) else ():
            kernels = self._kernels(x_BTD, window, documents_BT, prefix_BT, begins_N)
            if kernels is not None:
                sights[window] = kernels
        if sights.keys() < self.windows:
            sights = self._masks(x_BTD, documents_BT, cache, prefix_BT, order_BT) | sights
        states_BSD = None if memory is None else memory.states_BSD
        relative = self._relative(x_BTD, positions_BT, segments_BT)
        return Context(sights, turns, states_BSD, sight_of_memory, relative)

    def _kernels(
        self,
        x_BTD: Tensor,
        window: int | None,
        documents_BT: Tensor | None,
        prefix_BT: Tensor | None,
        begins_N: Tensor | None,
    ) -> Lengths | Blocks | None:
        """The sight of layers of a window on a GPU; None where that takes a mask, or nothing."""
        return kernel_sight(
            self.config,
            x_BTD,
            causal=self.causal,
            window=window,
            documents_BT=documents_BT,
            prefix_BT=prefix_BT,
            begins_N=begins_N,
            by_distance_HR=self._by_distance(x_BTD.shape[1], x_BTD.device),
            dropout=self.training and self.config.dropout > 0,
        )

    def _masks(
        self,
        x_BTD: Tensor,
        documents_BT: Tensor | None,
        cache: Cache | None,
        prefix_BT: Tensor | None,
        order_BT: Tensor | None,
    ) -> dict[int | None, Seen | list[Sight]]:
        """The sight of layers of each window, by masks where one is needed."""
        queries, keys = x_BTD.shape[1], x_BTD.shape[1]
        if cache is not None:
            keys += cache.length
            documents_BT = cache.extend(documents_BT, queries)
        elif not on_gpu(x_BTD) and single(documents_BT):  # to ask a GPU is to wait for it
            documents_BT = None
        assert prefix_BT is None or queries == keys, "a prefix is read in one piece"
        bias_HTS = self._bias(queries, keys, x_BTD.device)
        sights: dict[int | None, Seen | list[Sight]] = {}
        for window in self.windows:
            sight = self_sight(
                queries,
                keys,
                x_BTD.device,
                causal=self.causal,
                window=window,
                documents_BS=documents_BT,
                prefix_BS=prefix_BT,
                order_BS=order_BT,
            )
            sights[window] = sight if bias_HTS is None else sight.biased(bias_HTS)
        return sights

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
        if config.apart:
            return torch.cat((x_BTD, x_BTD), -1)
        return self.embedding_projection(x_BTD) if config.embedding_width else x_BTD

    def _relative(self, x_BTD: Tensor, at_BT: Tensor, segments: Tensor | None) -> Relative | None:
        if self.config.positions == "relative_sinusoidal":
            return measured(at_BT, segments, x_BTD)
        if self.config.positions != "disentangled":
            return None
        states_RD = self.relative_norm(self.relative_embedding.weight)
        return bucketed(states_RD, x_BTD.shape[1], self.config.relative_distance)

    def _by_distance(self, length: int, device: torch.device) -> Tensor | None:
        if self.config.positions == "alibi":
            return alibi_by_distance(self.config.heads, length, device)
        relative = self.config.positions == "relative"
        return self.relative_bias.by_distance(length) if relative else None

    def _bias(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        if self.config.positions == "alibi":
            return alibi(self.config.heads, queries, keys, device)
        return self.relative_bias(queries, keys) if self.config.positions == "relative" else None
