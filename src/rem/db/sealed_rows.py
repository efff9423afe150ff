"""Open the encrypted values of rows as they come from the database: only in a row that has the id they belong to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import orjson

from rem.encryption.sealed_values import PREFIX
from rem.fair_map import map_fairly

if TYPE_CHECKING:
    from rem.encryption.sealed_values import Sealer

ROW_IDS = ("id", "entity_id", "source_id", "message_id")
"""Columns with the id of the row that a text is from."""
OTHER_IDS = ("session_id", "approval_id", "file_id")
"""The same for rows without such a column."""
_MARK = PREFIX.encode()


@dataclass(frozen=True, slots=True)
class SealedJson:
    """JSON with an encrypted value in it."""

    value: Any


class OpenedRow:
    """A row with its encrypted values opened. It is used like a row of the driver."""

    __slots__ = ("_names", "_values")

    def __init__(self, names: Sequence[str], values: Sequence[Any]) -> None:
        self._names = names
        self._values = values

    def __getitem__(self, key: str | int | slice) -> Any:
        return self._values[self._names.index(key) if isinstance(key, str) else key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def keys(self) -> Iterator[str]:
        """Yield the names of the columns."""
        return iter(self._names)

    def values(self) -> Iterator[Any]:
        """Yield the values."""
        return iter(self._values)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yield the names and values."""
        return iter(zip(self._names, self._values, strict=True))

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a column, or the default if there is no such column."""
        return self[name] if name in self._names else default


def decode_json(data: bytes) -> Any:
    """Return the JSON of a column, marked if it has an encrypted value."""
    value = orjson.loads(data)
    return SealedJson(value) if _MARK in data else value


def decode_jsonb(data: bytes) -> Any:
    """Return the JSON of a binary column, marked if it has an encrypted value."""
    return decode_json(data[1:])


def open_row(sealer: Sealer, row: Any) -> Any:
    """Return a row with its encrypted values opened. Raise EncryptionError if one belongs to another row."""
    if row is None or not any(map(_is_sealed, row)):
        return row
    names, values = list(row.keys()), list(row)
    named = dict(zip(names, values, strict=True))
    ids = [named[name] for name in ROW_IDS if isinstance(named.get(name), UUID)]
    ids = ids or [named[name] for name in OTHER_IDS if isinstance(named.get(name), UUID)]
    row_ids = frozenset(UUID(bytes=row_id.bytes) for row_id in ids)
    tenant_id = named.get("tenant_id")
    opened = [_open(sealer, value, row_ids, tenant_id) if _is_sealed(value) else value for value in values]
    return OpenedRow(names, opened)


def _is_sealed(value: Any) -> bool:
    if isinstance(value, str):
        return PREFIX in value and (value.startswith(PREFIX) or value[:1] in "[{")
    if isinstance(value, list):
        return any(map(_is_sealed, value))
    if isinstance(value, bytes):
        return value.startswith(_MARK)
    return isinstance(value, SealedJson)


def _open(sealer: Sealer, value: Any, row_ids: frozenset[UUID], tenant_id: str | None) -> Any:
    if isinstance(value, SealedJson):
        return sealer.open_value(value.value, row_ids, tenant_id)
    if isinstance(value, list):
        return [_open(sealer, item, row_ids, tenant_id) if _is_sealed(item) else item for item in value]
    if isinstance(value, bytes):
        return sealer.open_bytes(value, row_ids, tenant_id)
    if value.startswith(PREFIX):
        return sealer.open(value, row_ids, tenant_id)
    # JSON that the database has put together as a text.
    return orjson.dumps(sealer.open_value(orjson.loads(value), row_ids, tenant_id)).decode()


class OpeningConnection(asyncpg.Connection):
    """A connection that opens encrypted values in the rows that it returns. Subclasses set the sealer."""

    sealer: Sealer

    def get_reset_query(self) -> str:
        """Return no reset query, as for other connections of the pool."""
        return ""

    async def fetch(self, query: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Run a statement, and return its rows."""
        return await map_fairly(partial(open_row, self.sealer), await super().fetch(query, *args, **kwargs))

    async def fetchrow(self, query: str, *args: Any, **kwargs: Any) -> Any:
        """Run a statement, and return its first row."""
        return open_row(self.sealer, await super().fetchrow(query, *args, **kwargs))

    async def fetchval(self, query: str, *args: Any, column: int = 0, **kwargs: Any) -> Any:
        """Run a statement, and return one column of its first row."""
        row = await self.fetchrow(query, *args, **kwargs)
        return None if row is None else row[column]

    def cursor(self, query: str, *args: Any, **kwargs: Any) -> Any:
        """Return a cursor, whose rows are opened as well."""
        return _iterate(self.sealer, super().cursor(query, *args, **kwargs))


async def _iterate(sealer: Sealer, cursor: Any) -> AsyncIterator[Any]:
    async for row in cursor:
        yield open_row(sealer, row)
