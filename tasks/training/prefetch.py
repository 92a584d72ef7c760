"""Batches fetched in a thread while the step before is trained on."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Prefetcher:
    """Fetches the next step's batch in a thread while the current one is trained on."""

    def __init__(self, fetch: Callable[[int], Any], first: int, last: int) -> None:
        self._fetch, self._last = fetch, last
        # One thread: fetches never overlap, so what they read from needs no lock.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._next: Future[Any] | None = None
        if first <= last:
            self._next = self._pool.submit(fetch, first)

    def take(self, step: int) -> Any:
        """The batch of a step; steps must be taken in order."""
        assert self._next is not None, f"step {step} is after the last"
        # An error of the fetch comes up here, in the step that needs the batch.
        batch = self._next.result()
        self._next = self._pool.submit(self._fetch, step + 1) if step < self._last else None
        return batch

    def __enter__(self) -> "Prefetcher":
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)
