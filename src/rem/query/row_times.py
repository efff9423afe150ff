"""Tell when the thing in a row of a query result happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import Any

from rem.query.result import QueryResult

_TIME_FIELDS = {"moments": ("starts_timestamp",), "resources": ("timestamp",)}
_TABLES_WITHOUT_TIME = frozenset({"users"})
"""A person has no time; the row only says when REM heard of somebody first."""


def add_times(result: QueryResult, zone: tzinfo | None = None) -> QueryResult:
    """Return the result with `happened_at` in every row that has a record with a time; with `zone` in that zone."""
    if result.query_type == "SQL":
        return result
    return replace(result, results=[_add_time(row, zone) for row in result.results])


def get_time(row: Mapping[str, Any]) -> datetime | None:
    """Return `happened_at` of a row as a time; None if the row has none."""
    happened_at = row.get("happened_at")
    return datetime.fromisoformat(happened_at) if happened_at else None


def find_time(table: str, record: Mapping[str, Any]) -> str | None:
    """Return when a message was said, a moment took place or a text was written; else when the row was stored."""
    if table in _TABLES_WITHOUT_TIME:
        return None
    if table == "files" and (written_at := _find_written_at(record)):
        return written_at
    times = (record.get(name) for name in (*_TIME_FIELDS.get(table, ()), "created_at"))
    return next((time for time in times if isinstance(time, str)), None)


def _find_written_at(record: Mapping[str, Any]) -> str | None:
    """Return when a file was written. Users can write anything into the metadata, so only a time counts."""
    metadata = record.get("metadata")
    value = metadata.get("written_at") if isinstance(metadata, Mapping) else None
    try:
        return value if isinstance(value, str) and datetime.fromisoformat(value).tzinfo else None
    except ValueError:
        return None


def _add_time(row: dict[str, Any], zone: tzinfo | None) -> dict[str, Any]:
    record = row.get("record")
    time = find_time(str(row.get("table")), record) if isinstance(record, Mapping) else None
    return row if time is None else {**row, "happened_at": _to_zone(time, zone)}


def _to_zone(time: str, zone: tzinfo | None) -> str:
    """Return an ISO time in another time zone. UTC stays as the database writes it."""
    return time if zone in (None, UTC) else datetime.fromisoformat(time).astimezone(zone).isoformat()
