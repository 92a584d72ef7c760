"""How a tokenizer lays out one text or two for a network to read: what stands around them.

    frame = read_frame(encoder, texts=2, family="encoder")
    row = frame.lay([[5, 6], [7]])     # <|class|> 5 6 <|endoftext|> 7 <|endoftext|>

A published tokenizer says it by its post-processor (`[CLS] A [SEP] B [SEP]`); one trained here as
in pretraining: a text of an encoder stands behind its class token, and separators, or ends of
documents where there are none, stand behind each of two texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.tokens.encoder import Encoder


@dataclass(frozen=True)
class Row:
    """Token ids as the network reads them, the segment of each, and where each text starts."""

    ids: list[int]
    segments: list[int]
    starts: list[int]


@dataclass(frozen=True)
class Frame:
    """Ids in order, None where the next text goes, and the segment of each."""

    ids: tuple[int | None, ...]
    segments: tuple[int, ...]

    @property
    def marks(self) -> int:
        """How many tokens stand around the texts."""
        return sum(id_ is not None for id_ in self.ids)

    def lay(self, texts: Sequence[Sequence[int]]) -> Row:
        """The texts' ids in their places."""
        row, waiting = Row([], [], []), iter(texts)
        for id_, segment in zip(self.ids, self.segments, strict=True):
            piece = next(waiting) if id_ is None else [id_]
            if id_ is None:
                row.starts.append(len(row.ids))
            row.ids.extend(piece)
            row.segments.extend([segment] * len(piece))
        return row

    def cut(self, texts: Sequence[Sequence[int]], length: int) -> list[Sequence[int]]:
        """The texts without what is over `length` tokens in all: the longest loses its end."""
        kept = list(texts)
        over = sum(map(len, kept)) + self.marks - length
        while over > 0 and any(kept):
            longest = max(range(len(kept)), key=lambda n: len(kept[n]))
            others = [len(text) for n, text in enumerate(kept) if n != longest]
            size = len(kept[longest])
            less = min(over, max(1, size - max(others, default=0)))
            kept[longest] = kept[longest][: max(0, size - less)]
            over = sum(map(len, kept)) + self.marks - length
        return kept


def read_frame(encoder: Encoder, texts: int, family: str) -> Frame:
    """How one text, or two, are laid out for a network of this family.

    Raises BadInput for a tokenizer that lacks an encoder's class token.
    """
    found = encoder.template(texts)
    if any(id_ is not None for id_, _ in found):
        return Frame(*map(tuple, zip(*found, strict=True)))
    begin = [(encoder.special("class"), 0)] if family == "encoder" else []
    if texts == 1:
        return Frame(*map(tuple, zip(*begin, (None, 0), strict=True)))
    mark = encoder.separator
    laid = [*begin, (None, 0), (mark, 0), (None, 1), (mark, 1)]
    return Frame(*map(tuple, zip(*laid, strict=True)))
