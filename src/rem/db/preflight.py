"""Check that a PostgreSQL server meets the requirements of REM, and list the unmet ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from rem.db.sql import query
from rem.errors import DatabaseUnsupportedError

if TYPE_CHECKING:
    from rem.db.database import Connection

MIN_POSTGRES_VERSION = 150000
MIN_PGVECTOR_VERSION = (0, 8)
_SCHEMA_NAME = re.compile(r"\A[A-Za-z_][A-Za-z0-9_$]*\Z")


@dataclass(frozen=True, slots=True)
class Extension:
    """An extension: the version that the server offers, the installed version and its schema."""

    available: str | None = None
    installed: str | None = None
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Properties of a server and of the role that connects to it."""

    version_number: int
    version: str
    database_name: str
    role_name: str
    encoding: str
    lowers_unicode: bool
    is_replica: bool
    may_create: bool
    has_schema: bool
    is_restoring: bool
    """Whether a restore runs, or was killed before its end."""
    may_use_schema: bool
    vector: Extension
    pg_trgm: Extension

    @property
    def schemas(self) -> list[str]:
        """Return the schemas that statements need: that of REM, then those of the extensions."""
        schemas = dict.fromkeys(["rem", self.vector.schema, self.pg_trgm.schema])
        return [name for name in schemas if name and _SCHEMA_NAME.match(name)]

    @property
    def search_path(self) -> str:
        """Return the search path: the schemas that statements need, then `public`."""
        return ", ".join(f'"{name}"' for name in dict.fromkeys([*self.schemas, "public"]))


async def read_server_info(connection: Connection) -> ServerInfo:
    """Read the properties of the server, in one round trip."""
    row = dict(await connection.fetchrow(query("db/preflight", "server_info")) or {})
    extensions: dict[str, Any] = orjson.loads(row.pop("extensions") or "{}")
    return ServerInfo(
        **row,
        vector=Extension(**extensions.get("vector", {})),
        pg_trgm=Extension(**extensions.get("pg_trgm", {})),
    )


async def list_text_search_languages(connection: Connection) -> list[str]:
    """Return the names that SEARCH__LANGUAGE may have on this server."""
    return [row["name"] for row in await connection.fetch(query("db/preflight", "text_search_languages"))]


def find_unmet_requirements(info: ServerInfo) -> list[str]:
    """Return a message for each unmet requirement, with the way to meet it."""
    unmet = []
    if info.version_number < MIN_POSTGRES_VERSION:
        unmet.append(f"PostgreSQL is {info.version}, REM needs 15 or newer: upgrade the server.")
    unmet += _check_extension("vector", info.vector, info, MIN_PGVECTOR_VERSION)
    unmet += _check_extension("pg_trgm", info.pg_trgm, info, (0,))
    if info.encoding != "UTF8":
        unmet.append(f"The database's encoding is {info.encoding}: create one with ENCODING 'UTF8' TEMPLATE template0.")
    elif not info.lowers_unicode:
        unmet.append(
            "The database's locale cannot lower-case letters beyond ASCII: create one with a UTF-8 locale "
            "(LOCALE_PROVIDER builtin LOCALE 'C.UTF-8' TEMPLATE template0 on PostgreSQL 17 or newer)."
        )
    if info.is_restoring:
        unmet.append(
            "A restore into this database runs or was interrupted: wait for its end, or run `rem db restore` again."
        )
    if not info.has_schema and info.is_replica:
        unmet.append("The server is a replica without REM's schema: connect to the primary and run `rem db migrate`.")
    elif not info.has_schema and not info.may_create:
        unmet.append(
            f"The role {info.role_name} may not create the schema `rem`: as the database's owner run "
            f'GRANT CREATE ON DATABASE "{info.database_name}" TO "{info.role_name}".'
        )
    elif info.has_schema and not info.may_use_schema:
        unmet.append(
            f'The role {info.role_name} may not use the schema `rem`: GRANT ALL ON SCHEMA rem TO "{info.role_name}".'
        )
    return unmet


def _check_extension(name: str, extension: Extension, info: ServerInfo, minimum: tuple[int, ...]) -> list[str]:
    if extension.available is None:
        return [f"The extension {name} is not installed on the server: install its package (for vector: pgvector)."]
    version = extension.installed or extension.available
    if tuple(int(part) for part in re.findall(r"\d+", version)) < minimum:
        wanted = ".".join(map(str, minimum))
        return [
            f"The extension {name} is {version}, REM needs {wanted}: update it, then ALTER EXTENSION {name} UPDATE."
        ]
    if extension.installed is None and not info.may_create:
        return [f"The extension {name} is not in this database: as its owner run CREATE EXTENSION {name}."]
    return []


def check_requirements(info: ServerInfo) -> None:
    """Raise DatabaseUnsupportedError that lists all unmet requirements."""
    unmet = find_unmet_requirements(info)
    if unmet:
        listing = "\n".join(f"  - {message}" for message in unmet)
        raise DatabaseUnsupportedError(f"The PostgreSQL server cannot keep REM's memory:\n{listing}")
