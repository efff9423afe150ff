"""The tables that a query names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rem.db.store import Store


async def require_table(store: Store, table: str | None) -> None:
    """An error with the nearest name if there is no such table; one that another process made meanwhile is learnt."""
    if table is None or table in store.types.models:
        return
    async with store.executor.connection() as connection:
        await store.types.learn(connection)
    store.types.model(table)
