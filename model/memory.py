"""What a decoder sees of an encoder: its states, and which of them belong to which text.

Letters: B rows, S encoder positions, T decoder positions, D width.
"""

from dataclasses import dataclass

from torch import Tensor

from model.masks import Sight, cross_sight


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
