"""Repository: the stored entities of one class, always in somebody's scope."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import ValidationError

from rem.context import Scope
from rem.db.conditions import ConditionCompiler, Where, to_condition
from rem.db.sql import fill, identifier, query
from rem.db.table import get_table
from rem.db.write_plan import WritePlan, build_write_plan, owner_condition, stage_rows
from rem.errors import ConflictError, DeletedError, InvalidInputError, NotFoundError
from rem.models.entity import Entity

if TYPE_CHECKING:
    import asyncpg

    from rem.db.database import Connection, Executor

T = TypeVar("T", bound=Entity)
Outcome = Literal["inserted", "updated", "unchanged", "deleted"]
_COPY_FROM_ROWS = 200
_COPY_FROM_CHARACTERS = 16_000_000
"""A JSON parameter holds 256 MB, and a large one is slower than COPY."""
_ATTEMPTS = 5
_LARGEST_PAGE = 10_000


class RowError(InvalidInputError):
    """A row of a batch is not valid; `row` is its place, from 0."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


@dataclass(frozen=True, slots=True)
class WrittenRow:
    """What became of one entity of a batch. Deleted: it was deleted before, so it was left alone."""

    id: UUID
    key: str
    outcome: Outcome


@dataclass(slots=True)
class _Result:
    """A row of the upsert statement."""

    number: int
    id: UUID
    outcome: Any
    key: str
    record: dict[str, Any] | None


@dataclass(slots=True)
class WriteReport:
    """What became of a batch, in its order."""

    rows: list[WrittenRow] = field(default_factory=list)

    @property
    def counts(self) -> Counter[Outcome]:
        """How many rows had which outcome."""
        return Counter(row.outcome for row in self.rows)

    @property
    def ids(self) -> list[UUID]:
        """The stored ids, in the order of the batch."""
        return [row.id for row in self.rows]

    @property
    def skipped_keys(self) -> list[str]:
        """The keys that were deleted before, and therefore not written."""
        return [row.key for row in self.rows if row.outcome == "deleted"]


class Repository(Generic[T]):
    """Reads see the user's own rows and the tenant's shared ones; writes touch only the scope's own rows."""

    def __init__(self, executor: Executor, model: type[T]) -> None:
        self._executor = executor
        self._model = model
        self._table = get_table(model)

    async def get(self, scope: Scope, entity_id: UUID) -> T:
        """The entity with this id; NotFoundError if there is none that the scope may see."""
        return self._found(await self._fetch_record("get", scope, entity_id), entity_id)

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
        """The entities that fulfil a condition, a page at a time."""
        _check_page(limit, offset)
        parameters: list[Any] = [scope.tenant_id, scope.user_id, limit, offset]
        compiler = ConditionCompiler(self._table, parameters)
        statement = self._statement(
            "find",
            condition=compiler.compile(to_condition(where)),
            order=compiler.compile_order(order_by),
            lifetime=_lifetime(with_deleted),
        )
        async with self._executor.connection() as connection:
            rows = await connection.fetch(statement, *parameters)
        return [self._model.from_row(record) for (record,) in rows]

    async def count(self, scope: Scope, where: Where = None, *, with_deleted: bool = False) -> int:
        """How many entities fulfil a condition."""
        parameters: list[Any] = [scope.tenant_id, scope.user_id]
        condition = ConditionCompiler(self._table, parameters).compile(to_condition(where))
        statement = self._statement("count", condition=condition, lifetime=_lifetime(with_deleted))
        async with self._executor.connection() as connection:
            return int(await connection.fetchval(statement, *parameters))

    async def upsert(self, scope: Scope, entity: T) -> T:
        """Store the entity: over the row with its id, else over the row with its key, else as a new one.

        Fields that were not set keep their stored values. An entity that was read from the store is refused if it has
        changed there since, so that no update is lost; one that was deleted stays deleted and raises DeletedError.
        """
        async with self._executor.connection() as connection:
            row = await self._write_one(connection, scope, entity)
            if row.outcome == "deleted":
                raise DeletedError(
                    f"{row.key!r} was deleted, and a deleted memory stays deleted: restore it (id {row.id}) or erase "
                    "it for good before storing it anew."
                )
            return await self._as_stored(connection, scope, row)

    async def upsert_many(self, scope: Scope, entities: Iterable[T]) -> WriteReport:
        """Store many entities as `upsert` would, all or none of them; what was deleted before is reported."""
        batch = list(entities)
        groups: dict[tuple[frozenset[str], bool], list[int]] = defaultdict(list)
        for index, entity in enumerate(batch):
            groups[entity.fields_to_write, entity.revision is not None].append(index)
        written: dict[int, WrittenRow] = {}
        async with self._executor.connection() as connection, connection.transaction():
            await connection.execute(query("repository", "take_turns"), scope.tenant_id, scope.user_id)
            for indexes in groups.values():
                with _row_numbers(indexes):
                    rows = await self._write_group(connection, scope, [batch[index] for index in indexes])
                for index, row in zip(indexes, rows, strict=True):
                    written[index] = WrittenRow(row.id, row.key, row.outcome)
            report = WriteReport([written[index] for index in range(len(batch))])
            _refuse_repetition(report)
        return report

    async def modify(self, scope: Scope, entity_id: UUID, change: Callable[[T], T | None]) -> T:
        """Read, change and write back one entity, while nobody else can write it; `change` may edit it in place."""
        async with self._executor.connection() as connection, connection.transaction():
            statement = self._statement("get_for_update", owner=owner_condition("r", scope.user_id is None))
            entity = self._found(
                await connection.fetchval(statement, scope.tenant_id, scope.user_id, entity_id), entity_id
            )
            changed = change(entity) or entity
            if changed.id != entity_id:
                raise ConflictError("An id never changes.")
            changed._revision = entity.revision
            row = (await self._write_group(connection, scope, [changed], with_records=True))[0]
            return await self._as_stored(connection, scope, row)

    async def soft_delete(self, scope: Scope, entity_id: UUID) -> None:
        """Hide the entity from every read; it can be restored."""
        await self._change_own("soft_delete", scope, [entity_id])

    async def restore(self, scope: Scope, entity_id: UUID) -> T:
        """Bring a deleted entity back, under its old id."""
        statement = self._statement("restore", owner=owner_condition("r", scope.user_id is None))
        async with self._executor.connection() as connection:
            record = await connection.fetchval(statement, scope.tenant_id, scope.user_id, entity_id)
        return self._found(record, entity_id)

    async def hard_delete(self, scope: Scope, entity_id: UUID) -> None:
        """Remove the entity for good, deleted or not."""
        await self._change_own("hard_delete", scope, [entity_id])

    async def _as_stored(self, connection: Connection, scope: Scope, row: _Result) -> T:
        """What a written row is now. One that was left alone is read anew: the write saw it as it was before."""
        record = row.record or await connection.fetchval(self._statement("record"), scope.tenant_id, row.id)
        return self._found(record, row.id)

    async def _change_own(self, name: str, scope: Scope, ids: Sequence[UUID]) -> None:
        statement = self._statement(name, owner=owner_condition("r", scope.user_id is None))
        async with self._executor.connection() as connection:
            done = await connection.fetch(statement, scope.tenant_id, scope.user_id, ids)
        if len(done) != len(ids):
            raise self._not_found(ids[0])

    async def _fetch_record(self, name: str, scope: Scope, entity_id: UUID) -> dict[str, Any] | None:
        async with self._executor.connection() as connection:
            record: dict[str, Any] | None = await connection.fetchval(
                self._statement(name), scope.tenant_id, scope.user_id, entity_id
            )
        return record

    async def _write_one(self, connection: Connection, scope: Scope, entity: T) -> _Result:
        import asyncpg

        try:
            return (await self._write_group(connection, scope, [entity], with_records=True))[0]
        except asyncpg.UniqueViolationError as error:
            # Somebody stored the same id between our look and our write: it is there now, and is written over. After a
            # failure a transaction can do no more.
            if connection.is_in_transaction() or not (error.constraint_name or "").endswith("_pkey"):
                raise
            return (await self._write_group(connection, scope, [entity], with_records=True))[0]

    async def _write_group(
        self, connection: Connection, scope: Scope, entities: Sequence[T], *, with_records: bool = False
    ) -> list[_Result]:
        """Write entities that have the same fields set and are all read from the store, or all not."""
        for row, entity in enumerate(entities):
            _refuse_foreign_owner(row, scope, entity)
        is_loaded, is_shared = entities[0].revision is not None, scope.user_id is None
        plan = build_write_plan(self._table, entities[0].fields_to_write, is_loaded, is_shared, with_records)
        for _ in range(_ATTEMPTS):
            results = await self._write_once(connection, scope, plan, entities)
            for index, result in enumerate(results):
                if result.outcome in _VERDICTS:
                    raise _VERDICTS[result.outcome](index, result.key)
            if await self._is_settled(connection, scope, entities, results):
                return results
        raise ConflictError("Others keep removing and storing the same rows: try again.")

    async def _write_once(
        self, connection: Connection, scope: Scope, plan: WritePlan, entities: Sequence[T]
    ) -> list[_Result]:
        rows = (self._encode(index, entity, plan) for index, entity in enumerate(entities))
        if len(entities) < _COPY_FROM_ROWS and _characters(entities) < _COPY_FROM_CHARACTERS:
            named = [dict(zip(plan.staged, row, strict=True)) for row in rows]
            written = await connection.fetch(plan.from_json, scope.tenant_id, scope.user_id, named)
        else:
            written = await self._write_by_copy(connection, scope, plan, rows)
        return [_Result(*row) for row in written]

    async def _is_settled(
        self, connection: Connection, scope: Scope, entities: Sequence[T], results: Sequence[_Result]
    ) -> bool:
        """Whether rows that were left unchanged really are as they were asked to be.

        The write may have waited for somebody else's: then the row is another version, deleted, or gone.
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
                raise _stale(index, results[index].key)
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
        """Autovacuum comes too late for who loads again at once, and without statistics the plans are quadratic."""
        for table, columns in (
            (self._table.name, "tenant_id, user_id, key, id"),
            ("kv_store", "tenant_id, user_id, entity_key, compact_key, entity_id"),
            ("edges", "tenant_id, src_id, dst_key"),
        ):
            name = f"rem.{identifier(table)}"
            if inserted and await connection.fetchval(query("repository", "has_outgrown_statistics"), name, inserted):
                await connection.execute(fill("ANALYZE (SKIP_LOCKED) {table} ({columns})", table=name, columns=columns))

    def _encode(self, index: int, entity: T, plan: WritePlan) -> tuple[Any, ...]:
        values = entity.__dict__
        try:
            encoded = [values[column.name] for column in plan.columns]
            for position, encode in plan.encoders:
                encoded[position] = encode(encoded[position])
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

    def _statement(self, name: str, **parts: str) -> str:
        return fill(query("repository", name), table=f"rem.{identifier(self._table.name)}", **parts)

    def _found(self, record: dict[str, Any] | None, entity_id: UUID) -> T:
        if record is None:
            raise self._not_found(entity_id)
        return self._model.from_row(record)

    def _not_found(self, entity_id: UUID) -> NotFoundError:
        return NotFoundError(f"{self._table.name} has no {entity_id}.")


def _characters(entities: Sequence[Entity]) -> int:
    return sum(len(value) for entity in entities for value in entity.__dict__.values() if isinstance(value, str))


def _lifetime(with_deleted: bool) -> str:
    return "true" if with_deleted else "r.deleted_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > now())"


def _check_page(limit: int, offset: int) -> None:
    if not 0 <= limit <= _LARGEST_PAGE:
        raise InvalidInputError(f"limit must be from 0 to {_LARGEST_PAGE:,}: fetch more with offset.")
    if not 0 <= offset < 2**63:
        raise InvalidInputError("offset must not be negative.")


def _refuse_foreign_owner(row: int, scope: Scope, entity: Entity) -> None:
    if "tenant_id" in entity.model_fields_set and entity.tenant_id != scope.tenant_id:
        raise RowError(row, "tenant_id: belongs to another tenant than the one that writes.")
    if "user_id" in entity.model_fields_set and entity.user_id != scope.user_id:
        owner = "is shared" if entity.user_id is None else "belongs to another user"
        raise RowError(
            row,
            f"user_id: the entity {owner}, and you write your own rows: write it in its owner's scope, or copy it.",
        )


def _refuse_repetition(report: WriteReport) -> None:
    """Rows with different fields set are written apart, so that only the whole report shows a repetition."""
    seen: set[UUID] = set()
    for index, row in enumerate(report.rows):
        if row.id in seen:
            raise _VERDICTS["duplicate"](index, row.key)
        seen.add(row.id)


def _stale(row: int, key: str) -> ConflictError:
    return ConflictError(
        f"{key!r} was changed or removed by somebody else since it was read: read it again, or use `modify`."
    )


_VERDICTS: dict[str, Callable[[int, str], Exception]] = {
    "bad_key": lambda row, key: RowError(
        row, "The key must have 1 to 1,024 bytes once normalised: use a short, readable label."
    ),
    "duplicate": lambda row, key: RowError(row, f"The key {key!r} appears more than once in the batch."),
    "stale": _stale,
}


class _row_numbers:  # noqa: N801  # reads as a statement
    """Inside a group, rows count from 0; outside they have their place in the whole batch."""

    def __init__(self, indexes: Sequence[int]) -> None:
        self._indexes = indexes

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, RowError):
            error.row = self._indexes[error.row]
