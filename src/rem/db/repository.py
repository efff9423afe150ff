"""Repository: reads and writes the rows of one entity type in a scope."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from uuid import UUID

import orjson
from pydantic import ValidationError

from rem.context import Scope
from rem.db.conditions import ConditionCompiler, Where, to_condition
from rem.db.sql import fill, identifier, query
from rem.db.table import get_table
from rem.db.write_plan import WritePlan, build_write_plan, list_private_texts, owner_condition, stage_rows
from rem.encryption.sealed_values import SEALED_JSON, SEALED_METADATA, SEALED_TEXTS, Place
from rem.errors import ConflictError, DeletedError, InvalidInputError, NotFoundError, PrivacyError
from rem.fair_map import map_fairly
from rem.models.entity import Entity

if TYPE_CHECKING:
    import asyncpg

    from rem.db.database import Connection, Executor

T = TypeVar("T", bound=Entity)
Outcome = Literal["inserted", "updated", "unchanged", "deleted"]
MIN_COPY_ROWS = 200
MIN_COPY_CHARS = 16_000_000
"""From this size on, rows travel by COPY: a large JSON parameter is slower, and holds at most 256 MB."""
MAX_WRITE_ATTEMPTS = 5
"""A write is repeated if another writer removed one of its rows in the meantime."""
MAX_PAGE_ROWS = 10_000


IMMUTABLE_CONTENT = {"messages": ("content", "tool_calls"), "documents": ("content",)}
"""Columns that a trigger protects against changes."""


class RowError(InvalidInputError):
    """A row of a batch is not valid. `row` is its index in the batch."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


class PrivateRowError(RowError, PrivacyError):
    """A row of a batch contains a secret or personal data that is not stored here."""


@dataclass(frozen=True, slots=True)
class WrittenRow:
    """The result for one entity of a batch. `deleted`: the stored row is deleted, so it was skipped."""

    id: UUID
    key: str
    outcome: Outcome


@dataclass(slots=True)
class _UpsertResult:
    """A result row of the upsert statement."""

    number: int
    id: UUID
    outcome: Any
    """An Outcome, or one of the keys of `_ROW_ERRORS`."""
    key: str
    record: dict[str, Any] | None


@dataclass(slots=True)
class WriteReport:
    """The results for the entities of a batch, in their order."""

    rows: list[WrittenRow] = field(default_factory=list)

    @property
    def counts(self) -> Counter[Outcome]:
        """Count the rows of each outcome."""
        return Counter(row.outcome for row in self.rows)

    @property
    def ids(self) -> list[UUID]:
        """Return the stored ids in the order of the batch."""
        return [row.id for row in self.rows]

    @property
    def skipped_keys(self) -> list[str]:
        """Return the keys that were not written, because their stored rows are deleted."""
        return [row.key for row in self.rows if row.outcome == "deleted"]


class Repository(Generic[T]):
    """The rows of one entity type. Reads see own and shared rows; writes change only rows of the scope."""

    def __init__(self, executor: Executor, model: type[T]) -> None:
        self._executor = executor
        self._model = model
        self._table = get_table(model)

    async def get(self, scope: Scope, entity_id: UUID) -> T:
        """Return the entity with this id. Raise NotFoundError if the scope sees no such row."""
        record = await self._executor.read(
            lambda connection: connection.fetchval(self._statement("get"), scope.tenant_id, scope.user_id, entity_id)
        )
        return self._to_entity(record, entity_id)

    async def find(
        self,
        scope: Scope,
        where: Where = None,
        *,
        order_by: str = "-created_at",
        limit: int = 100,
        offset: int = 0,
        with_deleted: bool = False,
    ) -> list[T]:
        """Return one page of the entities that meet a condition.

        Raise QueryLimitError if they have more than 64 MiB together, without the last one.
        """
        _check_page(limit, offset)
        parameters: list[Any] = [scope.tenant_id, scope.user_id, limit, offset, self._table.name]
        compiler = ConditionCompiler(self._table, parameters)
        statement = self._statement(
            "find",
            condition=compiler.compile(to_condition(where)),
            order=compiler.compile_order(order_by),
            lifetime=_build_lifetime(with_deleted),
        )
        rows = await self._executor.read(lambda connection: connection.fetch(statement, *parameters))
        return await map_fairly(lambda row: self._model.from_row(row[0]), rows)

    async def count(self, scope: Scope, where: Where = None, *, with_deleted: bool = False) -> int:
        """Count the entities that meet a condition."""
        parameters: list[Any] = [scope.tenant_id, scope.user_id]
        condition = ConditionCompiler(self._table, parameters).compile(to_condition(where))
        statement = self._statement("count", condition=condition, lifetime=_build_lifetime(with_deleted))
        return int(await self._executor.read(lambda connection: connection.fetchval(statement, *parameters)))

    async def upsert(self, scope: Scope, entity: T) -> T:
        """Store the entity, and return it as stored. Update the row with its id or its key, or else insert a new row.

        Fields that were not set keep their stored values. Raise ConflictError if the entity was read from the store and
        has changed there since. Raise DeletedError if the stored row is deleted.
        """
        async with self._executor.connection() as connection, self._hold_batch_lock(connection, scope, entity):
            row = await self._write_one(connection, scope, entity)
            if row.outcome == "deleted":
                raise DeletedError(
                    f"{row.key!r} was deleted, and a deleted memory stays deleted: restore it (id {row.id}), or erase "
                    "it before you store it again."
                )
            return await self._get_stored(connection, scope, row)

    async def upsert_many(self, scope: Scope, entities: Iterable[T]) -> WriteReport:
        """Store all entities as `upsert` does, or none of them. Skip deleted rows, and list them in the report."""
        batch = list(entities)
        groups: dict[tuple[frozenset[str], bool], list[int]] = defaultdict(list)
        for index, entity in enumerate(batch):
            groups[entity.fields_to_write, entity.revision is not None].append(index)
        written: dict[int, WrittenRow] = {}
        async with self._executor.connection() as connection, connection.transaction():
            await connection.execute(query("db/repository", "lock_batches"), scope.tenant_id, scope.user_id)
            for indexes in groups.values():
                with _renumber_row_errors(indexes):
                    rows = await self._write_group(connection, scope, [batch[index] for index in indexes])
                for index, row in zip(indexes, rows, strict=True):
                    written[index] = WrittenRow(row.id, row.key, row.outcome)
            report = WriteReport([written[index] for index in range(len(batch))])
            _refuse_repeated_ids(report)
        return report

    async def modify(self, scope: Scope, entity_id: UUID, change: Callable[[T], T | None]) -> T:
        """Read an entity, apply `change` and write it back, under a row lock. `change` may edit it in place."""
        async with self._executor.connection() as connection, connection.transaction():
            statement = self._statement("get_for_update", owner=owner_condition("r", scope.user_id is None))
            entity = self._to_entity(
                await connection.fetchval(statement, scope.tenant_id, scope.user_id, entity_id), entity_id
            )
            changed = change(entity) or entity
            if changed.id != entity_id:
                raise ConflictError("An id never changes.")
            changed._revision = entity.revision
            row = (await self._write_group(connection, scope, [changed], with_records=True))[0]
            return await self._get_stored(connection, scope, row)

    async def soft_delete(self, scope: Scope, entity_id: UUID) -> None:
        """Hide the entity from every read. It can be restored."""
        await self._update_own_rows("soft_delete", scope, [entity_id])

    async def restore(self, scope: Scope, entity_id: UUID) -> T:
        """Restore a deleted entity, and return it."""
        statement = self._statement("restore", owner=owner_condition("r", scope.user_id is None))
        async with self._executor.connection() as connection:
            record = await connection.fetchval(statement, scope.tenant_id, scope.user_id, entity_id)
        return self._to_entity(record, entity_id)

    async def hard_delete(self, scope: Scope, entity_id: UUID) -> None:
        """Remove the entity for good, deleted or not."""
        await self._update_own_rows("hard_delete", scope, [entity_id])

    async def _get_stored(self, connection: Connection, scope: Scope, row: _UpsertResult) -> T:
        """Return a written row as an entity. Read an unchanged row again: the statement saw an older version."""
        record = row.record or await connection.fetchval(self._statement("record"), scope.tenant_id, row.id)
        return self._to_entity(record, row.id)

    async def _update_own_rows(self, name: str, scope: Scope, ids: Sequence[UUID]) -> None:
        statement = self._statement(name, owner=owner_condition("r", scope.user_id is None))
        async with self._executor.connection() as connection:
            changed = await connection.fetch(statement, scope.tenant_id, scope.user_id, ids)
        if len(changed) != len(ids):
            raise self._not_found(ids[0])

    async def _write_one(self, connection: Connection, scope: Scope, entity: T) -> _UpsertResult:
        import asyncpg

        from rem.db.driver_errors import read_constraint_name

        try:
            return (await self._write_group(connection, scope, [entity], with_records=True))[0]
        except asyncpg.UniqueViolationError as error:
            # Another writer inserted the same id after our statement had looked for it. The second attempt updates it.
            # Inside a transaction no statement can follow a failed one.
            if connection.is_in_transaction() or not read_constraint_name(error).endswith("_pkey"):
                raise
            return (await self._write_group(connection, scope, [entity], with_records=True))[0]

    async def _write_group(
        self, connection: Connection, scope: Scope, entities: Sequence[T], *, with_records: bool = False
    ) -> list[_UpsertResult]:
        """Write entities that have the same fields set. All of them were read from the store, or none of them."""
        for row, entity in enumerate(entities):
            _refuse_foreign_owner(row, scope, entity)
        is_loaded, is_shared = entities[0].revision is not None, scope.user_id is None
        plan = build_write_plan(self._table, entities[0].fields_to_write, is_loaded, is_shared, with_records)
        for _ in range(MAX_WRITE_ATTEMPTS):
            results = await self._write_once(connection, scope, plan, entities)
            for index, result in enumerate(results):
                if result.outcome in _ROW_ERRORS:
                    raise _ROW_ERRORS[result.outcome](index, result.key)
            if await self._confirm_unchanged(connection, scope, entities, results):
                return results
        raise ConflictError("Other writers keep removing and storing the same rows: try again.")

    async def _write_once(
        self, connection: Connection, scope: Scope, plan: WritePlan, entities: Sequence[T]
    ) -> list[_UpsertResult]:
        row_ids = await self._find_target_ids(connection, scope, entities)
        rows = (
            self._seal(self._encode(index, entity, plan), plan, scope, row_ids[index])
            if row_ids
            else self._encode(index, entity, plan)
            for index, entity in enumerate(entities)
        )
        if len(entities) < MIN_COPY_ROWS and _count_chars(entities) < MIN_COPY_CHARS:
            named = [dict(zip(plan.staged, row, strict=True)) for row in rows]
            written = await connection.fetch(plan.from_json, scope.tenant_id, scope.user_id, named)
        else:
            written = await self._write_by_copy(connection, scope, plan, rows)
        return [_UpsertResult(*row) for row in written]

    @property
    def _is_sealed(self) -> bool:
        sealer, name = self._executor.sealer, self._table.name
        return sealer is not None and sealer.is_sealing and (name in SEALED_TEXTS or name in SEALED_JSON)

    @asynccontextmanager
    async def _hold_batch_lock(self, connection: Connection, scope: Scope, entity: T) -> AsyncIterator[None]:
        """Block other writers of the owner if texts are encrypted, because these are bound to the row that they get."""
        if not self._is_sealed or entity.revision is not None:
            yield
            return
        async with connection.transaction():
            await connection.execute(query("db/repository", "lock_batches"), scope.tenant_id, scope.user_id)
            yield

    async def _find_target_ids(self, connection: Connection, scope: Scope, entities: Sequence[T]) -> list[UUID]:
        """Return the ids of the rows that the entities will be written to; nothing if no text is encrypted."""
        if not self._is_sealed:
            return []
        if entities[0].revision is not None:
            return [entity.id for entity in entities]
        label = self._table.entity_type.key_fields[0]
        is_named = self._table.columns[label].sql_type == "text"
        labels = [getattr(entity, label) if is_named else None for entity in entities]
        owners = {f"owner_of_{alias}": owner_condition(alias, scope.user_id is None) for alias in ("by_id", "by_key")}
        rows = await connection.fetch(
            self._statement("target_ids", **owners),
            scope.tenant_id,
            scope.user_id,
            [entity.id for entity in entities],
            labels,
        )
        return [UUID(bytes=row["row_id"].bytes) for row in rows]

    def _seal(self, values: tuple[Any, ...], plan: WritePlan, scope: Scope, row_id: UUID) -> tuple[Any, ...]:
        """Encrypt the texts of an encoded row for the row that it is written to."""
        sealer = self._executor.sealer
        assert sealer is not None  # noqa: S101  # checked by the caller
        texts, documents = SEALED_TEXTS.get(self._table.name, ()), SEALED_JSON.get(self._table.name, ())
        sealed = list(values)
        for position, column in enumerate(plan.columns):
            if column.name in texts and sealed[position]:
                sealed[position] = sealer.seal_text(
                    self._table.name, column.name, sealed[position], scope.tenant_id, row_id
                )
            elif column.name in documents and sealed[position]:
                document = orjson.loads(orjson.dumps(sealed[position]))
                place = Place(scope.tenant_id, row_id, column.name)
                sealed[position] = orjson.Fragment(orjson.dumps(sealer.seal_json(document, place)))
            elif column.name == "metadata" and self._table.name in SEALED_METADATA:
                document = orjson.loads(orjson.dumps(sealed[position]))
                document = SEALED_METADATA[self._table.name](sealer, document, scope.tenant_id, row_id)
                sealed[position] = orjson.Fragment(orjson.dumps(document))
        return tuple(sealed)

    async def _confirm_unchanged(
        self, connection: Connection, scope: Scope, entities: Sequence[T], results: Sequence[_UpsertResult]
    ) -> bool:
        """Check the rows that were left unchanged. Return False if one of them is gone, so that the write is repeated.

        The write may have waited for another writer, who changed, deleted or removed the row. Mark deleted rows in
        `results`, and raise ConflictError for a changed row that the caller had read.
        """
        unchanged = {result.id: index for index, result in enumerate(results) if result.outcome == "unchanged"}
        if not unchanged:
            return True
        statement = self._statement("versions")
        stored = await connection.fetch(statement, scope.tenant_id, list(unchanged))
        for entity_id, updated_at, is_deleted in stored:
            index = unchanged[entity_id]
            revision = entities[index].revision
            if revision is not None and updated_at != revision:
                raise _create_stale_error(index, results[index].key)
            if is_deleted and entities[index].deleted_at is None:
                results[index].outcome = "deleted"
        return len(stored) == len(unchanged)

    async def _write_by_copy(
        self, connection: Connection, scope: Scope, plan: WritePlan, rows: Iterable[tuple[Any, ...]]
    ) -> list[asyncpg.Record]:
        async with stage_rows(connection, plan, rows):
            result = await connection.fetch(plan.from_staging, scope.tenant_id, scope.user_id)
            await self._refresh_statistics(connection, sum(row["outcome"] == "inserted" for row in result))
            return result

    async def _refresh_statistics(self, connection: Connection, inserted: int) -> None:
        """Analyze the tables after a large insert. Autovacuum is too late for an immediate second load."""
        for table, columns in (
            (self._table.name, "tenant_id, user_id, key, id"),
            ("kv_store", "tenant_id, user_id, entity_key, compact_key, entity_id"),
            ("edges", "tenant_id, src_id, dst_key"),
        ):
            name = f"rem.{identifier(table)}"
            if inserted and await connection.fetchval(
                query("db/repository", "has_outgrown_statistics"), name, inserted
            ):
                await connection.execute(fill("ANALYZE (SKIP_LOCKED) {table} ({columns})", table=name, columns=columns))

    def _encode(self, index: int, entity: T, plan: WritePlan) -> tuple[Any, ...]:
        values = entity.__dict__
        try:
            encoded = [values[column.name] for column in plan.columns]
            for position, encode in plan.encoders:
                encoded[position] = encode(encoded[position])
            self._apply_privacy(entity, plan, encoded)
        except PrivacyError as error:
            raise PrivateRowError(index, str(error)) from error
        except (ValueError, ValidationError) as error:
            raise RowError(index, str(error)) from error
        embedding = values.get("embedding")
        if embedding is not None and len(embedding) != self._executor.embedding_dimension:
            raise RowError(
                index,
                f"embedding: has {len(embedding)} dimensions, this database has "
                f"{self._executor.embedding_dimension} (EMBEDDING__DIMENSION).",
            )
        return (*encoded, (entity.__pydantic_private__ or {}).get("_revision"))

    def _apply_privacy(self, entity: T, plan: WritePlan, encoded: list[Any]) -> None:
        """Mask or refuse what the policy does not let into the database. This is the only way to write an entity."""
        policy = self._executor.privacy
        if policy.is_off:
            return
        if not policy.may_contain(list_private_texts(plan, encoded)):
            return
        # A stored content cannot change, so it is written back as it is, even if it is older than the policy.
        kept = IMMUTABLE_CONTENT.get(self._table.name, ()) if entity.revision is not None else ()
        for column in plan.private:
            value = encoded[column.position]
            if value and column.name not in kept:
                used = policy.for_identities if column.is_identity else policy
                encoded[column.position] = column.mask(used, value, column.name)

    def _statement(self, name: str, **parts: str) -> str:
        return fill(query("db/repository", name), table=f"rem.{identifier(self._table.name)}", **parts)

    def _to_entity(self, record: dict[str, Any] | None, entity_id: UUID) -> T:
        if record is None:
            raise self._not_found(entity_id)
        return self._model.from_row(record)

    def _not_found(self, entity_id: UUID) -> NotFoundError:
        return NotFoundError(f"{self._table.name} has no {entity_id}.")


def _count_chars(entities: Sequence[Entity]) -> int:
    return sum(len(value) for entity in entities for value in entity.__dict__.values() if isinstance(value, str))


def _build_lifetime(with_deleted: bool) -> str:
    return "true" if with_deleted else "r.deleted_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > now())"


def _check_page(limit: int, offset: int) -> None:
    if not 0 <= limit <= MAX_PAGE_ROWS:
        raise InvalidInputError(f"limit must be from 0 to {MAX_PAGE_ROWS:,}: fetch more with offset.")
    if not 0 <= offset < 2**63:
        raise InvalidInputError("offset must not be negative.")


def _refuse_foreign_owner(row: int, scope: Scope, entity: Entity) -> None:
    if "tenant_id" in entity.model_fields_set and entity.tenant_id != scope.tenant_id:
        raise RowError(row, "tenant_id: is not the tenant of the writer.")
    if "user_id" in entity.model_fields_set and entity.user_id != scope.user_id:
        owner = "is shared" if entity.user_id is None else "belongs to another user"
        raise RowError(
            row,
            f"user_id: the entity {owner}, and you can write only your own rows: use its owner's scope, or copy it.",
        )


def _refuse_repeated_ids(report: WriteReport) -> None:
    """Raise RowError if two rows of a batch were written to the same id. One statement sees only its own group."""
    seen: set[UUID] = set()
    for index, row in enumerate(report.rows):
        if row.id in seen:
            raise _ROW_ERRORS["duplicate"](index, row.key)
        seen.add(row.id)


def _create_stale_error(row: int, key: str) -> ConflictError:
    return ConflictError(
        f"{key!r} was changed or removed by another writer after you read it: read it again, or use `modify`."
    )


_ROW_ERRORS: dict[str, Callable[[int, str], Exception]] = {
    "bad_key": lambda row, key: RowError(
        row, "The key must have 1 to 1,024 bytes once normalised: use a short, readable label."
    ),
    "duplicate": lambda row, key: RowError(row, f"The key {key!r} appears more than once in the batch."),
    "stale": _create_stale_error,
}


class _renumber_row_errors:  # noqa: N801  # reads as a statement
    """Converts the row of a RowError from its index in a group to its index in the batch."""

    def __init__(self, indexes: Sequence[int]) -> None:
        self._indexes = indexes

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, RowError):
            error.row = self._indexes[error.row]
