"""Store: one scope's memory. Everything that a user of the library does goes through it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

import orjson

from rem.db.conditions import Where
from rem.db.repository import Repository, WriteReport
from rem.db.sql import query
from rem.errors import InvalidInputError
from rem.models import Entity
from rem.models.field_types import check_text

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Connection, Executor
    from rem.db.maintenance import DanglingEdge
    from rem.db.type_registry import TypeRegistry

T = TypeVar("T", bound=Entity)
MAX_LABEL_CHARS = 4096


class Match(NamedTuple):
    """A row that answers to a key."""

    asked: str
    table: str
    record: dict[str, Any]


class Store:
    """What a scope sees (its own rows and the tenant's shared ones) and may write (its own)."""

    def __init__(self, executor: Executor, scope: Scope, types: TypeRegistry) -> None:
        self._executor = executor
        self._scope = scope
        self._types = types

    @property
    def scope(self) -> Scope:
        """Whose memory this is."""
        return self._scope

    @property
    def types(self) -> TypeRegistry:
        """The entity types that this store can hold."""
        return self._types

    @property
    def executor(self) -> Executor:
        """Where this store's statements run: the pool, or one transaction."""
        return self._executor

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Store]:
        """The same store in one transaction: what is done through it happens as a whole or not at all."""
        async with self._executor.transaction() as executor:
            yield Store(executor, self._scope, self._types)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Store]:
        """The same store as it is at this moment, for reading only, whatever others write meanwhile."""
        async with self._executor.snapshot() as executor:
            yield Store(executor, self._scope, self._types)

    async def lookup(self, *keys: str, table: str | None = None) -> list[Entity]:
        """The entities that answer to the keys, in their order; the user's own before the shared ones.

        Keys are human labels ("Sarah Chen", "sarah-chen", "users/sarah@example.com"); what has no match gives nothing.
        """
        async with self._executor.connection() as connection:
            answers = await self._answers(connection, keys, table)
            if any(answer.table not in self._types.models for answer in answers):
                # Another process has registered it in the meantime.
                await self._types.refresh(connection)
        return [self._types.get_model(answer.table).from_row(answer.record) for answer in answers]

    async def find_matches(self, keys: Sequence[str], table: str | None = None) -> list[Match]:
        """What `lookup` finds, as plain rows, each with the key that it answers to."""
        async with self._executor.connection() as connection:
            return await self._answers(connection, keys, table)

    async def _answers(self, connection: Connection, keys: Sequence[str], table: str | None) -> list[Match]:
        if table is not None:
            self._types.get_model(table)
        for key in keys:
            try:
                check_text(key)
            except ValueError as error:
                raise InvalidInputError(f"The key {key!r} {error}.") from error
        # Nothing can have a key as long as these, and normalising them would keep the server busy.
        keys = [key for key in keys if len(key) <= MAX_LABEL_CHARS]
        tenant_id, user_id = self._scope.tenant_id, self._scope.user_id
        if len(keys) == 1:
            # One key with one small answer is the common case, and needs none of what the others do.
            exact = await connection.fetch(query("lookup", "exact"), tenant_id, user_id, keys[0], table)
            if len(exact) == 1 and exact[0]["record"] is not None:
                return [Match(keys[0], exact[0]["entity_type"], orjson.loads(exact[0]["record"]))]
        rows: list[tuple[int, str, dict[str, Any]]] = await connection.fetchval(
            query("lookup", "lookup"), tenant_id, user_id, keys, table
        )
        return [Match(keys[position - 1], found_in, record) for position, found_in, record in rows]

    async def get(self, model: type[T], entity_id: UUID) -> T:
        """The entity with this id."""
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
        """The entities of a type that fulfil a condition, a page at a time."""
        return await self._repository(model).find(
            self._scope, where, order_by=order_by, limit=limit, offset=offset, with_deleted=with_deleted
        )

    async def count(self, model: type[Entity], where: Where = None, *, with_deleted: bool = False) -> int:
        """How many entities of a type fulfil a condition."""
        return await self._repository(model).count(self._scope, where, with_deleted=with_deleted)

    async def upsert(self, entity: T) -> T:
        """Store an entity, over the one with its id or key if there is one; returns what is stored."""
        return await self._repository(type(entity)).upsert(self._scope, entity)

    async def upsert_many(self, entities: Iterable[T]) -> WriteReport:
        """Store many entities of one type, all or none of them."""
        batch = list(entities)
        if not batch:
            return WriteReport()
        kinds = {type(entity) for entity in batch}
        if len(kinds) > 1:
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise InvalidInputError(f"upsert_many takes entities of one type, not {names}: call it once for each.")
        return await self._repository(type(batch[0])).upsert_many(self._scope, batch)

    async def modify(self, model: type[T], entity_id: UUID, change: Callable[[T], T | None]) -> T:
        """Read, change and write back one entity, while nobody else can write it."""
        return await self._repository(model).modify(self._scope, entity_id, change)

    async def delete(self, entity: Entity) -> None:
        """Delete an entity; it can be restored."""
        await self._repository(type(entity)).soft_delete(self._scope, entity.id)

    async def restore(self, model: type[T], entity_id: UUID) -> T:
        """Bring a deleted entity back."""
        return await self._repository(model).restore(self._scope, entity_id)

    async def erase(self, entity: Entity) -> None:
        """Remove an entity for good."""
        await self._repository(type(entity)).hard_delete(self._scope, entity.id)

    async def normalize_key(self, label: str) -> str:
        """The key that a label becomes; only the database knows how."""
        async with self._executor.connection() as connection:
            return str(await connection.fetchval(query("lookup", "key"), label))

    async def list_dangling_edges(self, limit: int = 100) -> Sequence[DanglingEdge]:
        """The scope's own edges whose target nobody answers to (yet)."""
        from rem.db.maintenance import DanglingEdge

        async with self._executor.connection() as connection:
            rows = await connection.fetch(
                query("lookup", "dangling_edges"), self._scope.tenant_id, self._scope.user_id, limit
            )
        return [DanglingEdge(*row) for row in rows]

    async def count_dangling_edges(self) -> int:
        """How many of the scope's own edges have no target (yet)."""
        async with self._executor.connection() as connection:
            return int(
                await connection.fetchval(
                    query("lookup", "count_dangling_edges"), self._scope.tenant_id, self._scope.user_id
                )
            )

    def _repository(self, model: type[T]) -> Repository[T]:
        self._types.require_registered(model)
        return Repository(self._executor, model)
