"""Divide the large tables into hash partitions by tenant. PostgreSQL does the rest: statements name the whole table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rem.db.sql import fill, identifier, query
from rem.errors import ConflictError, InvalidInputError

if TYPE_CHECKING:
    from rem.db.database import Connection

MIN_PARTITIONS = 2
MAX_PARTITIONS = 256
LARGE_TABLES = (
    *("resources", "moments", "messages", "documents", "ontologies", "records"),
    *("passages", "term_counts", "kv_store", "edges"),
    *("statements", "statement_sources", "dream_progress"),
)
"""The tables that grow with the memories. The tables of custom types are divided, too."""
REBUILT_TABLE = "kv_store"
"""The migrator fills this table again when it installs the functions, so its rows need not be kept."""
LOCKS_OF_THE_REST = 1_500
LOCKS_PER_RELATION = 3.2
"""What a migration locks: tables and indexes with their types and constraints (6,558 locks for 16 partitions)."""


async def count_partitions(connection: Connection) -> int:
    """Return the number of partitions of each large table; 0 if they are not divided."""
    count: int = await connection.fetchval(query("db/partitions", "partition_count"))
    return count


async def check_partition_request(connection: Connection, partitions: int) -> bool:
    """Return True if the large tables are still to be divided into so many partitions.

    Raise InvalidInputError for a number that does not fit, and ConflictError if a table has rows or other partitions.
    """
    if not MIN_PARTITIONS <= partitions <= MAX_PARTITIONS:
        raise InvalidInputError(f"The number of partitions must be {MIN_PARTITIONS} to {MAX_PARTITIONS}.")
    stored = await count_partitions(connection)
    if stored == partitions:
        return False
    if stored:
        raise ConflictError(f"The tables have {stored} partitions already. {_describe_path()}")
    return True


async def partition_tables(connection: Connection, partitions: int) -> None:
    """Divide the large tables that have no partitions yet. Call it in a transaction.

    Raise ConflictError if one of them has rows, and InvalidInputError if the server allows too few locks.
    """
    tables = [row[0] for row in await connection.fetch(query("db/partitions", "plain_tables"), list(LARGE_TABLES))]
    if not tables:
        return
    names = [f"rem.{identifier(table)}" for table in tables]
    await connection.execute(fill(query("db/partitions", "lock_tables"), tables=", ".join(names)))
    await _refuse_rows(connection, tables)
    await _check_locks(connection, names, partitions)
    await connection.execute(query("db/partitions", "create_schema"))
    foreign_keys = await connection.fetch(query("db/partitions", "foreign_keys"), names)
    # All definitions are read before the first table is dropped.
    replacements = [
        await connection.fetchval(query("db/partitions", "table_statements"), name, partitions) for name in names
    ]
    for statement in (
        *(foreign_key["drop"] for foreign_key in foreign_keys),
        *(statement for statements in replacements for statement in statements),
        *(foreign_key["create"] for foreign_key in foreign_keys),
    ):
        await connection.execute(statement)


async def _refuse_rows(connection: Connection, tables: list[str]) -> None:
    filled = [
        table
        for table in tables
        if table != REBUILT_TABLE
        and await connection.fetchval(fill(query("db/partitions", "has_rows"), table=f"rem.{identifier(table)}"))
    ]
    if filled:
        raise ConflictError(
            f"Only empty tables can be divided into partitions, and {', '.join(filled)} have rows. {_describe_path()}"
        )


async def _check_locks(connection: Connection, names: list[str], partitions: int) -> None:
    """Raise InvalidInputError if the server cannot lock all partitions and their indexes at once, as a restore does."""
    relations = partitions * await connection.fetchval(query("db/partitions", "relation_count"), names)
    needed = LOCKS_OF_THE_REST + int(LOCKS_PER_RELATION * relations)
    max_locks, processes = await connection.fetchrow(query("db/partitions", "lock_limits")) or (needed, 1)
    if needed > max_locks:
        raise InvalidInputError(
            f"{partitions} partitions need {needed:,} locks, and this server allows {max_locks:,}: set "
            f"max_locks_per_transaction to {needed // processes + 1} or more and restart it, or use fewer partitions."
        )


def _describe_path() -> str:
    return (
        "Migrate a new database with the wanted number, and copy the memory while it is in use: see "
        '"Divide a database that is in use" in docs/database.md.'
    )
