"""Addresses that nothing is fetched from: link-local ones, and those of clouds' metadata services,
which tell whoever asks from within the machine its credentials.

They are refused after resolution, on each connection: a harmless name may lead to one, and so may
a redirect.
"""

import errno
import ipaddress
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from cluster.errors import BadInput

NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        (
            "169.254.0.0/16",  # link-local: AWS, Azure, Google and most others
            "fe80::/10",
            "fd00:ec2::/32",  # AWS
            "fd20:ce::254/128",  # Google
            "100.100.100.200/32",  # Alibaba
            "168.63.129.16/32",  # Azure
            "192.0.0.192/32",  # Oracle
        ),
    )
)
NAT64 = ipaddress.ip_network("64:ff9b::/96")


def check_address(address: str) -> None:
    """Raise BadInput for an address that serves metadata; a name is none."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return
    if found.version == 6:
        inner = found.ipv4_mapped or found.sixtofour
        if found in NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        found = inner or found
    if any(found in network for network in NETWORKS):
        raise BadInput(
            f"{address} is link-local or serves cloud metadata: nothing is fetched from there; "
            "name another host"
        )


def check_host(url: str) -> None:
    """Raise BadInput for a URL whose host is, or resolves to, such an address. Asked before a
    request, as a proxy would resolve the name where we do not see it. Only names of http are
    resolved: in another scheme, `s3://bucket`, what stands there may be no host.
    """
    parts = urlsplit(url)
    resolving = 0 if parts.scheme in ("http", "https") else socket.AI_NUMERICHOST
    try:
        found = socket.getaddrinfo(parts.hostname or "", None, flags=resolving)
    except (OSError, UnicodeError):  # the connection will tell why
        return
    for *_, address in found:
        check_address(str(address[0]))


def trace(event: str, about: Mapping[str, Any]) -> None:
    """The extension `trace` of an httpx request: checks each connection before anything is sent."""
    if event == "connection.connect_tcp.started":
        check_address(about["host"])
    if event == "connection.connect_tcp.complete":
        check_address(about["return_value"].get_extra_info("server_addr")[0])


def open_socket(about: tuple[Any, ...]) -> socket.socket:
    """The `socket_factory` of an aiohttp connector. Raises PermissionError, which aiohttp makes a
    failed connection of, for such an address.
    """
    family, kind, protocol, _, address = about
    try:
        check_address(address[0])
    except BadInput as error:
        raise PermissionError(errno.EACCES, str(error)) from error
    return socket.socket(family, kind, protocol)
