"""Reach: what a caller may have fetched."""

from __future__ import annotations

import asyncio
import re
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

from rem.errors import FetchError, FetchForbiddenError

if TYPE_CHECKING:
    from rem.settings import IngestSettings


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """Files, hosts and buckets that may be read for a caller."""

    is_everywhere: bool = False
    """For who sits at the machine: any file that the process can read, any host, any bucket."""
    paths: tuple[Path, ...] = ()
    private_hosts: frozenset[str] = frozenset()
    """Hosts, as `host` or `host:port`, that may lie in a private network. Public ones need not be named."""
    buckets: frozenset[str] = frozenset()

    @classmethod
    def from_settings(cls, settings: IngestSettings) -> Self:
        """What the API and agents may reach."""
        return cls(
            paths=tuple(settings.paths),
            private_hosts=frozenset(settings.private_hosts),
            buckets=frozenset(settings.s3_buckets),
        )


UNRESTRICTED = FetchPolicy(is_everywhere=True)


IPAddress: TypeAlias = IPv4Address | IPv6Address

_NOT_PUBLIC = [
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
        "2001::/23",
        "2001:db8::/32",
        "2002::/16",
        "3fff::/20",
    )
]
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)", re.IGNORECASE)


def is_public(address: IPAddress) -> bool:
    """Whether an address belongs to the public network. One IPv4 address inside an IPv6 one counts as itself."""
    if isinstance(address, IPv6Address):
        inner = _inner(address)
        if inner is not None:
            return is_public(inner)
        # A scope names a link of this machine, whatever the address is.
        if address.scope_id or address not in _GLOBAL_UNICAST:
            return False
    return not any(address in network for network in _NOT_PUBLIC if network.version == address.version)


def _inner(address: IPv6Address) -> IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None


async def resolve_host(host: str, port: int, *, only_public: bool) -> list[IPAddress]:
    """The addresses behind a name, in the order to try; a FetchForbiddenError if one is not public but must be."""
    if is_ambiguous_ip(host):
        raise FetchForbiddenError(f"{host} is an odd way to write an address: write it as four decimal numbers.")
    addresses = await _lookup(host, port)
    # All of them, not only some: else a name with two addresses could be used to find out what is private here.
    if only_public and not all(map(is_public, addresses)):
        raise FetchForbiddenError(
            f"{host} is not in the public network. Whoever runs REM can allow it with INGEST__PRIVATE_HOSTS."
        )
    return addresses


def is_ambiguous_ip(host: str) -> bool:
    """Whether a host is a number that systems take as an IPv4 address though it is not written as one."""
    last = host.rstrip(".").rpartition(".")[2]
    if ":" in host or not _NUMBER.fullmatch(last):
        return False
    try:
        ip_address(host)
    except ValueError:
        return True
    return False


async def _lookup(host: str, port: int) -> list[IPAddress]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FetchError(f"The host {host} is not known: {reason}. Check the address.") from error
    return list(dict.fromkeys(ip_address(place[4][0]) for place in found))
