"""Text from tokens as they come: no half characters, and nothing of a stop string."""

from collections.abc import Callable, Sequence


class TextStream:
    """What tokens spell, up to the first stop string; `decode` makes text of token ids.

    A stop string may begin and end within tokens. `ids` are the tokens that lie before it whole, so
    `text` can be some characters longer than what they spell.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stops: Sequence[str] = ()) -> None:
        self.decode, self.stops = decode, stops
        self.ids: list[int] = []
        self.text = ""
        self.stopped = False
        self._given = 0

    def push(self, token: int) -> str:
        """Add a token; the further text that is certain now."""
        if self.stopped:
            return ""
        self.ids.append(token)
        self.text = self.decode(self.ids)
        end = first_stop(self.text, self.stops)
        self.stopped = end is not None
        if end is None:
            return self._give(len(self.text) - pending(self.text, self.stops))
        self.text = self.text[:end]
        while self.ids and not self.text.startswith(self.decode(self.ids)):
            self.ids.pop()
        return self._give(end)

    def finish(self) -> str:
        """The text held back in case it began a stop string, which it did not."""
        return self._give(len(self.text))

    def _give(self, end: int) -> str:
        start, self._given = self._given, max(self._given, end)
        return self.text[start : self._given]


def first_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the first stop string begins; None without any."""
    return min((text.index(stop) for stop in stops if stop in text), default=None)


def before_stop(text: str, stops: Sequence[str]) -> str:
    """A text up to its first stop string."""
    return text[: first_stop(text, stops)]


def pending(text: str, stops: Sequence[str]) -> int:
    """Characters at the end that more tokens may change: a torn one, the beginning of a stop."""
    whole = text.rstrip("\ufffd")
    begun = (n for stop in stops for n in range(1, len(stop)) if whole.endswith(stop[:n]))
    return len(text) - len(whole) + max(begun, default=0)
