"""Rotation: encrypt all stored texts with the first key of the settings, or decrypt them, in batches.

A batch is one transaction, and a row that is done is not found again, so an interrupted rotation is continued by
starting it again. Rows that others are writing are skipped and visited again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from rem.db.retry import retry_when_busy
from rem.db.sql import fill, query
from rem.encryption.sealed_values import (
    SEALED_JSON,
    SEALED_TEXTS,
    TOKEN,
    Place,
    Sealer,
    reseal,
    seal_profile,
    seal_statement,
    seal_tool_arguments,
)
from rem.errors import EncryptionError

if TYPE_CHECKING:
    from rem.db.database import Connection, Database

RotationProgress: TypeAlias = Callable[[int, int | None], None]
"""Called with the number of texts that are done, and how many there are."""
BATCH_ROWS = 200
MAX_PASSES = 5
PASS_SECONDS = 0.2
"""Between two visits of rows that others are writing."""
_NO_ID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class SealedColumn:
    """A column with encrypted texts."""

    table: str
    column: str
    value: str
    """SQL for the text of a row `r`; NULL if it has none."""
    columns: str
    """SQL for what is read."""
    seal: Callable[[Sealer, Any], Any]
    """Returns the new value of the column for a row."""
    id_column: str = "id"


@dataclass(frozen=True, slots=True)
class KeyUse:
    """The number of texts of a column that a key encrypts."""

    table: str
    column: str
    key_id: str | None
    """None for texts that are not encrypted."""
    texts: int


async def count_key_uses(database: Database) -> list[KeyUse]:
    """Return how many texts each key encrypts, by column."""
    uses: list[KeyUse] = []
    async with database.connection() as connection:
        for column in _list_columns():
            rows = await connection.fetch(_statement("count_by_key", column))
            uses += [KeyUse(column.table, column.column, row["key_id"], row["texts"]) for row in rows]
    return uses


def count_remaining(uses: list[KeyUse], sealer: Sealer | None) -> int:
    """Return the number of texts that a rotation would change."""
    wanted = sealer.keys.sealing_id if sealer is not None and sealer.is_sealing else None
    return sum(use.texts for use in uses if use.key_id != wanted)


async def rotate(database: Database, on_progress: RotationProgress | None = None) -> int:
    """Encrypt all texts with the first key, or decrypt them if encryption is off. Return the number of changed texts.

    Raise EncryptionError, and change nothing more, if the key of a text is missing.
    """
    sealer = database.sealer
    if sealer is None:
        return 0
    total = count_remaining(await count_key_uses(database), sealer)
    done = 0
    for attempt in range(MAX_PASSES):
        for column in _list_columns():
            async for count in _rotate_column(database, sealer, column):
                done += count
                if on_progress:
                    on_progress(done, max(total, done))
        if not count_remaining(await count_key_uses(database), sealer):
            await _finish(database, sealer)
            return done
        await asyncio.sleep(PASS_SECONDS * (attempt + 1))
    raise EncryptionError("Some rows were being written all the time: start the rotation again.")


async def _rotate_column(database: Database, sealer: Sealer, column: SealedColumn) -> Any:
    last: tuple[str, UUID] = ("", _NO_ID)
    wanted = sealer.keys.sealing_id if sealer.is_sealing else None
    while True:

        async def change(after: tuple[str, UUID] = last) -> list[Any]:
            async with database.transaction() as inside, inside.connection() as connection:
                await connection.execute(query("db/rotation", "allow_rotation"))
                rows = await connection.fetch(_statement("next_rows", column), *after, wanted, BATCH_ROWS)
                for row in rows:
                    value = column.seal(sealer, row)
                    statement = _statement("replace_text", column)
                    await connection.execute(statement, row["tenant_id"], row["row_id"], value)
                return rows

        rows = await retry_when_busy(change)
        if not rows:
            return
        last = (rows[-1]["tenant_id"], rows[-1]["row_id"])
        yield len(rows)


async def _finish(database: Database, sealer: Sealer) -> None:
    """Encrypt the secret of the database with the first key, or remove it with all keyed words if encryption is off."""
    async with database.transaction() as inside, inside.connection() as connection:
        stored = await _fetch_secret(connection)
        if not sealer.is_sealing:
            await connection.execute(query("db/installation", "clear_index_key"))
            await connection.execute("SELECT rem.rem_enqueue_all_rows()")
        elif (match := TOKEN.fullmatch(stored)) is not None:
            await connection.execute(query("db/installation", "replace_index_key"), stored, reseal(sealer.keys, match))


async def _fetch_secret(connection: Connection) -> str:
    # As a part of another text, so that it is not opened.
    return str(await connection.fetchval("SELECT ' ' || index_key FROM rem.installation")).strip()


def _statement(name: str, column: SealedColumn) -> str:
    return fill(
        query("db/rotation", name),
        table=column.table,
        value=column.value,
        columns=column.columns,
        id=column.id_column,
        column=column.column,
    )


def _list_columns() -> Iterator[SealedColumn]:
    for table, columns in SEALED_TEXTS.items():
        for column in columns:
            yield _make_text_column(table, column)
    for table, columns in SEALED_JSON.items():
        for column in columns:
            yield _make_json_column(table, column)
    yield SealedColumn(
        "messages",
        "metadata",
        "CASE WHEN r.metadata -> 'tool_arguments' <> '{}' THEN (r.metadata -> 'tool_arguments')::text END",
        "r.id, r.metadata",
        lambda sealer, row: seal_tool_arguments(sealer, row["metadata"], row["tenant_id"], row["row_id"]),
    )
    yield SealedColumn(
        "users",
        "metadata",
        "CASE WHEN r.metadata -> 'profile' <> '{}' THEN (r.metadata -> 'profile')::text END",
        "r.id, r.metadata",
        lambda sealer, row: seal_profile(sealer, row["metadata"], row["tenant_id"], row["row_id"]),
    )
    yield SealedColumn(
        "session_summaries",
        "summary",
        "nullif(r.summary, '')",
        "r.session_id AS id, r.summary",
        lambda sealer, row: sealer.seal(row["summary"], Place(row["tenant_id"], row["row_id"], "summary")),
        "session_id",
    )
    yield SealedColumn(
        "statements",
        "value",
        "CASE WHEN r.kind = 'row' THEN nullif(concat(r.value ->> 'content', r.value ->> 'summary'), '')"
        " WHEN r.kind = 'field' AND (r.name = 'summary' OR r.name LIKE 'metadata.profile.%')"
        " AND jsonb_typeof(r.value) IN ('string', 'array', 'object') THEN nullif(r.value #>> '{}', '[]') END",
        "r.entity_id, r.entity_type, r.kind, r.name, r.value",
        lambda sealer, row: seal_statement(sealer, row, row["tenant_id"]),
    )
    yield SealedColumn(
        "approval_runs",
        "state",
        "r.state",
        "r.approval_id AS id, r.state",
        lambda sealer, row: sealer.seal(row["state"], Place(row["tenant_id"], row["row_id"], "state")),
        "approval_id",
    )
    yield SealedColumn(
        "uploads",
        "content",
        "convert_from(substr(r.content, 1, 60), 'LATIN1')",
        "r.file_id AS id, r.content",
        lambda sealer, row: sealer.seal_bytes(row["content"], Place(row["tenant_id"], row["row_id"], "upload")),
        "file_id",
    )


def _make_text_column(table: str, column: str) -> SealedColumn:
    def seal(sealer: Sealer, row: Any) -> str:
        return sealer.seal_text(table, column, row[column], row["tenant_id"], row["row_id"])

    return SealedColumn(table, column, f"nullif(r.{column}, '')", f"r.id, r.{column}", seal)


def _make_json_column(table: str, column: str) -> SealedColumn:
    def seal(sealer: Sealer, row: Any) -> Any:
        return sealer.seal_json(row[column], Place(row["tenant_id"], row["row_id"], column))

    value = f"CASE WHEN r.{column} NOT IN ('{{}}', '[]') THEN r.{column}::text END"
    return SealedColumn(table, column, value, f"r.id, r.{column}", seal)
