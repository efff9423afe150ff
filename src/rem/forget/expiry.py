"""Parse expiry times, and set them on rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING
from uuid import UUID

from rem.db.retry import retry_when_busy
from rem.db.sql import query_table
from rem.db.write_plan import owner_condition
from rem.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from rem.db.database import Connection
    from rem.db.store import Store
    from rem.models import Entity

_DURATION_PART = re.compile(r"(\d{1,9})\s*([a-z]+)", re.IGNORECASE)
_UNIT_SECONDS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86_400),
    **dict.fromkeys(("y", "year", "years"), 365 * 86_400),
}
MAX_DURATION = timedelta(days=365 * 1000)


def parse_duration(text: str) -> timedelta:
    """Parse a duration such as `30d`, `12h` or `1w 2d`. Raise InvalidInputError if it is none."""
    parts = _DURATION_PART.findall(text)
    has_unknown_unit = any(unit.lower() not in _UNIT_SECONDS for _, unit in parts)
    if not parts or _DURATION_PART.sub("", text).strip() or has_unknown_unit:
        raise InvalidInputError(f"{text!r} is not a duration: write 30d, 12h, 45m, 2w or 1y.")
    seconds = sum(int(number) * _UNIT_SECONDS[unit.lower()] for number, unit in parts)
    if not 0 < seconds <= MAX_DURATION.total_seconds():
        raise InvalidInputError(f"{text!r} is out of range: write a duration from 1s to 1000y.")
    return timedelta(seconds=seconds)


def parse_time(text: str, zone: tzinfo = UTC) -> datetime:
    """Parse a date or time in ISO 8601. Without an offset it is in `zone`. Raise InvalidInputError if it is neither."""
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError as error:
        today = date.today().isoformat()
        raise InvalidInputError(f"{text!r} is not a date: write {today} or {today}T18:00.") from error
    return time if time.tzinfo else time.replace(tzinfo=zone)


def parse_expiry(within: str | None, at: str | None, never: bool, *, now: datetime | None = None) -> datetime | None:
    """Return the expiry time that exactly one of the three options gives; None for never.

    A time without an offset is in the time zone of `now` (default: the clock, in UTC). Raise InvalidInputError if none
    or several of them are given.
    """
    if sum((within is not None, at is not None, never)) != 1:
        raise InvalidInputError("Give exactly one of --in 30d, --at 2026-12-01 and --never.")
    now = now or datetime.now(UTC)
    if within is not None:
        return now + parse_duration(within)
    return None if at is None else parse_time(at, now.tzinfo or UTC)


async def expire(store: Store, entities: Sequence[Entity], at: datetime | None) -> None:
    """Set the expiry time of the owner's rows, or None for never; all of them or none.

    A session passes it on to its messages, a file to its chunks, and all of them to the rows derived from them. A
    dreamt row becomes the owner's own row: no dream makes it again. Raise NotFoundError if a row has another owner, or
    is deleted or expired already.
    """

    async def set_expiry() -> None:
        tenant_id, user_id = store.scope.tenant_id, store.scope.user_id
        async with store.transaction() as inside, inside.executor.connection() as connection:
            # A fixed order, because two transactions that lock the same rows must not block each other.
            for entity in sorted(entities, key=lambda entity: (entity.entity_type.table, entity.id)):
                table = entity.entity_type.table
                owner = owner_condition("r", user_id is None)
                statement = query_table("forget/forget", "expire", table, owner=owner)
                row_id: UUID | None = await connection.fetchval(statement, tenant_id, user_id, entity.id, at)
                if row_id is None:
                    raise NotFoundError(f"{table} has no row {entity.key or entity.id} of this owner.")
                await _adopt(connection, entity, at)

    await retry_when_busy(set_expiry)


async def adopt_expiring_row(store: Store, entity: Entity) -> None:
    """Make a dreamt row with an expiry the owner's own, after `expires_at` was written like any other field."""
    async with store.executor.connection() as connection:
        await _adopt(connection, entity, entity.expires_at)


async def _adopt(connection: Connection, entity: Entity, at: datetime | None) -> None:
    if at is not None:
        table = entity.entity_type.table
        statement = query_table("forget/forget", "adopt_expiring_row", table)
        await connection.execute(statement, entity.tenant_id, table, entity.id)
