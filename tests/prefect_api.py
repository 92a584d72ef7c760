"""Prefect's API as the tests ask it: over the wire, with the password of its server."""

import os

import httpx

from cluster.keys import authorization


def prefect_api(server: str | None = None) -> httpx.Client:
    """A client of the server at this address, by default that of the test run."""
    url = server or os.environ["PREFECT_API_URL"].removesuffix("/api")
    headers = {"Authorization": authorization(url)}
    return httpx.Client(base_url=f"{url}/api", headers=headers, timeout=30)
