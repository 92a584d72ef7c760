"""How many requests may be under way: fewer when the endpoint protests, more while it does not."""

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


class RateLimit:
    """At most `most` at once, `first` to begin with. Successes double the number in a round until
    the first protest, then add one a round; a protest halves it and keeps everyone waiting for a
    time (slow start, additive increase, multiplicative decrease: Jacobson 1988). Who waits is let
    in first come, first served.
    """

    def __init__(self, most: int, first: int | None = None) -> None:
        self._most, self._limit, self._inside = most, float(first or most), 0
        self._opens = 0.0
        self._slowed: float | None = None
        self._queue: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        # Behind those who wait, even where there is room.
        if self._inside >= self.limit or self._queue:
            place = asyncio.get_running_loop().create_future()
            self._queue.append(place)
            self._let_in()
            await place
        else:
            self._inside += 1
        # Again and again: a protest may have moved the time while this one slept.
        while (pause := self._opens - time.monotonic()) > 0:
            await asyncio.sleep(pause)

    async def __aexit__(self, *_: object) -> None:
        self._inside -= 1
        self._let_in()

    def slow_down(self, seconds: float, sent: float) -> None:
        """Let nobody in for `seconds`, and halve the number, once for all requests that were `sent`
        (on the monotonic clock) before it was last halved: they are one protest.
        """
        now = time.monotonic()
        self._opens = max(self._opens, now + seconds)
        if self._slowed is None or sent >= self._slowed:
            self._limit, self._slowed = max(1.0, self._limit / 2), now

    def speed_up(self) -> None:
        """Note a success."""
        step = 1.0 if self._slowed is None else 1 / self._limit
        self._limit = min(float(self._most), self._limit + step)
        self._let_in()

    @property
    def limit(self) -> int:
        """How many may be inside now."""
        return max(1, int(self._limit))

    def _let_in(self) -> None:
        while self._queue and self._inside < self.limit:
            place = self._queue.popleft()
            # Done: cancelled while it waited; its turn is the next one's.
            if not place.done():
                self._inside += 1
                place.set_result(None)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds a `Retry-After` header asks for, given as a number or a date; 0 without one."""
    value = headers.get("retry-after", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0
