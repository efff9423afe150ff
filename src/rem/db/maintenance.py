"""Operations on the whole database: check and rebuild the mirrors, read table sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rem.db.sql import query

if TYPE_CHECKING:
    from rem.db.database import Connection, Database


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """The number of rows in the mirrors after a rebuild."""

    keys: int
    edges: int


async def rebuild_mirrors(database: Database) -> RebuildReport:
    """Rebuild kv_store and edges from the entity tables, in one transaction."""
    async with database.connection() as connection, connection.transaction():
        row = await connection.fetchrow(query("db/migrations", "rebuild"))
    return RebuildReport(*row) if row else RebuildReport(0, 0)


@dataclass(frozen=True, slots=True)
class TableSize:
    """The live and deleted rows of a table, and its size on disk."""

    table: str
    live: int
    deleted: int
    size_bytes: int


async def read_table_sizes(connection: Connection) -> list[TableSize]:
    """Return the sizes of all entity tables, over all tenants and users."""
    return [TableSize(*row) for row in await connection.fetch(query("db/maintenance", "table_sizes"))]


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """A comparison of the mirrors with the entity tables. Wrong rows are missing or superfluous."""

    keys: int
    edges: int
    wrong_keys: int
    wrong_edges: int

    @property
    def is_exact(self) -> bool:
        """Return True if the mirrors match the entity tables."""
        return not self.wrong_keys and not self.wrong_edges


async def check_mirrors(database: Database) -> MirrorReport:
    """Compare kv_store and edges with the rows that a rebuild would give."""
    async with database.connection() as connection:
        row = await connection.fetchrow(query("db/maintenance", "check_mirrors"))
    return MirrorReport(*row) if row else MirrorReport(0, 0, 0, 0)
