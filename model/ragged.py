"""Rows of different lengths through a network at once, their tokens end to end, without padding.

    slots = Slots(config)
    slots.lay_out(count=2, room=512)
    ragged = slots.batch([(0, 300), (1, 1)], device)   # a prompt's tokens, another row's next one
    hidden_1ND = network(tokens_1N, None, ragged.positions_1N, ragged)
    ragged.done()

All that a network does to one token alone, which is all of its matrices, it does to the N tokens of
all rows together: a weight is read once a step. Attention alone goes group by group, over keys and
values as far as they were read; a group is rows side by side that are about equally long.

Letters: N tokens of all rows, B rows of a group, T new positions, S all positions so far, K
key-value heads, E head dimension.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from model.cache import LayerCache
from model.config import ModelConfig
from model.masks import Sight, self_sight
from model.sights import Seen

Bias = Callable[[int, int, torch.device], Tensor | None]


SPREAD = 64
"""Positions by which rows of a group may differ. To read so many more of a row, which a mask hides,
takes a CPU about as long as another call.
"""


class Group(NamedTuple):
    """Rows in neighbouring slots that read equally many new tokens and have read equally many
    before; those that read one new token each, to within `SPREAD`.
    """

    slot: int
    seen: tuple[int, ...]
    """Positions read before, of each row."""
    new: int
    begin: int
    """The first of its tokens among the N."""

    @property
    def end(self) -> int:
        """Behind the last of its tokens."""
        return self.begin + len(self.seen) * self.new

    @property
    def keys(self) -> int:
        """Positions of the longest row, with the new ones."""
        return max(self.seen) + self.new

    def takes(self, slot: int, seen: int, new: int) -> bool:
        """Whether another row belongs to it."""
        low, high = min(*self.seen, seen), max(*self.seen, seen)
        alike = high == low or (new == 1 and high - low <= SPREAD)
        return slot == self.slot + len(self.seen) and new == self.new and alike

    def sight(self, window: int | None, bias: Bias, device: torch.device) -> Sight:
        """What the new tokens see of what was read, in layers of this window."""
        if min(self.seen) == max(self.seen):
            sight = self_sight(self.new, self.keys, device, window=window)
            bias_HTS = bias(self.new, self.keys, device)
            return sight if bias_HTS is None else sight.biased(bias_HTS)
        here_B1 = torch.tensor(self.seen, device=device)[:, None]
        distance_BS = here_B1 - torch.arange(self.keys, device=device)
        seen_BS = distance_BS >= 0
        if window is not None:
            seen_BS &= distance_BS < window
        mask_B11S = seen_BS[:, None, None]
        if bias(1, 1, device) is None:
            return Sight(mask_B11S)
        rows = [F.pad(_given(bias(1, n + 1, device)), (0, self.keys - n - 1)) for n in self.seen]
        return Sight(torch.stack(rows).where(mask_B11S, -torch.inf))


def _given(bias_HTS: Tensor | None) -> Tensor:
    assert bias_HTS is not None, "positions have a bias at any length or at none"
    return bias_HTS


class Slots:
    """The keys and values, or latents, of many rows: a place for each, in one buffer a layer."""

    def __init__(self, config: ModelConfig) -> None:
        self.buffers: list[list[Tensor]] = [[] for _ in range(config.depth)]
        """Of each layer, `[slots, K, room, *]`; made when first written to."""
        self.lengths: list[int] = []
        """Positions that were read in each slot."""
        self.room = 0

    def lay_out(self, count: int, room: int) -> None:
        """Have `count` slots of `room` positions. Slots stay what they are; those beyond, and what
        is longer than the room, are forgotten.
        """
        self.room, lengths = room, self.lengths[:count]
        self.lengths = [n if n <= room else 0 for n in lengths] + [0] * (count - len(lengths))
        for buffers in self.buffers:
            for place, old in enumerate(buffers):
                new = old.new_zeros(count, old.shape[1], room, old.shape[3])
                for slot, length in enumerate(self.lengths):
                    if length:
                        new[slot, :, :length] = old[slot, :, :length]
                buffers[place] = new

    def copy(self, source: int, target: int, length: int) -> None:
        """Let a slot have read what the first `length` positions of another have."""
        if source != target and length:
            for buffers in self.buffers:
                for buffer in buffers:
                    buffer[target, :, :length] = buffer[source, :, :length]
        self.lengths[target] = length

    def batch(self, rows: Sequence[tuple[int, int]], device: torch.device) -> "RaggedCache":
        """What rows need that read so many tokens each: slots in rising order, and counts."""
        return RaggedCache(self, rows, device)


class RaggedCache:
    """Some slots, each of which takes its number of the next tokens."""

    def __init__(self, slots: Slots, rows: Sequence[tuple[int, int]], device: torch.device) -> None:
        self.slots, self.rows = slots, rows
        self.groups = _groups(rows, slots.lengths)
        seen = slots.lengths
        places = [seen[slot] + i for slot, count in rows for i in range(count)]
        self.slot_N = torch.tensor([s for s, count in rows for _ in range(count)], device=device)
        self.place_N = torch.tensor(places, device=device)
        self.layers = [RaggedLayer(self, buffers) for buffers in slots.buffers]

    @property
    def positions_1N(self) -> Tensor:
        """Where each token stands in its row."""
        return self.place_N[None]

    @property
    def furthest_1N(self) -> Tensor:
        """Where the last new token of each token's row stands."""
        seen = self.slots.lengths
        lasts = [seen[slot] + count - 1 for slot, count in self.rows for _ in range(count)]
        return torch.tensor([lasts], device=self.place_N.device)

    def done(self) -> None:
        """Note that the tokens were read."""
        for slot, count in self.rows:
            self.slots.lengths[slot] += count

    def sights(self, window: int | None, bias: Bias, device: torch.device) -> list[Sight]:
        """What the new tokens of each group see of it, in layers of this window."""
        return [group.sight(window, bias, device) for group in self.groups]


class RaggedLayer:
    """One layer of some slots."""

    def __init__(self, cache: RaggedCache, buffers: list[Tensor]) -> None:
        self.cache, self.buffers = cache, buffers

    def append(self, *new_1NKE: Tensor) -> None:
        """Add the new positions of all rows."""
        if not self.buffers:
            count, room = len(self.cache.slots.lengths), self.cache.slots.room
            for x in new_1NKE:
                # Zeros, as a mask hides no NaN.
                self.buffers.append(x.new_zeros(count, x.shape[2], room, x.shape[3]))
        for buffer, new in zip(self.buffers, new_1NKE, strict=True):
            buffer[self.cache.slot_N, :, self.cache.place_N] = new[0]

    def before(self, group: Group, begin_BSE: Tensor) -> Tensor:
        """What rows of a group added last, `[B, K, E]`, of recurrent layers their states; of rows
        without a token `begin_BSE`.
        """
        fresh_BSE = begin_BSE[:1].expand(len(group.seen), -1, -1)
        if not self.buffers:
            return fresh_BSE
        seen_B = torch.tensor(group.seen, device=fresh_BSE.device)
        slot_B = torch.arange(group.slot, group.slot + len(group.seen), device=seen_B.device)
        state_BSE = self.buffers[0][slot_B, :, (seen_B - 1).clamp(min=0)]
        return torch.where((seen_B > 0)[:, None, None], state_BSE, fresh_BSE)

    def seen(self, group: Group) -> list[Tensor]:
        """All positions so far of a group's longest row, `[B, K, S, E]`."""
        rows = slice(group.slot, group.slot + len(group.seen))
        return [buffer[rows, :, : group.keys] for buffer in self.buffers]


def _groups(rows: Sequence[tuple[int, int]], lengths: Sequence[int]) -> list[Group]:
    groups: list[Group] = []
    for slot, new in rows:
        last = groups[-1] if groups else None
        if last is not None and last.takes(slot, lengths[slot], new):
            groups[-1] = last._replace(seen=(*last.seen, lengths[slot]))
        else:
            groups.append(Group(slot, (lengths[slot],), new, last.end if last else 0))
    return groups


def attend_past(
    attend: Callable[..., Tensor],
    past: LayerCache | RaggedLayer | None,
    sight: Seen | list[Sight],
    q_BTHE: Tensor,
    *new_BTKE: Tensor,
) -> Tensor:
    """What `attend(q_BTHE, sight, *seen_BKSE)`, `[B, T, H, *]`, makes of what was read before and
    these new positions; of a ragged batch, group by group.
    """
    if not isinstance(past, RaggedLayer):
        assert not isinstance(sight, list)
        new_BKTE = [x.transpose(1, 2) for x in new_BTKE]
        return attend(q_BTHE, sight, *(new_BKTE if past is None else past.append(*new_BKTE)))
    assert isinstance(sight, list)
    past.append(*new_BTKE)
    mixed = []
    for group, one in zip(past.cache.groups, sight, strict=True):
        q_BTHE_of = q_BTHE[0, group.begin : group.end].unflatten(0, (-1, group.new))
        mixed.append(attend(q_BTHE_of, one, *past.seen(group)).flatten(0, 1))
    return (mixed[0] if len(mixed) == 1 else torch.cat(mixed))[None]
