"""Recurrent layers: what stands in a stack in place of attention and feed-forward.

A decoder's layer reads from left to right, an encoder's in both directions, half of the width each
(Schuster and Paliwal 1997). A decoder on an encoder begins with what that made of its text, and may
look at its states at each step: within the recurrence, as Bahdanau et al. 2015 do, or on top of it,
as Luong et al. 2015 do.

Whole rows go through PyTorch's kernels, document by document (`model.runs`); what is written token
by token, and a recurrence that attends, goes step by step (`model.cells`).

Letters: B rows, T positions, S states of a cell or encoder positions, D width, H numbers of a
direction's state.
"""

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.alignment import Alignment
from model.cache import Cache, LayerCache
from model.cells import KERNELS, fed_back, step, stepwise, whole
from model.config import ModelConfig, RecurrentConfig
from model.masks import single
from model.memory import Memory
from model.ragged import RaggedCache, RaggedLayer
from model.runs import Runs, lay_out

Past = LayerCache | RaggedLayer


@dataclass(frozen=True)
class Reading:
    """What recurrent layers look at beside their input.

    Where documents begin (`begins_BT`; None: nowhere but at the first step), their runs in each
    direction; an encoder's states, its last ones in both directions, and which are seen by each
    step (`[B, T or 1, S]`).
    """

    begins_BT: Tensor | None = None
    runs: tuple[Runs, ...] = ()
    memory_BSD: Tensor | None = None
    ends_BD: Tensor | None = None
    seen_BTS: Tensor | None = None


class RecurrentLayer(nn.Module):
    """One layer, in one direction or two; a decoder's last one with Luong's attention."""

    def __init__(self, config: ModelConfig, layer: int, cross: bool) -> None:
        super().__init__()
        assert config.recurrent is not None
        self.config, self.recurrent, self.layer = config, config.recurrent, layer
        directions = 1 if cross or config.family == "decoder" else 2
        read = config.width // 2 if self.recurrent.apart else config.width
        kernel = KERNELS[self.recurrent.cell]
        size = config.width // directions
        self.kernels = nn.ModuleList(kernel(self.inputs(read), size) for _ in range(directions))
        if cross:
            self.bridge = nn.Linear(config.width, self.recurrent.states * config.width)
            self.add_attention(layer == config.depth - 1)

    def add_attention(self, last: bool) -> None:
        """Make what a decoder's layer needs to look at an encoder's states."""
        if last and self.recurrent.attention in ("dot", "general"):
            self.alignment = Alignment(self.config)
            self.join = nn.Linear(2 * self.config.width, self.config.width)

    def forward(self, x_BTD: Tensor, reading: Reading, past: Past | None = None) -> Tensor:
        """The next layer's input, `[B, T, D]`."""
        y_BTD = self._read(x_BTD, reading, past)
        if self.recurrent.apart and self.layer:
            y_BTD = x_BTD + y_BTD  # as ELMo's second layer (Peters et al. 2018, section 3.4)
        return F.dropout(y_BTD, self.config.dropout, self.training)

    def _read(self, x_BTD: Tensor, reading: Reading, past: Past | None) -> Tensor:
        begin_BSD = self.begin(x_BTD, reading)
        if past is not None:
            states_BSTD = self._go_on(x_BTD, reading.begins_BT, past, begin_BSD)
            y_BTD = states_BSTD[:, 0]
        else:
            y_BTD = self._whole(x_BTD, reading, begin_BSD)
        if not hasattr(self, "alignment"):
            return y_BTD
        seen_BTS = reading.seen_BTS
        context_BTD, _ = self.alignment(y_BTD, *self.memory(reading, past), seen_BTS)
        return torch.tanh(self.join(torch.cat((context_BTD, y_BTD), -1)))

    @property
    def ways(self) -> list[nn.RNNBase]:
        """The kernels, one a direction."""
        return [kernel for kernel in self.kernels if isinstance(kernel, nn.RNNBase)]

    def begin(self, x_BTD: Tensor, reading: Reading) -> Tensor:
        """The state before a row's first step, `[B, S, H]`: nothing, or of what an encoder read."""
        states, size = self.recurrent.states, self.ways[0].hidden_size
        if reading.ends_BD is None:
            return x_BTD.new_zeros(len(x_BTD), states, size)
        bridged_BSD = self.bridge(reading.ends_BD).unflatten(-1, (states, size))
        return torch.cat((torch.tanh(bridged_BSD[:, :1]), bridged_BSD[:, 1:]), 1)

    def memory(self, reading: Reading, past: Past | None) -> tuple[Tensor, Tensor]:
        """Keys and states of the encoder, made once for all that is written of it."""
        assert reading.memory_BSD is not None and not isinstance(past, RaggedLayer)
        if past is None:
            return self.alignment.prepare(reading.memory_BSD)
        if past.memory is None:
            past.memory = self.alignment.prepare(reading.memory_BSD)
        return past.memory

    def inputs(self, read: int) -> int:
        """Numbers that a kernel reads."""
        return read

    def _whole(self, x_BTD: Tensor, reading: Reading, begin_BSD: Tensor) -> Tensor:
        parts = x_BTD.chunk(2, -1) if self.recurrent.apart else [x_BTD] * len(self.ways)
        truncated = self.training and self.recurrent.bptt is not None
        made = [
            runs.read(partial(whole, kernel), part, begin_BSD, truncated)
            for runs, kernel, part in zip(reading.runs, self.ways, parts, strict=True)
        ]
        return torch.cat(made, -1)

    def _go_on(
        self, x_BTD: Tensor, begins_BT: Tensor | None, past: Past, begin_BSD: Tensor
    ) -> Tensor:
        """The states at each new token, `[B, S, T, D]`, which the past takes."""
        (kernel,), cell = self.ways, self.recurrent.cell
        if isinstance(past, LayerCache):
            state_BSD = past.last() if past.length else begin_BSD
            states = stepwise(cell, kernel, x_BTD, state_BSD, begins_BT, begin_BSD)
            past.append(states)
            return states
        made = []
        for group in past.cache.groups:
            x_BTD_of = x_BTD[0, group.begin : group.end].unflatten(0, (-1, group.new))
            states = stepwise(cell, kernel, x_BTD_of, past.before(group, begin_BSD))
            made.append(states.transpose(1, 2).flatten(0, 1))
        states_1NSD = torch.cat(made)[None]
        past.append(states_1NSD)
        return states_1NSD.transpose(1, 2)


class AttentiveLayer(RecurrentLayer):
    """Bahdanau's decoder: the state looks at the encoder's, and what it sees goes into the next.

    What the layer gives is tanh of a matrix on state, context and input: the paper's deep output.
    """

    def inputs(self, read: int) -> int:
        """Those of a word and of the context."""
        return 2 * read

    def add_attention(self, last: bool) -> None:
        """Make the alignment, and what joins state, context and input."""
        self.alignment = Alignment(self.config)
        self.join = nn.Linear(3 * self.config.width, self.config.width)

    def _read(self, x_BTD: Tensor, reading: Reading, past: Past | None) -> Tensor:
        """Go step by step, as no step's context is known before the state of the one before."""
        assert past is None or isinstance(past, LayerCache)
        state_BSD = begin_BSD = self.begin(x_BTD, reading)
        if past is not None and past.length:
            state_BSD = past.last()
        memory, begins_BT = self.memory(reading, past), reading.begins_BT
        states, contexts = [], []
        (kernel,), cell, width = self.ways, self.recurrent.cell, self.config.width
        weight, _, bias, _ = kernel.all_weights[0]
        read_BTG = F.linear(x_BTD, weight[:, :width], bias)
        for t in range(x_BTD.shape[1]):
            if begins_BT is not None:
                state_BSD = torch.where(begins_BT[:, t, None, None], begin_BSD, state_BSD)
            seen_B1S = _of_step(reading.seen_BTS, t)
            context_B1D, _ = self.alignment(state_BSD[:, :1], *memory, seen_B1S)
            given_BG = read_BTG[:, t] + F.linear(context_B1D[:, 0], weight[:, width:])
            state_BSD = step(cell, given_BG, fed_back(kernel, state_BSD), state_BSD)
            states.append(state_BSD)
            contexts.append(context_B1D)
        states_BSTD = torch.stack(states, 2)
        if past is not None:
            past.append(states_BSTD)
        joined = torch.cat((states_BSTD[:, 0], torch.cat(contexts, 1), x_BTD), -1)
        return torch.tanh(self.join(joined))


def _of_step(seen_BTS: Tensor | None, t: int) -> Tensor | None:
    """Which of an encoder's states one step sees, `[B, 1, S]`; None for all."""
    if seen_BTS is None:
        return None
    return seen_BTS if seen_BTS.shape[1] == 1 else seen_BTS[:, t, None]


def recurrent_layer(config: ModelConfig, layer: int, cross: bool) -> RecurrentLayer:
    """The layer of this number, counted from 0; the first of a decoder may look at an encoder."""
    assert config.recurrent is not None
    attentive = cross and layer == 0 and config.recurrent.attention == "additive"
    return (AttentiveLayer if attentive else RecurrentLayer)(config, layer, cross)


def reading(
    recurrent: RecurrentConfig,
    x_BTD: Tensor,
    documents_BT: Tensor | None,
    cache: Cache | RaggedCache | None,
    memory: Memory | None,
    causal: bool,
) -> Reading:
    """What the layers of a stack look at beside `x_BTD`; tells the cache of the documents."""
    if isinstance(cache, RaggedCache):
        return Reading()  # a slot is one document
    seen_BTS = ends_BD = states_BSD = None
    if memory is not None:
        states_BSD, ends_BD = memory.states_BSD, _ends(memory)
        mask = memory.sight(documents_BT).mask
        seen_BTS = None if mask is None else mask[:, 0]
    if cache is not None:
        documents_BT = cache.extend(documents_BT, x_BTD.shape[1])
    begins_BT = _begins(documents_BT, x_BTD.shape[1])
    runs: tuple[Runs, ...] = ()
    if cache is None:
        given_BT = x_BTD.new_zeros(x_BTD.shape[:2], dtype=torch.bool)
        given_BT = given_BT if begins_BT is None else begins_BT
        ways = (False,) if causal else (False, True)
        runs = tuple(lay_out(given_BT, recurrent.bptt, backwards) for backwards in ways)
    return Reading(begins_BT, runs, states_BSD, ends_BD, seen_BTS)


def _begins(documents_BS: Tensor | None, length: int) -> Tensor | None:
    """Whether another document begins at each of the last so many positions, `[B, T]`; None where
    each row is one.
    """
    if documents_BS is None or single(documents_BS):
        return None
    changes_BS = F.pad(documents_BS[:, 1:] != documents_BS[:, :-1], (1, 0))
    return changes_BS[:, -length:]


def _ends(memory: Memory) -> Tensor:
    """The last state of each direction of an encoder, `[B, D]`: that of the last token in the first
    half, and of the first token in the second.
    """
    forward, backward = memory.states_BSD.chunk(2, -1)
    if memory.documents_BS is None:
        return torch.cat((forward[:, -1], backward[:, 0]), -1)
    real_BS = (memory.documents_BS > 0).long()
    last_B = real_BS.shape[1] - 1 - real_BS.flip(1).argmax(1)
    rows_B = torch.arange(len(real_BS), device=real_BS.device)
    return torch.cat((forward[rows_B, last_B], backward[rows_B, real_BS.argmax(1)]), -1)
