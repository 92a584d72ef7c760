"""Which row is in which slot of the caches, and what the others have read and may be read again.

A conversation comes back with all that was said and one turn more; exams begin with the same
examples. Such a request goes on from what was read before (Zheng et al. 2024, SGLang, section 3,
whose tree this is a list of: it is as long as there are slots).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from model.config import ModelConfig
from model.ragged import Slots

LEAST = 16
"""Shared tokens below which reading them anew is cheaper than looking after them."""
FEWEST = 8
"""Slots that there are at least, once there are any."""
LEAST_ROOM = 16
"""Positions of a slot at least, where there may be so many."""


class Prefixes:
    """The slots of at most `rows` rows and `tokens` positions in all."""

    def __init__(self, config: ModelConfig, rows: int, tokens: int) -> None:
        self.slots = Slots(config)
        self.rows, self.tokens, self.context = rows, tokens, config.context
        self.kept: dict[int, Sequence[int]] = {}
        """What slots without a row have read, the last used last."""

    def keep(self, slot: int, tokens: Sequence[int]) -> None:
        """Keep what a row that ended has read."""
        if len(tokens) >= LEAST:
            self.kept[slot] = tokens
        else:
            self.slots.lengths[slot] = 0

    def take(
        self,
        prompt: Sequence[int],
        need: int,
        others: Mapping[int, tuple[Sequence[int], int]],
        *,
        most: int,
    ) -> int | None:
        """A slot with room for `need` positions, that has read the longest beginning of a prompt
        that any has, up to `most` of its tokens; None while there is no room. `others` are the
        slots in use, each with its row's tokens and the positions it needs.
        """
        if not self._has_room(need, others):
            return None
        read = {slot: self.slots.lengths[slot] for slot in (*self.kept, *others)}
        known = {**self.kept, **{slot: tokens for slot, (tokens, _) in others.items()}}
        common = {slot: min(shared(known[slot], prompt), read[slot], most) for slot in known}
        best = max(common, key=common.__getitem__, default=-1)
        length = common.get(best, 0) if common.get(best, 0) >= LEAST else 0
        if length and best in self.kept and 2 * length >= read[best]:
            slot = best  # what else it has read is less, and is lost
        else:
            slot = self._empty(others, best if length else -1)
        self.kept.pop(slot, None)
        self.slots.copy(best, slot, length)
        if best in self.kept:
            self.kept[best] = self.kept.pop(best)
        return slot

    def _has_room(self, need: int, others: Mapping[int, tuple[Sequence[int], int]]) -> bool:
        """Whether there is a slot for another row; slots are made, or laid out anew, for it."""
        slots, used = self.slots, len(others)
        count, room = len(slots.lengths), slots.room
        unread = used + len(self.kept) < count
        if need <= room and used < count and (unread or count == self._most(room)):
            return True
        longest = self._rounded(max([need, *(need for _, need in others.values())]))
        room = max(room, longest) if used < self._most(max(room, longest)) else longest
        most, taken = self._most(room), max(others, default=-1) + 1
        if used >= most or taken > most:
            return False
        slots.lay_out(min(most, max(FEWEST, 2 * count)), room)
        lengths = slots.lengths
        self.kept = {s: kept for s, kept in self.kept.items() if s < len(lengths) and lengths[s]}
        return True

    def _most(self, room: int) -> int:
        """How many slots there may be if each has so many positions."""
        return min(self.rows, self.tokens // room)

    def _rounded(self, positions: int) -> int:
        """More positions than a row needs, lest each longer one has the slots laid out anew."""
        doubled = max(LEAST_ROOM, 1 << (positions - 1).bit_length())
        return min(doubled, self.tokens, self.context)

    def _empty(self, others: Mapping[int, object], best: int) -> int:
        """A slot without a row: the first that has read nothing, or the one longest not used, but
        not the `best` where there is another.
        """
        count = len(self.slots.lengths)
        nothing = (s for s in range(count) if s not in self.kept and s not in others)
        return next(nothing, next((slot for slot in self.kept if slot != best), best))

    def forget(self) -> None:
        """Keep nothing."""
        self.kept.clear()
        self.slots.lengths = [0] * len(self.slots.lengths)


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike; 0 where they are too few to matter."""
    if one[:LEAST] != other[:LEAST]:
        return 0
    length = min(len(one), len(other))
    differ = np.flatnonzero(np.asarray(one[:length]) != np.asarray(other[:length]))
    return int(differ[0]) if len(differ) else length
