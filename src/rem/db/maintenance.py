"""What an operator asks of the database as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rem.db.sql import query

if TYPE_CHECKING:
    from rem.db.database import Connection, Database


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What the mirrors hold after a rebuild."""

    keys: int
    edges: int


async def rebuild_mirrors(database: Database) -> RebuildReport:
    """Fill kv_store and edges anew from the tables, in one transaction."""
    async with database.connection() as connection, connection.transaction():
        row = await connection.fetchrow(query("migrations", "rebuild"))
    return RebuildReport(*row) if row else RebuildReport(0, 0)


@dataclass(frozen=True, slots=True)
class TableSize:
    """A table with its rows, live and deleted, and its size on disk."""

    table: str
    live: int
    deleted: int
    size_bytes: int


async def read_table_sizes(connection: Connection) -> list[TableSize]:
    """All entity tables with what they hold; over all tenants and users, so for operators only."""
    return [TableSize(*row) for row in await connection.fetch(query("maintenance", "table_sizes"))]


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """How the mirrors compare with the tables: what they hold, and how many rows are missing or too many."""

    keys: int
    edges: int
    wrong_keys: int
    wrong_edges: int

    @property
    def is_exact(self) -> bool:
        """Whether the mirrors are just what the tables imply."""
        return not self.wrong_keys and not self.wrong_edges


async def check_mirrors(database: Database) -> MirrorReport:
    """Compare kv_store and edges with what a rebuild would put there."""
    async with database.connection() as connection:
        row = await connection.fetchrow(query("maintenance", "check_mirrors"))
    return MirrorReport(*row) if row else MirrorReport(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class DanglingEdge:
    """An edge whose target does not exist (yet), as its owner sees it."""

    src_type: str
    src_key: str
    rel_type: str
    dst: str
