"""FetchPolicy: the files, hosts and buckets that may be fetched for a caller, and which addresses are public."""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

from rem.errors import FetchError, FetchForbiddenError

if TYPE_CHECKING:
    from rem.settings import IngestSettings

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


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """Files, hosts and buckets that may be fetched for a caller. Public hosts are always allowed."""

    is_unrestricted: bool = False
    """For the local user: every file that the process can read, every host, every bucket."""
    paths: tuple[Path, ...] = ()
    private_hosts: frozenset[str] = frozenset()
    """Hosts in private networks, as `host` or `host:port`."""
    buckets: frozenset[str] = frozenset()

    @classmethod
    def from_settings(cls, settings: IngestSettings) -> Self:
        """Return the policy for callers of the API and for agents."""
        return cls(
            paths=tuple(settings.paths),
            private_hosts=frozenset(settings.private_hosts),
            buckets=frozenset(settings.s3_buckets),
        )

    @property
    def fingerprint(self) -> str:
        """Identify the policy, to notice that two servers have different ones."""
        parts = [sorted(map(str, self.paths)), sorted(self.private_hosts), sorted(self.buckets), self.is_unrestricted]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


UNRESTRICTED = FetchPolicy(is_unrestricted=True)


def is_public(address: IPAddress) -> bool:
    """Return whether an address is in the public network. An IPv4 address embedded in IPv6 is checked as IPv4."""
    if isinstance(address, IPv6Address):
        embedded = _embedded_ipv4(address)
        if embedded is not None:
            return is_public(embedded)
        # A scope id names a network interface of this machine.
        if address.scope_id or address not in _GLOBAL_UNICAST:
            return False
    return not any(address in network for network in _NOT_PUBLIC if network.version == address.version)


async def resolve_host(host: str, port: int, *, only_public: bool) -> list[IPAddress]:
    """Return the addresses of a host in the order to try them.

    Raise a FetchForbiddenError if `only_public` and one of them is not public.
    """
    check_literal_address(host, only_public=only_public)
    addresses = await _lookup(host, port)
    # All of them must be public: a name with a public and a private address could probe the private network.
    if only_public and not all(map(is_public, addresses)):
        raise _not_public(host)
    return addresses


def check_literal_address(host: str, *, only_public: bool) -> None:
    """Check a host that is an IP address or `localhost`, which needs no DNS. Any other name passes.

    Raise a FetchForbiddenError if its spelling is ambiguous, or if `only_public` and it is not public.
    """
    if is_ambiguous_ip(host):
        raise FetchForbiddenError(f"{host} is an unusual spelling of an IP address: write it as four decimal numbers.")
    if not only_public:
        return
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        raise _not_public(host)
    try:
        address = ip_address(name)
    except ValueError:
        return
    if not is_public(address):
        raise _not_public(host)


def is_ambiguous_ip(host: str) -> bool:
    """Return whether systems take a host as an IPv4 address although it is not written as four decimal numbers."""
    last = host.rstrip(".").rpartition(".")[2]
    if ":" in host or not _NUMBER.fullmatch(last):
        return False
    try:
        ip_address(host)
    except ValueError:
        return True
    return False


def _not_public(host: str) -> FetchForbiddenError:
    return FetchForbiddenError(
        f"{host} is not in the public network. The operator of REM can allow it with INGEST__PRIVATE_HOSTS."
    )


def _embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None


async def _lookup(host: str, port: int) -> list[IPAddress]:
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FetchError(f"The host {host} is unknown: {reason}. Check the address.") from error
    return list(dict.fromkeys(ip_address(info[4][0]) for info in infos))
