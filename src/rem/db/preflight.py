"""Can this PostgreSQL server keep REM's memory? If not, exactly what is missing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from rem.db.sql import query
from rem.errors import DatabaseUnsupportedError

if TYPE_CHECKING:
    from rem.db.database import Connection

_OLDEST_POSTGRES = 150000
_OLDEST_PGVECTOR = (0, 8)
_SCHEMA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*\Z")


@dataclass(frozen=True, slots=True)
class Extension:
    """An extension of the server: the version it offers, the version in use, and where."""

    available: str | None = None
    installed: str | None = None
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server says of itself."""

    version_number: int
    version: str
    database_name: str
    role_name: str
    encoding: str
    lowers_unicode: bool
    is_replica: bool
    may_create: bool
    has_schema: bool
    may_use_schema: bool
    vector: Extension
    pg_trgm: Extension

    @property
    def search_path(self) -> str:
        """Our schema first, then wherever the extensions live."""
        schemas = dict.fromkeys(["rem", self.vector.schema, self.pg_trgm.schema, "public"])
        return ", ".join(f'"{name}"' for name in schemas if name and _SCHEMA_NAME.match(name))


async def read_server_info(connection: Connection) -> ServerInfo:
    """Ask the server, in one round trip."""
    row = dict(await connection.fetchrow(query("preflight", "facts")) or {})
    extensions: dict[str, Any] = orjson.loads(row.pop("extensions") or "{}")
    return ServerInfo(
        **row,
        vector=Extension(**extensions.get("vector", {})),
        pg_trgm=Extension(**extensions.get("pg_trgm", {})),
    )


def find_unmet_requirements(facts: ServerInfo) -> list[str]:
    """What the server lacks, each with what to do about it; empty if it is fit."""
    found = []
    if facts.version_number < _OLDEST_POSTGRES:
        found.append(f"PostgreSQL is {facts.version}, REM needs 15 or newer: upgrade the server.")
    found += _extension_shortcomings("vector", facts.vector, facts, _OLDEST_PGVECTOR)
    found += _extension_shortcomings("pg_trgm", facts.pg_trgm, facts, (0,))
    if facts.encoding != "UTF8":
        found.append(
            f"The database's encoding is {facts.encoding}: create one with ENCODING 'UTF8' TEMPLATE template0."
        )
    elif not facts.lowers_unicode:
        found.append(
            "The database's locale cannot lower-case letters beyond ASCII: create one with a UTF-8 locale "
            "(LOCALE_PROVIDER builtin LOCALE 'C.UTF-8' TEMPLATE template0 on PostgreSQL 17 or newer)."
        )
    if not facts.has_schema and facts.is_replica:
        found.append("The server is a replica without REM's schema: connect to the primary and run `rem db migrate`.")
    elif not facts.has_schema and not facts.may_create:
        found.append(
            f"The role {facts.role_name} may not create the schema `rem`: as the database's owner run "
            f'GRANT CREATE ON DATABASE "{facts.database_name}" TO "{facts.role_name}".'
        )
    elif facts.has_schema and not facts.may_use_schema:
        found.append(
            f'The role {facts.role_name} may not use the schema `rem`: GRANT ALL ON SCHEMA rem TO "{facts.role_name}".'
        )
    return found


def _extension_shortcomings(name: str, extension: Extension, facts: ServerInfo, oldest: tuple[int, ...]) -> list[str]:
    if extension.available is None:
        return [f"The extension {name} is not installed on the server: install its package (for vector: pgvector)."]
    version = extension.installed or extension.available
    if tuple(int(part) for part in re.findall(r"\d+", version)) < oldest:
        wanted = ".".join(map(str, oldest))
        return [
            f"The extension {name} is {version}, REM needs {wanted}: update it, then ALTER EXTENSION {name} UPDATE."
        ]
    if extension.installed is None and not facts.may_create:
        return [f"The extension {name} is not in this database: as its owner run CREATE EXTENSION {name}."]
    return []


def check_requirements(facts: ServerInfo) -> None:
    """Raise an error that lists everything the server lacks."""
    found = find_unmet_requirements(facts)
    if found:
        listing = "\n".join(f"  - {shortcoming}" for shortcoming in found)
        raise DatabaseUnsupportedError(f"The PostgreSQL server cannot keep REM's memory:\n{listing}")
