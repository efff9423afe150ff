"""When something lapses: how people say it, and how it is set."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from rem.db.retry import retry_when_busy
from rem.db.sql import fill, identifier, query
from rem.db.write_plan import owner_condition
from rem.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from rem.db.database import Connection
    from rem.db.store import Store
    from rem.models import Entity

_SPAN = re.compile(r"(\d{1,9})\s*([a-z]+)", re.IGNORECASE)
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
    """The time that a text such as `30d`, `12h` or `1w 2d` means."""
    parts = _SPAN.findall(text)
    if not parts or _SPAN.sub("", text).strip() or any(unit.lower() not in _UNIT_SECONDS for _, unit in parts):
        raise InvalidInputError(f"{text!r} is no span of time: write 30d, 12h, 45m, 2w or 1y.")
    seconds = sum(int(number) * _UNIT_SECONDS[unit.lower()] for number, unit in parts)
    if not 0 < seconds <= MAX_DURATION.total_seconds():
        raise InvalidInputError(f"{text!r} is no time in which something lapses: it is from 1s to 1000y.")
    return timedelta(seconds=seconds)


def parse_time(text: str) -> datetime:
    """The moment that a date or time in ISO 8601 means; in UTC, if it does not say otherwise."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        today = date.today().isoformat()
        raise InvalidInputError(f"{text!r} is no date: write {today} or {today}T18:00.") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def parse_expiry(within: str | None, at: str | None, never: bool, *, now: datetime | None = None) -> datetime | None:
    """When something is to lapse, of the three ways to say it exactly one; None means never."""
    if sum((within is not None, at is not None, never)) != 1:
        raise InvalidInputError("Say when it lapses, in one way: --in 30d, --at 2026-12-01, or --never.")
    if within is not None:
        return (now or datetime.now(UTC)) + parse_duration(within)
    return None if at is None else parse_time(at)


async def expire(store: Store, entities: Sequence[Entity], at: datetime | None) -> None:
    """Let rows of the scope's own lapse at a moment, or never; all of them or none.

    A session takes its messages along, a file its chunks, and all of them what was dreamt from them. What has lapsed
    already is gone and stays so. A dreamt row that is to lapse is its owner's from then on: no dream makes it again.
    """

    async def work() -> None:
        tenant_id, user_id = store.scope.tenant_id, store.scope.user_id
        async with store.transaction() as inside, inside.executor.connection() as connection:
            # In one order, so that two at once cannot block each other.
            for entity in sorted(entities, key=lambda entity: (entity.entity_type.table, entity.id)):
                table = entity.entity_type.table
                statement = fill(
                    query("forgetting", "expire"),
                    table=f"rem.{identifier(table)}",
                    owner=owner_condition("r", user_id is None),
                )
                found: UUID | None = await connection.fetchval(statement, tenant_id, user_id, entity.id, at)
                if found is None:
                    raise NotFoundError(f"{table} has no {entity.key or entity.id} of this owner.")
                await _adopt(connection, entity, at)

    await retry_when_busy(work)


async def adopt_expiring_row(store: Store, entity: Entity) -> None:
    """Let a dreamt row that is to lapse be its owner's, where `expires_at` was written like any other field."""
    async with store.executor.connection() as connection:
        await _adopt(connection, entity, entity.expires_at)


async def _adopt(connection: Connection, entity: Entity, at: datetime | None) -> None:
    if at is not None:
        table = entity.entity_type.table
        by_hand = fill(query("forgetting", "lapse_by_hand"), table=f"rem.{identifier(table)}")
        await connection.execute(by_hand, entity.tenant_id, table, entity.id)
