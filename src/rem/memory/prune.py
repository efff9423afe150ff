"""Pruning: sessions that nobody has written to for long go away, if the settings say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from loguru import logger

from rem.context import Scope
from rem.db.sql import query

if TYPE_CHECKING:
    from rem.db.database import Database
    from rem.memory.manager import MemoryManager
    from rem.settings import MemorySettings


async def prune_if_due(
    memory_for: Callable[[Scope], MemoryManager], database: Database, settings: MemorySettings
) -> int:
    """Delete the sessions of everyone that are idle for longer than `auto_prune_days`; how many. Without it, none."""
    days = settings.auto_prune_days
    if days is None or database.facts.is_replica:
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
