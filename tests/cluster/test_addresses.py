"""Metadata services are asked nothing, whatever name, form or redirect leads to them."""

import asyncio
import socket
from typing import Any

import pytest

from cluster.addresses import check_address, check_host, open_socket, trace
from cluster.errors import BadInput

SERVING = [
    "169.254.169.254",
    "169.254.170.2",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "fd20:ce::254",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
]
OTHERS = ["127.0.0.1", "::1", "10.0.0.7", "192.168.1.1", "fd12::1", "100.64.0.1", "8.8.8.8", "host"]
HOSTS = [
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "[::ffff:a9fe:a9fe]",
    "metadata.example",
]


def resolved(*arguments: Any, **options: Any) -> list[Any]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 80))]


@pytest.mark.parametrize("address", SERVING)
def test_an_address_that_serves_metadata_is_refused(address: str) -> None:
    with pytest.raises(BadInput, match="cloud metadata"):
        check_address(address)
    with pytest.raises(PermissionError, match="cloud metadata"):
        open_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80)))
    with pytest.raises(BadInput, match="cloud metadata"):
        trace("connection.connect_tcp.started", {"host": address})


@pytest.mark.parametrize("address", OTHERS)
def test_private_networks_are_asked(address: str) -> None:
    check_address(address)
    check_host(f"ftp://{address}/x")


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_is_told_by_what_it_resolves_to(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if host.endswith("example"):
        monkeypatch.setattr("socket.getaddrinfo", resolved)
    with pytest.raises(BadInput, match="cloud metadata"):
        check_host(f"http://{host}/v1")


def test_a_connection_of_aiohttp_is_refused_after_resolution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import aiohttp

    async def ask() -> None:
        connector = aiohttp.TCPConnector(socket_factory=open_socket)
        async with aiohttp.ClientSession(connector=connector) as client:
            await client.get("http://metadata.example/")

    monkeypatch.setattr("socket.getaddrinfo", resolved)
    with pytest.raises(aiohttp.ClientConnectorError, match="cloud metadata"):
        asyncio.run(ask())
