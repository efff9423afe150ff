"""Delete sessions that nobody has written to for a long time, if the settings ask for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from loguru import logger

from rem.context import Scope
from rem.db.sql import query
from rem.errors import InvalidInputError
from rem.models import Session
from rem.sessions.queries import SessionQueries

if TYPE_CHECKING:
    from rem.db.database import Database
    from rem.sessions.manager import MemoryManager
    from rem.settings import MemorySettings

MAX_PRUNE_DAYS = 36_500
"""A hundred years. PostgreSQL's intervals would overflow at much larger numbers."""
PAGE_SESSIONS = 500


def check_prune_days(days: int) -> None:
    """Raise `InvalidInputError` if the number of days is not valid."""
    if not 0 <= days <= MAX_PRUNE_DAYS:
        raise InvalidInputError(f"The number of days must be from 0 to {MAX_PRUNE_DAYS:,}.")


async def list_idle_sessions(memory: MemoryManager, days: int) -> list[Session]:
    """Return the sessions that `prune_old_sessions` would delete, the longest idle first. Nothing changes."""
    check_prune_days(days)
    owner = SessionQueries(memory.store).owner
    sessions: list[Session] = []
    async with memory.store.snapshot() as store, store.executor.connection() as connection:
        while True:
            rows = await connection.fetch(
                query("sessions/sessions", "idle_sessions"), *owner, days, PAGE_SESSIONS, len(sessions)
            )
            sessions += [Session.from_row(record) for (record,) in rows]
            if len(rows) < PAGE_SESSIONS:
                return sessions


async def prune_idle_sessions(
    memory_for: Callable[[Scope], MemoryManager], database: Database, settings: MemorySettings
) -> int:
    """Delete the sessions of all users that are idle for more than `auto_prune_days`. Return the number of sessions.

    Without that setting, and on a replica, nothing is deleted.
    """
    days = settings.auto_prune_days
    if days is None or database.server_info.is_replica:
        return 0
    async with database.connection() as connection:
        owners = await connection.fetch(query("sessions/sessions", "owners_of_idle_sessions"), days)
    # One owner at a time, in the owner's own scope, like every other write.
    pruned = 0
    for tenant_id, user_id in owners:
        pruned += await memory_for(Scope(tenant_id, user_id)).prune_old_sessions(days)
    if pruned:
        logger.info("Deleted {} sessions that were idle for more than {} days", pruned, days)
    return pruned
