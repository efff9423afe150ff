"""Store: reads and writes the entities of one scope. The main interface for users of the library."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

import orjson

from rem.db.conditions import Where
from rem.db.repository import Repository, WriteReport
from rem.db.sql import query
from rem.errors import InvalidInputError
from rem.fair_map import map_fairly
from rem.models import Entity
from rem.models.field_types import check_text

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Connection, Executor
    from rem.db.type_registry import TypeRegistry

T = TypeVar("T", bound=Entity)
MAX_LABEL_CHARS = 4096
"""No key is made from a longer label, and normalising it would keep the server busy."""


class Match(NamedTuple):
    """An entity that LOOKUP returns for a key."""

    key: str
    table: str
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DanglingEdge:
    """An edge whose target does not exist (yet)."""

    src_type: str
    src_key: str
    rel_type: str
    dst: str


class Store:
    """The entities of one scope. It reads own and shared rows, and writes own rows."""

    def __init__(self, executor: Executor, scope: Scope, types: TypeRegistry) -> None:
        self._executor = executor
        self._scope = scope
        self._types = types

    @property
    def scope(self) -> Scope:
        """Return the scope of this store."""
        return self._scope

    @property
    def types(self) -> TypeRegistry:
        """Return the entity types that this store knows."""
        return self._types

    @property
    def executor(self) -> Executor:
        """Return the pool or transaction that runs the statements of this store."""
        return self._executor

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Store]:
        """Yield this store in one transaction. An error in the block undoes all its writes."""
        async with self._executor.transaction() as executor:
            yield Store(executor, self._scope, self._types)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Store]:
        """Yield this store for reading only. All reads see the state at the start of the block."""
        async with self._executor.snapshot() as executor:
            yield Store(executor, self._scope, self._types)

    async def lookup(self, *keys: str, table: str | None = None) -> list[Entity]:
        """Return the entities with these keys, in the order of the keys; own rows come before shared rows.

        A key is any spelling of a label: "Sarah Chen", "sarah-chen", "users/sarah@example.com". Keys without a match
        give nothing.
        """
        matches = await self.find_matches(keys, table)
        if any(match.table not in self._types.models for match in matches):
            # Another process has registered the type in the meantime.
            async with self._executor.connection() as connection:
                await self._types.refresh(connection)
        return await map_fairly(lambda match: self._types.get_model(match.table).from_row(match.record), matches)

    async def find_matches(self, keys: Sequence[str], table: str | None = None) -> list[Match]:
        """Return the matches of `lookup` as plain records, each with its key."""
        return await self._executor.read(lambda connection: self._fetch_matches(connection, keys, table))

    async def _fetch_matches(self, connection: Connection, keys: Sequence[str], table: str | None) -> list[Match]:
        if table is not None:
            self._types.get_model(table)
        for key in keys:
            try:
                check_text(key)
            except ValueError as error:
                raise InvalidInputError(f"The key {key!r} {error}.") from error
        keys = [key for key in keys if len(key) <= MAX_LABEL_CHARS]
        tenant_id, user_id = self._scope.tenant_id, self._scope.user_id
        if len(keys) == 1:
            # The common case, one key with one small row, needs only this simpler statement.
            exact = await connection.fetch(query("db/lookup", "exact"), tenant_id, user_id, keys[0], table)
            if len(exact) == 1 and exact[0]["record"] is not None:
                return [Match(keys[0], exact[0]["entity_type"], orjson.loads(exact[0]["record"]))]
        rows = await connection.fetch(query("db/lookup", "lookup"), tenant_id, user_id, keys, table)
        matches: list[tuple[int, str, dict[str, Any]]] = [row["match"] for row in rows]
        return [Match(keys[position - 1], entity_type, record) for position, entity_type, record in matches]

    async def get(self, model: type[T], entity_id: UUID) -> T:
        """Return the entity with this id. Raise NotFoundError if the scope sees no such row."""
        return await self._repository(model).get(self._scope, entity_id)

    async def find(
        self,
        model: type[T],
        where: Where = None,
        *,
        order_by: str = "-created_at",
        limit: int = 100,
        offset: int = 0,
        with_deleted: bool = False,
    ) -> list[T]:
        """Return one page of the entities of a type that meet a condition.

        Raise QueryLimitError if they have more than 64 MiB together, without the last one.
        """
        return await self._repository(model).find(
            self._scope, where, order_by=order_by, limit=limit, offset=offset, with_deleted=with_deleted
        )

    async def count(self, model: type[Entity], where: Where = None, *, with_deleted: bool = False) -> int:
        """Count the entities of a type that meet a condition."""
        return await self._repository(model).count(self._scope, where, with_deleted=with_deleted)

    async def upsert(self, entity: T) -> T:
        """Store an entity, and return it as stored. Update the row with its id or key, or else insert a new row."""
        return await self._repository(type(entity)).upsert(self._scope, entity)

    async def upsert_many(self, entities: Iterable[T]) -> WriteReport:
        """Store all entities of a batch, or none of them. They must have the same type."""
        batch = list(entities)
        if not batch:
            return WriteReport()
        models = {type(entity) for entity in batch}
        if len(models) > 1:
            names = ", ".join(sorted(model.__name__ for model in models))
            raise InvalidInputError(f"upsert_many takes entities of one type, not {names}: call it once for each.")
        return await self._repository(type(batch[0])).upsert_many(self._scope, batch)

    async def modify(self, model: type[T], entity_id: UUID, change: Callable[[T], T | None]) -> T:
        """Read an entity, apply `change` and write it back, under a row lock."""
        return await self._repository(model).modify(self._scope, entity_id, change)

    async def delete(self, entity: Entity) -> None:
        """Delete an entity. It can be restored."""
        await self._repository(type(entity)).soft_delete(self._scope, entity.id)

    async def restore(self, model: type[T], entity_id: UUID) -> T:
        """Restore a deleted entity, and return it."""
        return await self._repository(model).restore(self._scope, entity_id)

    async def erase(self, entity: Entity) -> None:
        """Remove an entity for good."""
        await self._repository(type(entity)).hard_delete(self._scope, entity.id)

    async def normalize_key(self, label: str) -> str:
        """Return the key of a label. Only the database implements the normalisation."""
        async with self._executor.connection() as connection:
            return str(await connection.fetchval(query("db/lookup", "key"), label))

    async def list_dangling_edges(self, limit: int = 100) -> Sequence[DanglingEdge]:
        """Return own edges whose target does not exist (yet)."""
        parameters = (self._scope.tenant_id, self._scope.user_id, limit)
        rows = await self._executor.read(
            lambda connection: connection.fetch(query("db/lookup", "dangling_edges"), *parameters)
        )
        return [DanglingEdge(*row) for row in rows]

    async def count_dangling_edges(self) -> int:
        """Count own edges whose target does not exist (yet)."""
        async with self._executor.connection() as connection:
            return int(
                await connection.fetchval(
                    query("db/lookup", "count_dangling_edges"), self._scope.tenant_id, self._scope.user_id
                )
            )

    def _repository(self, model: type[T]) -> Repository[T]:
        self._types.require_registered(model)
        return Repository(self._executor, model)
