"""Random operations of several owners: tables, kv_store, edges and lookup always agree with a simple model."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar
from unittest import mock
from uuid import UUID

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from rem.app import Rem
from rem.db import repository
from rem.db.maintenance import check_mirrors
from rem.db.repository import RowError
from rem.db.store import Store
from rem.errors import ConflictError, DeletedError, NotFoundError, RemError
from rem.models import Edge, Entity, Resource, User
from tests.conftest import _TEMPLATE, fresh_database, settings_for

pytestmark = pytest.mark.slow

R = TypeVar("R")

KEYS = {
    "Mood Disorder": "mood-disorder",
    "mood_disorder": "mood-disorder",
    "OpenAI": "open-ai",
    "openai": "openai",
    "A@x.org": "a@x.org",
    "Zoë": "zoë",
}
"""The labels in play, some of them two spellings of one key, with their keys."""
OWNERS = (("default", "alice"), ("default", "bob"), ("default", None), ("other", "alice"))
MODELS: tuple[type[Resource | User], ...] = (Resource, User)
_LOOKUPS = ("mood-disorder", "MoodDisorder", "moodDisorder", "open-ai", "openai", "a@x.org", "b@x.org", "zoë")
_LOOKUP_KEYS = {lookup: KEYS.get(lookup, lookup) for lookup in _LOOKUPS} | {
    "MoodDisorder": "mood-disorder",
    "moodDisorder": "mood-disorder",
}


@dataclass
class Row:
    """A row of the model."""

    owner: tuple[str, str | None]
    table: str
    id: UUID
    name: str
    email: str | None = None
    edges: list[tuple[str, str]] = field(default_factory=list)
    deleted: bool = False

    @property
    def key(self) -> str:
        return KEYS[self.name]

    @property
    def keys(self) -> dict[str, int]:
        """Return the keys that kv_store must have, with their ranks."""
        ranked: dict[str, int] = {self.key: 1}
        if self.table == "users":
            if self.email is not None:
                ranked.setdefault(self.email.lower(), 2)
            ranked.setdefault(str(self.id), 3)
        return ranked


@dataclass(frozen=True)
class Write:
    """An entity to store. Fields that are None are not set."""

    model: type[Resource | User]
    name: str
    email: str | None
    edges: tuple[tuple[str, str], ...] | None
    origin: str | None

    def entity(self, entity_id: UUID | None = None) -> Resource | User:
        given: dict[str, Any] = {"id": entity_id, "name": self.name, "origin": self.origin}
        if self.model is User:
            given["email"] = self.email
        if self.edges is not None:
            given["graph_edges"] = [Edge(dst=dst, origin=origin) for dst, origin in self.edges]
        return self.model.model_validate({name: value for name, value in given.items() if value is not None})


class Model:
    """The expected behaviour of the store in a few lines of Python."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def of(self, owner: tuple[str, str | None], table: str) -> list[Row]:
        return [row for row in self.rows if (row.owner, row.table) == (owner, table)]

    def write(self, owner: tuple[str, str | None], entity: Resource | User, write: Write) -> type[RemError] | None:
        """Store as `upsert` does; the error that it must raise, if any."""
        rows = self.of(owner, write.model.entity_type.table)
        key = KEYS[write.name]
        target = next((row for row in rows if row.id == entity.id), None)
        if target is None:
            target = next((row for row in rows if row.key == key and not row.deleted), None)
        if target is None and any(row.key == key for row in rows):
            return DeletedError
        if target is not None and target.deleted:
            return DeletedError
        new = (
            dataclasses.replace(target, name=write.name)
            if target
            else Row(owner, write.model.entity_type.table, entity.id, write.name)
        )
        if write.model is User and write.email is not None:
            new.email = write.email
        if write.edges is not None:
            replaced = {write.origin or "user"} | {origin for _, origin in write.edges}
            new.edges = [*write.edges, *(edge for edge in new.edges if edge[1] not in replaced)]
        return self._put(new)

    def restore(self, row: Row) -> type[RemError] | None:
        return self._put(dataclasses.replace(row, deleted=False)) if row.deleted else NotFoundError

    def _put(self, new: Row) -> type[RemError] | None:
        others = [row for row in self.of(new.owner, new.table) if row.id != new.id and not row.deleted]
        same_email = [row for row in others if row.email and new.email and row.email.lower() == new.email.lower()]
        if same_email or any(row.key == new.key for row in others):
            return ConflictError
        self.rows = [*(row for row in self.rows if row.id != new.id), new]
        return None

    def kv_store(self) -> set[tuple[Any, ...]]:
        return {
            (*row.owner, row.table, key, row.id, rank)
            for row in self.rows
            if not row.deleted
            for key, rank in row.keys.items()
        }

    def edges(self) -> set[tuple[Any, ...]]:
        return {
            (*row.owner, row.table, row.id, row.key, ordinal, KEYS[dst], origin)
            for row in self.rows
            if not row.deleted
            for ordinal, (dst, origin) in enumerate(row.edges, 1)
        }

    def lookup(self, owner: tuple[str, str | None], label: str) -> list[UUID]:
        """Return the ids for a label: by its key, or else without separators; own rows before shared rows."""
        key = _LOOKUP_KEYS[label]
        matches = self._find_matches(owner, lambda candidate: candidate == key) or self._find_matches(
            owner, lambda candidate: candidate.replace("-", "") == key.replace("-", "")
        )
        return [entity_id for *_, entity_id in sorted(matches)]

    def _find_matches(self, owner: tuple[str, str | None], matches: Any) -> list[tuple[bool, int, str, UUID]]:
        tenant, user = owner
        return [
            (row.owner[1] is None and user is not None, rank, row.table, row.id)
            for row in self.rows
            if row.owner in (owner, (tenant, None)) and not row.deleted
            for key, rank in row.keys.items()
            if matches(key)
        ]


_names = st.sampled_from(list(KEYS))
_owners = st.sampled_from(OWNERS)
_any_row = st.integers(min_value=0, max_value=30)
_edges = st.lists(st.tuples(_names, st.sampled_from(["user", "dreaming"])), max_size=3).map(tuple)
_writes = st.builds(
    Write,
    model=st.sampled_from(MODELS),
    name=_names,
    email=st.sampled_from([None, "a@x.org", "A@X.org", "b@x.org"]),
    edges=st.none() | _edges,
    origin=st.sampled_from([None, "dreaming"]),
)


class MirrorMachine(RuleBasedStateMachine):
    """Runs random operations on one database and on the model."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.loop = asyncio.Runner()
        self.base = fresh_database(_TEMPLATE)
        self.opened = Rem.open(settings_for(self.run(self.base.__aenter__())))
        self.rem = self.run(self.opened.__aenter__())

    def teardown(self) -> None:
        self.run(self.opened.__aexit__(None, None, None))
        self.run(self.base.__aexit__())
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        return self.loop.run(work)

    def store(self, owner: tuple[str, str | None]) -> Store:
        return self.rem.for_user(owner[1], tenant=owner[0]).store

    def attempt(self, work: Coroutine[Any, Any, Any], expected: type[RemError] | None) -> None:
        """Do it; it must fail just as the model says."""
        failure: RemError | None = None
        try:
            self.run(work)
        except RemError as error:
            note(repr(error))
            failure = error
        assert isinstance(failure, expected or type(None)), failure

    def pick(self, number: int) -> Row | None:
        return self.model.rows[number % len(self.model.rows)] if self.model.rows else None

    @rule(owner=_owners, write=_writes)
    def upsert(self, owner: tuple[str, str | None], write: Write) -> None:
        entity = write.entity()
        expected = self.model.write(owner, entity, write)
        self.attempt(self.store(owner).upsert(entity), expected)

    @rule(number=_any_row, write=_writes)
    def rename(self, number: int, write: Write) -> None:
        if row := self.pick(number):
            same_type = dataclasses.replace(write, model=_model_of(row))
            entity = same_type.entity(row.id)
            expected = self.model.write(row.owner, entity, same_type)
            self.attempt(self.store(row.owner).upsert(entity), expected)

    @rule(number=_any_row, edges=_edges)
    def replace_edges_after_reading(self, number: int, edges: tuple[tuple[str, str], ...]) -> None:
        if (row := self.pick(number)) and not row.deleted:
            given = [Edge(dst=dst, origin=origin) for dst, origin in edges]
            change = self.store(row.owner).modify(
                _model_of(row), row.id, lambda entity: entity.model_copy(update={"graph_edges": given})
            )
            self.attempt(change, None)
            row.edges = list(edges)

    @rule(number=_any_row)
    def delete(self, number: int) -> None:
        if row := self.pick(number):
            self.attempt(self.store(row.owner).delete(_stub(row)), NotFoundError if row.deleted else None)
            row.deleted = True

    @rule(number=_any_row)
    def restore(self, number: int) -> None:
        if row := self.pick(number):
            expected = self.model.restore(row)
            self.attempt(self.store(row.owner).restore(_model_of(row), row.id), expected)

    @rule(number=_any_row)
    def erase(self, number: int) -> None:
        if row := self.pick(number):
            self.run(self.store(row.owner).erase(_stub(row)))
            self.model.rows.remove(row)

    @rule(number=_any_row, stranger=_owners)
    def meddle(self, number: int, stranger: tuple[str, str | None]) -> None:
        if (row := self.pick(number)) and stranger != row.owner:
            store = self.store(stranger)
            self.attempt(store.delete(_stub(row)), NotFoundError)
            self.attempt(store.restore(_model_of(row), row.id), NotFoundError)
            self.attempt(store.erase(_stub(row)), NotFoundError)

    @rule(
        owner=_owners,
        model=st.sampled_from(MODELS),
        writes=st.lists(_writes, min_size=1, max_size=5),
        by_copy=st.booleans(),
    )
    def bulk(
        self, owner: tuple[str, str | None], model: type[Resource | User], writes: list[Write], by_copy: bool
    ) -> None:
        # Addresses would make the outcome depend on the order within the batch.
        writes = [dataclasses.replace(write, model=model, email=None) for write in writes]
        entities = [write.entity() for write in writes]
        keys = [KEYS[write.name] for write in writes]
        with mock.patch.object(repository, "MIN_COPY_ROWS", 1 if by_copy else 200):
            work = self.store(owner).upsert_many(entities)
            if len(set(keys)) < len(keys):
                self.attempt(work, RowError)
                return
            report = self.run(work)
        refusals = [self.model.write(owner, *pair) for pair in zip(entities, writes, strict=True)]
        assert [row.outcome == "deleted" for row in report.rows] == [bool(refusal) for refusal in refusals]

    @rule(owner=_owners, writes=st.lists(_writes, min_size=1, max_size=4), numbers=st.lists(_any_row, max_size=3))
    def roll_back(self, owner: tuple[str, str | None], writes: list[Write], numbers: list[int]) -> None:
        rows = [row for number in numbers if (row := self.pick(number)) and row.owner == owner]

        async def work() -> None:
            async with self.store(owner).transaction() as store:
                for write in writes:
                    await _try(store, lambda inner, write=write: inner.upsert(write.entity()))
                for row in rows:
                    await _try(store, lambda inner, row=row: inner.delete(_stub(row)))
                    await _try(store, lambda inner, row=row: inner.erase(_stub(row)))
                raise ZeroDivisionError

        try:
            self.run(work())
        except ZeroDivisionError:
            return
        raise AssertionError

    @rule()
    def rebuild(self) -> None:
        self.run(self.rem.rebuild_cache())

    @invariant()
    def tables_and_mirrors_are_as_the_model_says(self) -> None:
        self.run(self._compare())

    async def _compare(self) -> None:
        async with self.rem.database.connection() as sql:
            stored = await sql.fetch(
                """SELECT tenant_id, user_id, 'resources', id, name, key, NULL, graph_edges, deleted_at IS NOT NULL
                   FROM rem.resources
                   UNION ALL
                   SELECT tenant_id, user_id, 'users', id, name, key, email, graph_edges, deleted_at IS NOT NULL
                   FROM rem.users"""
            )
            kv_store = await sql.fetch(
                """SELECT tenant_id, user_id, entity_type, entity_key, entity_id, key_rank
                   FROM rem.kv_store WHERE tenant_id <> ''"""
            )
            edges = await sql.fetch(
                "SELECT tenant_id, user_id, src_type, src_id, src_key, ordinal, dst_key, origin FROM rem.edges"
            )
        tables = {
            row["id"]: (*row[:6], row[6], [(edge["dst"], edge["origin"]) for edge in row["graph_edges"]], row[8])
            for row in stored
        }
        assert tables == {
            row.id: (*row.owner, row.table, row.id, row.name, row.key, row.email, row.edges, row.deleted)
            for row in self.model.rows
        }
        assert {tuple(row) for row in kv_store} == self.model.kv_store()
        assert {tuple(row) for row in edges} == self.model.edges()
        assert (await check_mirrors(self.rem.database)).is_exact
        for owner in OWNERS:
            entities = await self.store(owner).lookup(*_LOOKUPS)
            expected = [entity_id for lookup in _LOOKUPS for entity_id in self.model.lookup(owner, lookup)]
            assert [entity.id for entity in entities] == expected
            visible = [entity for model in MODELS for entity in await self.store(owner).find(model)]
            assert all(entity in visible for entity in entities)


def _model_of(row: Row) -> type[Resource | User]:
    return Resource if row.table == "resources" else User


def _stub(row: Row) -> Entity:
    return _model_of(row)(id=row.id, name="stub")


async def _try(store: Store, work: Any) -> None:
    """Run a part of a transaction that may fail without the rest."""
    try:
        async with store.transaction() as inner:
            await work(inner)
    except RemError:
        return


def test_tables_mirrors_and_lookup_agree_with_a_plain_model() -> None:
    run_state_machine_as_test(
        MirrorMachine,
        settings=settings(
            max_examples=15,
            stateful_step_count=30,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
