"""Connections to an endpoint, one to a client.

A client's pool looks at all its connections whenever any of them is taken or given back: sixty-four
in one pool cost ten times the CPU time of sixty-four pools of one.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tasks.scoring.judging.endpoint import Endpoint, is_loopback


class Lines:
    """As many clients as are in use at once, kept for the next; closed at the end of the block."""

    def __init__(self, endpoint: Endpoint, key: str | None) -> None:
        proxies, secure = not is_loopback(endpoint.url), endpoint.url.startswith("https:")
        self._settings: dict[str, Any] = {
            "headers": {"Authorization": f"Bearer {key}"} if key else {},
            "follow_redirects": False,
            "trust_env": proxies,
            "timeout": endpoint.deadline,
            # Read once, not by every client: the certificates take a tenth of a second.
            "verify": httpx.create_ssl_context(trust_env=proxies) if secure else False,
        }
        self._all: list[httpx.AsyncClient] = []
        self._idle: list[httpx.AsyncClient] = []

    async def __aenter__(self) -> "Lines":
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(client.aclose() for client in self._all))

    @asynccontextmanager
    async def one(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client that nobody else uses meanwhile."""
        if not self._idle:
            self._idle.append(httpx.AsyncClient(**self._settings))
            self._all.append(self._idle[-1])
        client = self._idle.pop()
        try:
            yield client
        finally:
            self._idle.append(client)
