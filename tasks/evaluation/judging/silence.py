"""Whether an endpoint that says nothing is slow, or hangs.

Both send nothing before a reply is whole. But one that works can say meanwhile which models it has.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

SILENCE_SECONDS = 10.0
Found = TypeVar("Found")


class Hangs(Exception):
    """Nothing came of an endpoint, however cheap the question."""


class Silence:
    """Watches requests to one endpoint: after `SILENCE_SECONDS` in which nothing came of any of
    them, it lets `ask` put a question that no model is needed for, which has as long. `ask`, and
    who sends requests, call `heard` for whatever comes.
    """

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._ask, self._last = ask, 0.0
        self._asking: asyncio.Task[None] | None = None

    def heard(self) -> None:
        """Note that something came."""
        self._last = time.monotonic()

    async def watched(self, sending: Coroutine[Any, Any, Found]) -> Found:
        """What comes of a request. Raises Hangs."""
        request, began = asyncio.ensure_future(sending), time.monotonic()
        try:
            while not request.done():
                left = max(self._last, began) + SILENCE_SECONDS - time.monotonic()
                if left > 0:
                    await asyncio.wait([request], timeout=left)
                elif not await self._answers():
                    raise Hangs(f"nothing came for {2 * SILENCE_SECONDS:g} s")
            return await request
        finally:
            request.cancel()

    async def _answers(self) -> bool:
        """Whether anything came while all who wait share one question."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())
        begun = time.monotonic()
        await asyncio.wait([self._asking], timeout=SILENCE_SECONDS)
        return self._last >= begun
