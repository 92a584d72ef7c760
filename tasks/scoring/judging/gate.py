"""How many requests may be under way: fewer when the endpoint protests, more while it does not."""

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


class Gate:
    """At most `most` at once; halved by `slow_down`, which also keeps everyone waiting for a time,
    and grown back by one per round of successes (additive increase, multiplicative decrease).
    """

    def __init__(self, most: int) -> None:
        self._most, self._limit, self._inside = most, float(most), 0
        self._opens = 0.0
        self._left = asyncio.Condition()

    async def __aenter__(self) -> None:
        while True:
            async with self._left:
                await self._left.wait_for(lambda: self._inside < max(1, int(self._limit)))
                pause = self._opens - time.monotonic()
                if pause <= 0:
                    self._inside += 1
                    return
            await asyncio.sleep(pause)

    async def __aexit__(self, *_: object) -> None:
        async with self._left:
            self._inside -= 1
            self._left.notify_all()

    def slow_down(self, seconds: float) -> None:
        """Halve the number and let nobody in for `seconds`."""
        self._limit = max(1.0, self._limit / 2)
        self._opens = max(self._opens, time.monotonic() + seconds)

    def speed_up(self) -> None:
        """Note a success."""
        self._limit = min(float(self._most), self._limit + 1 / self._limit)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds a `Retry-After` header asks for, given as a number or a date; 0 without one."""
    value = headers.get("retry-after", "").strip()
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0
