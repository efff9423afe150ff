"""Reach: what a caller may have fetched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rem.settings import IngestSettings


@dataclass(frozen=True, slots=True)
class Reach:
    """Files, hosts and buckets that may be read for a caller."""

    is_everywhere: bool = False
    """For who sits at the machine: any file that the process can read, any host, any bucket."""
    paths: tuple[Path, ...] = ()
    private_hosts: frozenset[str] = frozenset()
    """Hosts, as `host` or `host:port`, that may lie in a private network. Public ones need not be named."""
    buckets: frozenset[str] = frozenset()

    @classmethod
    def of_settings(cls, settings: IngestSettings) -> Self:
        """What the API and agents may reach."""
        return cls(
            paths=tuple(settings.paths),
            private_hosts=frozenset(settings.private_hosts),
            buckets=frozenset(settings.s3_buckets),
        )


EVERYWHERE = Reach(is_everywhere=True)
