"""Pruning: sessions that nobody has written to for long go away, if the settings say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from loguru import logger

from rem.context import Scope
from rem.db.sql import query
from rem.errors import InvalidInputError
from rem.models import Session

if TYPE_CHECKING:
    from rem.db.database import Database
    from rem.memory.manager import MemoryManager
    from rem.settings import MemorySettings

MAX_PRUNE_DAYS = 36_500
_SHOWN_AT_ONCE = 500


def check_prune_days(days: int) -> None:
    """Refuse a number of days that cannot be meant."""
    if not 0 <= days <= MAX_PRUNE_DAYS:
        raise InvalidInputError(f"The number of days must be from 0 to {MAX_PRUNE_DAYS:,}.")


async def list_idle_sessions(memory: MemoryManager, days: int) -> list[Session]:
    """The sessions that `prune_old_sessions` would delete, the longest idle first. Nothing changes."""
    check_prune_days(days)
    scope, found = memory.scope, list[Session]()
    if scope.user_id is None:
        raise InvalidInputError("Conversations have an owner: give a user.")
    async with memory.store.snapshot() as store, store.executor.connection() as connection:
        while True:
            rows = await connection.fetch(
                query("memory", "idle"), scope.tenant_id, scope.user_id, days, _SHOWN_AT_ONCE, len(found)
            )
            found += [Session.from_row(record) for (record,) in rows]
            if len(rows) < _SHOWN_AT_ONCE:
                return found


async def prune_idle_sessions(
    memory_for: Callable[[Scope], MemoryManager], database: Database, settings: MemorySettings
) -> int:
    """Delete the sessions of everyone that are idle for longer than `auto_prune_days`; how many. Without it, none."""
    days = settings.auto_prune_days
    if days is None or database.server_info.is_replica:
        return 0
    async with database.connection() as connection:
        owners = await connection.fetch(query("memory", "owners_of_idle"), days)
    # One owner at a time, in the owner's own scope, as everything else that writes.
    pruned = 0
    for tenant_id, user_id in owners:
        pruned += await memory_for(Scope(tenant_id, user_id)).prune_old_sessions(days)
    if pruned:
        logger.info("Deleted {} sessions that were idle for over {} days", pruned, days)
    return pruned
