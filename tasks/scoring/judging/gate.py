"""How many requests may be under way: fewer when the endpoint protests, more while it does not."""

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


class Gate:
    """At most `most` at once, `first` to begin with; halved by `slow_down`, which also keeps
    everyone waiting for a time, and grown by one per round of successes (additive increase,
    multiplicative decrease). Who waits is let in first come, first served.
    """

    def __init__(self, most: int, first: int | None = None) -> None:
        self._most, self._limit, self._inside = most, float(first or most), 0
        self._opens = 0.0
        self._queue: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if self._inside >= max(1, int(self._limit)) or self._queue:
            place = asyncio.get_running_loop().create_future()
            self._queue.append(place)
            self._let_in()
            await place
        else:
            self._inside += 1
        while (pause := self._opens - time.monotonic()) > 0:
            await asyncio.sleep(pause)

    async def __aexit__(self, *_: object) -> None:
        self._inside -= 1
        self._let_in()

    def slow_down(self, seconds: float) -> None:
        """Halve the number and let nobody in for `seconds`."""
        self._limit = max(1.0, self._limit / 2)
        self._opens = max(self._opens, time.monotonic() + seconds)

    def speed_up(self) -> None:
        """Note a success."""
        self._limit = min(float(self._most), self._limit + 1 / self._limit)
        self._let_in()

    def _let_in(self) -> None:
        while self._queue and self._inside < max(1, int(self._limit)):
            place = self._queue.popleft()
            if not place.done():
                self._inside += 1
                place.set_result(None)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds a `Retry-After` header asks for, given as a number or a date; 0 without one."""
    value = headers.get("retry-after", "").strip()
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0
