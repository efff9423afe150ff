"""Find, store, modify, delete and restore entities."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.db.conditions import And, Between, Compare, Condition, In, IsNull, Not, Or, Where
from rem.db.repository import RowError
from rem.db.store import Store
from rem.errors import (
    ConflictError,
    CorruptRowError,
    DeletedError,
    ImmutableError,
    InvalidInputError,
    NotFoundError,
)
from rem.models import Document, Edge, Message, Resource, Role, Session, User
from rem.models.field_types import utc_now

SMALL, BULK = 3, 250
"""Batches below and above the size from which COPY is used."""


async def _find_names(store: Store, where: Where = None, **options: Any) -> list[str]:
    return [resource.name for resource in await store.find(Resource, where, **{"order_by": "name", **options})]


async def _create_session(store: Store, length: int = 3) -> tuple[Session, list[Message]]:
    session = await store.upsert(Session(name="Chat"))
    messages = [
        await store.upsert(Message(session_id=session.id, message_index=index, role="user", content=f"Line {index}"))
        for index in range(length)
    ]
    return session, messages


class TestFind:
    @pytest.fixture
    async def filled(self, alice: Store) -> Store:
        await alice.upsert_many(
            [
                Resource(name="alpha", ordinal=1, tags=["red", "round"], metadata={"size": 9, "kind": "fruit"}),
                Resource(name="beta", ordinal=2, tags=["red"], metadata={"size": 10, "kind": "car", "done": True}),
                Resource(name="gamma", ordinal=3, uri="docs://g", metadata={"size": "10", "deep": {"er": [1, 2]}}),
                Resource(name="delta_100%", ordinal=10, category="x", timestamp="2025-01-01T12:00:00Z"),
            ]
        )
        return alice

    @pytest.mark.parametrize("limit", [1, 2, 3])
    async def test_pages_contain_every_row_once(self, alice: Store, limit: int) -> None:
        await alice.upsert_many([Resource(name=f"r{n}", category="same", timestamp=None) for n in range(7)])
        pages = [
            await alice.find(Resource, order_by="category, -timestamp", limit=limit, offset=offset)
            for offset in range(0, 8, limit)
        ]
        names = [resource.name for page in pages for resource in page]
        assert sorted(names) == [f"r{n}" for n in range(7)]

    async def test_conditions_select_rows(self, filled: Store) -> None:
        expected: list[tuple[Where, str]] = [
            (None, "alpha beta delta_100% gamma"),
            ({"name": "beta"}, "beta"),
            ({"name": ["beta", "gamma", "nobody"]}, "beta gamma"),
            ({"name": []}, ""),
            ({"uri": None, "category": None}, "alpha beta"),
            ({"ordinal": "3"}, "gamma"),
            ({"metadata.kind": "car"}, "beta"),
            ({"metadata.done": True}, "beta"),
            ({"metadata.missing": None}, "alpha beta delta_100% gamma"),
            (IsNull("uri"), "alpha beta delta_100%"),
            (Not(IsNull("uri")), "gamma"),
            (Compare("ordinal", ">=", 3), "delta_100% gamma"),
            (Compare("ordinal", "<>", 3), "alpha beta delta_100%"),
            (Compare("name", "<", "b"), "alpha"),
            (Between("ordinal", 2, 3), "beta gamma"),
            (In("ordinal", [1, 10]), "alpha delta_100%"),
            (Compare("name", "LIKE", "%a"), "alpha beta gamma"),
            (Compare("name", "LIKE", r"delta\_100\%"), "delta_100%"),
            (Compare("name", "LIKE", "ALPHA"), ""),
            (Compare("name", "ILIKE", "ALPHA"), "alpha"),
            (Compare("tags", "CONTAINS", "red"), "alpha beta"),
            (Compare("tags", "CONTAINS", ["red", "round"]), "alpha"),
            (Compare("metadata", "CONTAINS", {"kind": "car"}), "beta"),
            # 10 is more than 9 as a number, less as text; the text "10" is no number.
            (Compare("metadata.size", ">", 9), "beta"),
            (Compare("metadata.size", ">=", 9.0), "alpha beta"),
            (Compare("metadata.size", "=", "10"), "beta gamma"),
            (Between("metadata.size", 8.5, 9.5), "alpha"),
            (In("metadata.size", [9, 10]), "alpha beta"),
            (Compare("metadata.deep.er.1", "=", 2), "gamma"),
            (Or([Compare("name", "=", "alpha"), Compare("ordinal", "=", 10)]), "alpha delta_100%"),
            (And([Compare("tags", "CONTAINS", "red"), Not(Compare("name", "=", "alpha"))]), "beta"),
            (Or([]), ""),
            (And([]), "alpha beta delta_100% gamma"),
            (Compare("timestamp", "<=", datetime(2025, 1, 1, 12)), "delta_100%"),  # naive is UTC
            (Compare("timestamp", ">", "2025-01-01T13:00:00+02:00"), "delta_100%"),
            (Compare("name", "=", "' OR true --"), ""),
            (Compare("metadata.x'} OR true --", "=", "1"), ""),
        ]
        actual = [(where, " ".join(await _find_names(filled, where))) for where, _ in expected]
        assert actual == expected
        counted = [await filled.count(Resource, where) for where, _ in expected]
        assert counted == [len(names.split()) for _, names in expected]

    async def test_rows_have_the_requested_order(self, filled: Store) -> None:
        assert await _find_names(filled, order_by="-ordinal") == ["delta_100%", "gamma", "beta", "alpha"]
        assert await _find_names(filled, order_by="category, -name") == ["delta_100%", "gamma", "beta", "alpha"]
        assert await _find_names(filled, order_by="-metadata.kind, ordinal", limit=2) == ["alpha", "beta"]
        assert await _find_names(filled, order_by="-created_at, ordinal", limit=1, offset=1) == ["beta"]

    async def test_invalid_query_is_refused_with_advice(self, alice: Store) -> None:
        bad: list[tuple[Where, str]] = [
            ({"titel": "x"}, "resources has no field 'titel'. Its fields: id, .*name"),
            ({"name.first": "x"}, "name is text, so there is no 'name.first' in it"),
            ({"ordinal": "many"}, "ordinal: 'many' is not a bigint"),
            ({"id": "not-an-id"}, "id: 'not-an-id' is not a uuid"),
            (Compare("timestamp", ">", "yesterday"), "timestamp: 'yesterday' is not a timestamptz"),
            (Compare("name", "CONTAINS", "x"), "name is text: CONTAINS works on lists and JSON fields"),
            (Compare("name", "~", "x"), "There is no operator '~'"),  # type: ignore[arg-type]
            ({'name"; DROP TABLE rem.resources; --': 1}, "has no field"),
            ({"ordinal": 2**70}, "ordinal: 1180591620717411303424 is not a bigint"),
            ({"name": "a\0b"}, r"name: 'a\\x00b' is not a text"),
            ({"name": ["\ud800"]}, "name: .* is not a text"),
            (Compare("metadata", "CONTAINS", {"x": float("nan")}), "metadata: .* is not a jsonb"),
        ]
        for where, message in bad:
            with pytest.raises(InvalidInputError, match=message):
                await alice.find(Resource, where)
            with pytest.raises(InvalidInputError, match=message):
                await alice.count(Resource, where)
        for options in ({"limit": -1}, {"limit": 10_001}, {"offset": -1}, {"order_by": "nothing"}):
            with pytest.raises(InvalidInputError, match=r"limit|offset|no field 'nothing'"):
                await alice.find(Resource, **options)

    async def test_get_of_an_unknown_id_raises_not_found(self, alice: Store) -> None:
        missing = uuid4()
        with pytest.raises(NotFoundError, match=f"resources has no {missing}"):
            await alice.get(Resource, missing)


class TestUpsert:
    async def test_new_entity_is_stored_unchanged(self, alice: Store) -> None:
        given = Resource(name="Notes", content="Text", tags=["a"])
        stored = await alice.upsert(given)
        assert (stored.id, stored.name, stored.content, stored.tags) == (given.id, "Notes", "Text", ["a"])
        assert (stored.key, stored.tenant_id, stored.user_id) == ("notes", "default", alice.scope.user_id)
        assert await alice.get(Resource, stored.id) == stored

    async def test_same_key_updates_the_stored_row(self, alice: Store) -> None:
        first = await alice.upsert(Resource(name="Quarterly Report", content="Draft"))
        second = await alice.upsert(Resource(name="quarterly_report", content="Final"))
        assert (second.id, second.content, second.name) == (first.id, "Final", "quarterly_report")
        assert second.created_at == first.created_at
        assert second.updated_at > first.updated_at
        assert await alice.count(Resource) == 1

    async def test_same_id_renames_and_keeps_the_id(self, alice: Store) -> None:
        first = await alice.upsert(Resource(name="Old name", content="Text"))
        renamed = await alice.upsert(Resource(id=first.id, name="New name"))
        assert (renamed.id, renamed.key, renamed.content) == (first.id, "new-name", "Text")
        assert await alice.lookup("old-name") == []
        assert [entity.id for entity in await alice.lookup("new-name")] == [first.id]

    async def test_rename_to_a_taken_key_is_refused(self, alice: Store) -> None:
        first = await alice.upsert(Resource(name="first"))
        await alice.upsert(Resource(name="second"))
        with pytest.raises(ConflictError, match="already has this key"):
            await alice.upsert(Resource(id=first.id, name="Second"))
        assert await _find_names(alice) == ["first", "second"]

    async def test_fields_left_out_keep_their_stored_values(self, alice: Store) -> None:
        fields: dict[str, Any] = {
            "content": "Text", "category": "note", "tags": ["a"], "metadata": {"x": 1}, "ordinal": 3,
            "origin": "loader", "graph_edges": [Edge(dst="b", origin="loader")],
        }  # fmt: skip
        first = await alice.upsert(Resource(name="a", **fields))
        second = await alice.upsert(Resource(name="a", uri="docs://a"))
        assert {name: getattr(second, name) for name in fields} == {name: getattr(first, name) for name in fields}
        assert second.uri == "docs://a"
        emptied = await alice.upsert(Resource(name="a", content="", category=None, tags=[], metadata={}))
        assert (emptied.content, emptied.category, emptied.tags, emptied.metadata) == ("", None, [], {})

    async def test_lists_filled_after_creation_are_stored(self, alice: Store) -> None:
        resource = Resource(name="a")
        resource.tags.append("later")
        resource.metadata["size"] = 1
        resource.graph_edges.append(Edge(dst="b"))
        await alice.upsert(resource)
        again = Resource(name="a")
        again.related_entities.append("c")
        stored = await alice.upsert(again)
        assert (stored.tags, stored.metadata, stored.related_entities) == (["later"], {"size": 1}, ["c"])
        assert [edge.dst for edge in stored.graph_edges] == ["b"]

    async def test_second_upsert_changes_nothing(self, alice: Store) -> None:
        def resource() -> Resource:
            return Resource(name="a", content="x", tags=["t"], metadata={"n": 1.0}, graph_edges=[Edge(dst="b")])

        first = await alice.upsert(resource())
        assert await alice.upsert(resource()) == first
        assert (await alice.upsert_many([resource()])).counts == {"unchanged": 1}
        assert await alice.upsert(first) == first
        assert (await alice.upsert(resource())).updated_at == first.updated_at

    async def test_key_alone_finds_the_row(self, alice: Store) -> None:
        first = await alice.upsert(Resource(name="a", content="x"))
        assert await alice.upsert(Resource(name="a")) == first

    async def test_stale_write_is_refused(self, alice: Store) -> None:
        stored = await alice.upsert(Resource(name="a", content="1"))
        mine, theirs = await alice.get(Resource, stored.id), await alice.get(Resource, stored.id)
        theirs.content = "2"
        await alice.upsert(theirs)
        for content in ("3", "1", "2"):  # another text, the text that I read, the text that they wrote
            mine.content = content
            with pytest.raises(ConflictError, match="'a' was changed or removed by another writer after you read it"):
                await alice.upsert(mine)
        with pytest.raises(ConflictError, match="'a' was changed"):
            await alice.upsert_many([mine])
        assert (await alice.get(Resource, stored.id)).content == "2"

    async def test_write_of_an_erased_entity_is_refused(self, alice: Store) -> None:
        stored = await alice.upsert(Resource(name="a"))
        await alice.erase(stored)
        stored.content = "late"
        with pytest.raises(ConflictError, match="changed or removed by another writer"):
            await alice.upsert(stored)
        assert await alice.count(Resource, with_deleted=True) == 0

    async def test_edges_of_other_origins_survive_a_write_that_has_not_read_them(self, alice: Store) -> None:
        dreamt = Edge(dst="dream", origin="dreaming")
        await alice.upsert(Resource(name="a", graph_edges=[Edge(dst="old"), dreamt]))
        written = await alice.upsert(Resource(name="a", graph_edges=[Edge(dst="new")]))
        assert written.graph_edges == [Edge(dst="new"), dreamt]
        dreamt_anew = Edge(dst="another dream", origin="dreaming")
        written = await alice.upsert(Resource(name="a", origin="dreaming", graph_edges=[dreamt_anew]))
        assert written.graph_edges == [dreamt_anew, Edge(dst="new")]
        written = await alice.upsert(Resource(name="a", graph_edges=[]))
        assert written.graph_edges == [dreamt_anew]

    async def test_writer_that_read_the_edges_may_remove_them(self, alice: Store) -> None:
        read = await alice.upsert(Resource(name="a", graph_edges=[Edge(dst="b"), Edge(dst="c", origin="dreaming")]))
        read.graph_edges = []
        assert (await alice.upsert(read)).graph_edges == []


class TestUpsertMany:
    @pytest.mark.parametrize("size", [SMALL, BULK])
    async def test_report_has_the_outcome_of_each_row(self, alice: Store, size: int) -> None:
        def batch(content: str) -> list[Resource]:
            return [Resource(name=f"r {n}", content=content if n % 2 else "", tags=[str(n)]) for n in range(size)]

        first = await alice.upsert_many(batch("1"))
        assert first.counts == {"inserted": size}
        assert [row.key for row in first.rows] == [f"r-{n}" for n in range(size)]
        assert (await alice.upsert_many(batch("1"))).counts == {"unchanged": size}
        second = await alice.upsert_many(batch("2"))
        assert second.ids == first.ids
        assert [row.outcome for row in second.rows] == ["updated" if n % 2 else "unchanged" for n in range(size)]
        assert await alice.count(Resource, {"content": "2"}) == size // 2
        assert await alice.count(Resource) == size

    @pytest.mark.parametrize("size", [SMALL, BULK])
    async def test_rows_may_have_different_fields(self, alice: Store, size: int) -> None:
        await alice.upsert_many([Resource(name=f"r{n}", category="old", tags=["old"]) for n in range(size)])
        mixed = [
            Resource(name=f"r{n}", tags=["new"]) if n % 3 else Resource(name=f"r{n}", category=f"c{n}")
            for n in range(2 * size)
        ]
        report = await alice.upsert_many(mixed)
        assert [row.key for row in report.rows] == [f"r{n}" for n in range(2 * size)]
        assert report.counts == {"updated": size, "inserted": size}
        for n in (0, 1, size, size + 1):
            [stored] = await alice.find(Resource, {"name": f"r{n}"})
            old = ("old", ["old"]) if n < size else (None, [])
            assert (stored.category, stored.tags) == ((old[0], ["new"]) if n % 3 else (f"c{n}", old[1]))

    @pytest.mark.parametrize("size", [SMALL, BULK])
    @pytest.mark.parametrize("other_fields", [{}, {"category": "x"}])
    async def test_repeated_row_in_a_batch_is_refused(
        self, alice: Store, size: int, other_fields: dict[str, Any]
    ) -> None:
        batch = [Resource(name=f"The R{n}") for n in range(size)]
        with pytest.raises(RowError, match="'the-r1' appears more than once") as refused:
            await alice.upsert_many([*batch, Resource(name="the_r1", **other_fields)])
        assert refused.value.row in (1, size)
        assert await alice.count(Resource) == 0

    @pytest.mark.parametrize("size", [SMALL, BULK])
    async def test_one_bad_row_stores_none(self, alice: Store, size: int) -> None:
        resources = [Resource(name=f"r{n}") for n in range(size)]
        resources[1].metadata = {"x": 1}
        resources[-1].metadata = {"x": 1}
        resources[-1].metadata["x"] = float("nan")
        with pytest.raises(RowError, match="has nan at x") as refused:
            await alice.upsert_many(resources)
        assert refused.value.row == size - 1
        assert await alice.count(Resource) == 0

    @pytest.mark.parametrize("size", [SMALL, BULK])
    async def test_deleted_rows_are_reported_and_skipped(self, alice: Store, size: int) -> None:
        stored = await alice.upsert(Resource(name="r1", content="old"))
        await alice.delete(stored)
        report = await alice.upsert_many([Resource(name=f"r{n}", content="new") for n in range(size)])
        assert report.skipped_keys == ["r1"]
        assert report.counts == {"inserted": size - 1, "deleted": 1}
        assert report.ids[1] == stored.id
        assert (await alice.restore(Resource, stored.id)).content == "old"

    async def test_entities_must_have_one_type(self, alice: Store) -> None:
        with pytest.raises(InvalidInputError, match="takes entities of one type, not Resource, User"):
            await alice.upsert_many([Resource(name="a"), User(name="b")])
        assert (await alice.upsert_many([])).rows == []


class TestTransaction:
    async def test_error_undoes_the_whole_transaction(self, alice: Store) -> None:
        with pytest.raises(ZeroDivisionError):  # fails the transaction
            async with alice.transaction() as inside:
                await inside.upsert(Resource(name="a"))
                assert await inside.count(Resource) == 1
                assert await alice.count(Resource) == 0
                raise ZeroDivisionError
        assert await alice.count(Resource) == 0

    async def test_failed_part_keeps_the_rest(self, alice: Store) -> None:
        async with alice.transaction() as outer:
            await outer.upsert(Resource(name="a"))
            with pytest.raises(RowError):  # fails the savepoint
                async with outer.transaction() as inner:
                    await inner.upsert(Resource(name="b"))
                    await inner.upsert_many([Resource(name="c"), Resource(name="C")])
            await outer.upsert(Resource(name="d"))
        assert await _find_names(alice) == ["a", "d"]


class TestModify:
    async def test_change_may_edit_in_place_or_return_a_new_entity(self, alice: Store) -> None:
        stored = await alice.upsert(Resource(name="a", metadata={"n": 1}, tags=["t"]))

        def count_up(resource: Resource) -> None:
            resource.metadata["n"] += 1

        assert (await alice.modify(Resource, stored.id, count_up)).metadata == {"n": 2}
        changed = await alice.modify(Resource, stored.id, lambda r: r.model_copy(update={"content": "new"}))
        assert (changed.content, changed.metadata, changed.tags) == ("new", {"n": 2}, ["t"])

    async def test_never_changes_the_id(self, alice: Store) -> None:
        stored = await alice.upsert(Resource(name="a"))
        with pytest.raises(ConflictError, match="An id never changes"):
            await alice.modify(Resource, stored.id, lambda r: r.model_copy(update={"id": uuid4()}))

    async def test_needs_a_live_entity(self, alice: Store) -> None:
        stored = await alice.upsert(Resource(name="a"))
        await alice.delete(stored)
        for missing in (stored.id, uuid4()):
            with pytest.raises(NotFoundError):
                await alice.modify(Resource, missing, lambda r: r)


class TestDeletion:
    async def test_deleted_entity_is_hidden_until_restored(self, alice: Store) -> None:
        stored = await alice.upsert(Resource(name="a", content="x"))
        await alice.delete(stored)
        with pytest.raises(NotFoundError):
            await alice.get(Resource, stored.id)
        assert await alice.find(Resource) == []
        assert await alice.count(Resource) == 0
        assert await alice.lookup("a") == []
        [buried] = await alice.find(Resource, with_deleted=True)
        assert buried.deleted_at is not None
        assert await alice.count(Resource, with_deleted=True) == 1
        restored = await alice.restore(Resource, stored.id)
        assert (restored.id, restored.content, restored.deleted_at) == (stored.id, "x", None)
        assert await alice.lookup("a") == [restored]

    async def test_storing_a_deleted_entity_is_refused(self, alice: Store) -> None:
        stored = await alice.upsert(Resource(name="a", content="x"))
        await alice.delete(stored)
        [buried] = await alice.find(Resource, with_deleted=True)
        for again in (Resource(name="A"), Resource(id=stored.id, name="b"), stored, buried):
            with pytest.raises(DeletedError, match=f"restore it .id {stored.id}., or erase it before"):
                await alice.upsert(again)
        await alice.erase(stored)
        stored_again = await alice.upsert(Resource(name="a", content="y"))
        assert stored_again.id != stored.id

    async def test_second_delete_or_restore_is_refused(self, alice: Store) -> None:
        stored = await alice.upsert(Resource(name="a"))
        with pytest.raises(NotFoundError):
            await alice.restore(Resource, stored.id)
        await alice.delete(stored)
        with pytest.raises(NotFoundError):
            await alice.delete(stored)
        await alice.erase(stored)
        with pytest.raises(NotFoundError):
            await alice.erase(stored)
        with pytest.raises(NotFoundError):
            await alice.restore(Resource, stored.id)

    async def test_restore_is_refused_if_the_key_is_taken(self, alice: Store) -> None:
        first = await alice.upsert(Resource(name="a"))
        other = await alice.upsert(Resource(name="b"))
        await alice.delete(first)
        await alice.upsert(Resource(id=other.id, name="a"))
        with pytest.raises(ConflictError, match="already has this key"):
            await alice.restore(Resource, first.id)
        assert await alice.count(Resource) == 1

    async def test_expired_entity_is_hidden_from_every_read(self, alice: Store) -> None:
        soon = datetime.now(UTC) + timedelta(hours=1)
        await alice.upsert(Resource(name="kept", expires_at=soon))
        gone = await alice.upsert(Resource(name="gone", expires_at=datetime.now(UTC) - timedelta(seconds=1)))
        assert await _find_names(alice) == ["kept"]
        assert await alice.count(Resource) == 1
        assert [entity.key for entity in await alice.lookup("kept", "gone")] == ["kept"]
        with pytest.raises(NotFoundError):
            await alice.get(Resource, gone.id)
        with pytest.raises(NotFoundError):
            await alice.modify(Resource, gone.id, lambda r: r)


class TestSessions:
    async def test_sessions_and_messages_need_an_owner(self, shared: Store, alice: Store) -> None:
        with pytest.raises(InvalidInputError, match="have an owner: give a user"):
            await shared.upsert(Session(name="Chat"))
        session, _ = await _create_session(alice, 0)
        with pytest.raises(InvalidInputError, match="have an owner: give a user"):
            await shared.upsert(Message(session_id=session.id, message_index=0, role="user", content="Hi"))

    async def test_messages_belong_to_a_session_of_their_owner(self, alice: Store, bob: Store, rem: Rem) -> None:
        session, _ = await _create_session(alice, 1)
        strangers = [
            (bob, session.id),
            (alice, uuid4()),
            (rem.for_user("alice@example.com", tenant="other").store, session.id),
        ]
        for store, session_id in strangers:
            with pytest.raises(InvalidInputError, match="no such session of this user: create it before its messages"):
                await store.upsert(Message(session_id=session_id, message_index=7, role="user", content="Hi"))
        assert await alice.count(Message) == 1

    async def test_messages_are_found_by_session_and_index(self, alice: Store) -> None:
        session, messages = await _create_session(alice)
        assert await alice.lookup(f"session-{session.id}-msg-1") == [messages[1]]
        assert await alice.lookup(str(session.id)) == await alice.lookup("chat") == [session]

    async def test_content_never_changes(self, alice: Store, sql: asyncpg.Connection[asyncpg.Record]) -> None:
        session, (message, *_) = await _create_session(alice)
        document = await alice.upsert(Document(content="Text"))
        changes: list[Message | Document] = [
            Message(session_id=session.id, message_index=0, role="user", content="Other"),
            Message(session_id=session.id, message_index=0, role="assistant", content="Line 0"),
            Message(id=message.id, session_id=session.id, message_index=9, role="user", content="Line 0"),
            Document(id=document.id, content="Other"),
        ]
        for change in changes:
            with pytest.raises(ImmutableError, match="never changes: store a new one, or delete this one"):
                await alice.upsert(change)
        with pytest.raises(asyncpg.RestrictViolationError):
            await sql.execute("UPDATE messages SET content = 'Other'")
        assert await alice.get(Message, message.id) == message
        assert await alice.get(Document, document.id) == document

    async def test_other_fields_of_a_message_may_change(self, alice: Store) -> None:
        session, (message, *_) = await _create_session(alice)
        document = await alice.upsert(Document(content="Text"))
        changed = await alice.upsert(
            Message(session_id=session.id, message_index=0, role="user", content="Line 0", metadata={"seen": True})
        )
        assert (changed.id, changed.metadata) == (message.id, {"seen": True})
        vector = [1.0] * 384
        assert (await alice.upsert(Document(id=document.id, content="Text", embedding=vector))).embedding == vector

    async def test_delete_and_restore_of_a_session_include_exactly_its_messages(self, alice: Store) -> None:
        session, messages = await _create_session(alice)
        other = await alice.upsert(Session(name="Other"))
        await alice.upsert(Message(session_id=other.id, message_index=0, role="user", content="Elsewhere"))
        await alice.delete(messages[1])
        await alice.delete(session)
        assert [message.content for message in await alice.find(Message)] == ["Elsewhere"]
        assert await alice.lookup(f"session-{session.id}-msg-0") == []
        await alice.restore(Session, session.id)
        stored = await alice.find(Message, {"session_id": session.id}, order_by="message_index")
        assert [message.id for message in stored] == [messages[0].id, messages[2].id]
        assert (await alice.restore(Message, messages[1].id)).content == "Line 1"

    async def test_erased_session_leaves_no_rows(self, alice: Store, sql: asyncpg.Connection[asyncpg.Record]) -> None:
        session, _ = await _create_session(alice)
        await alice.erase(session)
        assert await alice.count(Message, with_deleted=True) == 0
        assert await sql.fetchval("SELECT count(*) FROM kv_store WHERE tenant_id <> ''") == 0


class TestOwners:
    async def test_users_write_own_rows_and_read_shared_rows(self, alice: Store, shared: Store) -> None:
        ours = await shared.upsert(Resource(name="Handbook", content="ours"))
        assert await alice.get(Resource, ours.id) == ours
        mine = await alice.upsert(Resource(name="Handbook", content="mine"))
        assert mine.id != ours.id
        assert await _find_names(alice) == ["Handbook", "Handbook"]
        assert await _find_names(shared) == ["Handbook"]
        ours.content = "changed"
        with pytest.raises(RowError, match="the entity is shared, and you can write only your own rows"):
            await alice.upsert(ours)
        for attempt in (
            alice.delete(ours),
            alice.erase(ours),
            alice.modify(Resource, ours.id, lambda r: r),
        ):
            with pytest.raises(NotFoundError):
                await attempt
        assert (await shared.get(Resource, ours.id)).content == "ours"

    async def test_owner_and_tenant_come_from_the_store(self, alice: Store) -> None:
        for fields in ({"user_id": "bob"}, {"user_id": None}, {"tenant_id": "other"}):
            with pytest.raises(RowError, match=r"user_id|tenant_id"):
                await alice.upsert(Resource.model_validate({"name": "a", **fields}))
        assert (await alice.upsert(Resource(name="a", user_id=alice.scope.user_id))).user_id == alice.scope.user_id

    @pytest.mark.parametrize("column", ["id", "tenant_id", "user_id"])
    async def test_identity_never_changes(
        self, alice: Store, column: str, sql: asyncpg.Connection[asyncpg.Record]
    ) -> None:
        await alice.upsert(Resource(name="a"))
        with pytest.raises(asyncpg.RestrictViolationError, match="never change"):
            await sql.execute(f"UPDATE resources SET {column} = '{UUID(int=1)}'")

    async def test_email_address_is_unique(self, alice: Store) -> None:
        await alice.upsert(User(name="Sarah", email="sarah@example.com"))
        with pytest.raises(ConflictError, match="Another user has this e-mail address"):
            await alice.upsert(User(name="Other", email="SARAH@example.com"))


async def test_storing_over_an_expired_row_makes_it_live_again(alice: Store) -> None:
    expired_at = utc_now() - timedelta(hours=1)
    first = await alice.upsert(Resource(name="parking spot", content="B12", expires_at=expired_at))
    assert await alice.lookup("parking-spot") == []
    again = await alice.upsert(Resource(name="parking spot", content="B12"))
    assert (again.id, again.expires_at) == (first.id, None)
    assert [entity.key for entity in await alice.lookup("parking-spot")] == ["parking-spot"]


async def test_deleted_session_refuses_messages(alice: Store) -> None:
    session = await alice.upsert(Session(name="talk"))
    message = await alice.upsert(Message(session_id=session.id, message_index=0, role=Role.USER, content="hello"))
    await alice.delete(session)
    with pytest.raises(ConflictError, match="session is deleted"):
        await alice.upsert(Message(session_id=session.id, message_index=1, role=Role.USER, content="again"))
    with pytest.raises(ConflictError, match="session is deleted"):
        await alice.restore(Message, message.id)
    await alice.restore(Session, session.id)
    assert (await alice.get(Message, message.id)).content == "hello"


async def test_corrupt_row_is_named(alice: Store, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    stored = await alice.upsert(Resource(name="broken"))
    await sql.execute("UPDATE resources SET graph_edges = '[7]'")
    with pytest.raises(CorruptRowError, match=rf"{stored.id} of resources .* \(in graph_edges\)"):
        await alice.lookup("broken")
    await alice.erase(stored)


async def test_list_field_matches_one_of_several_values(alice: Store) -> None:
    await alice.upsert(Resource(name="one", tags=["red", "blue"]))
    await alice.upsert(Resource(name="two", tags=["green"]))
    assert [entity.key for entity in await alice.find(Resource, {"tags": ["blue", "grey"]})] == ["one"]


async def test_loading_a_deleted_row_does_not_change_a_restored_one(alice: Store) -> None:
    stored = await alice.upsert(Resource(name="back", content="old"))
    await alice.delete(stored)
    dumped = Resource(id=stored.id, name="back", content="old", deleted_at=utc_now())
    await alice.restore(Resource, stored.id)
    await alice.upsert(Resource(name="back", content="new"))
    assert (await alice.upsert_many([dumped])).counts == {"unchanged": 1}
    assert (await alice.get(Resource, stored.id)).content == "new"


async def test_several_deleted_rows_may_have_the_same_key(alice: Store) -> None:
    tombstones = [Resource(name="gone", content=str(number), deleted_at=utc_now()) for number in range(3)]
    report = await alice.upsert_many(tombstones)
    assert report.counts == {"inserted": 3}
    assert report.ids == [entity.id for entity in tombstones]


async def test_few_large_rows_are_written_by_copy(alice: Store) -> None:
    report = await alice.upsert_many(Resource(name=f"large {number}", content="x" * 9_000_000) for number in range(2))
    assert report.counts == {"inserted": 2}
    assert len((await alice.get(Resource, report.ids[1])).content) == 9_000_000


async def test_large_whole_floats_round_trip(alice: Store) -> None:
    stored = await alice.upsert(Resource(name="float", metadata={"x": 1e19, "y": 1e25}))
    assert stored.metadata == {"x": 1e19, "y": 1e25}
    assert (await alice.upsert(Resource(name="float", metadata=stored.metadata))).metadata == stored.metadata


async def test_none_in_a_list_filter_matches_null(alice: Store) -> None:
    await alice.upsert(Resource(name="none"))
    await alice.upsert(Resource(name="word", category="None"))
    await alice.upsert(Resource(name="x", category="x"))
    assert await _find_names(alice, {"category": ["x", None]}) == ["none", "x"]
    assert await _find_names(alice, Compare("category", "=", None)) == ["none"]
    assert await _find_names(alice, Compare("category", "<>", None)) == ["word", "x"]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (Compare("metadata.x", "LIKE", 5), "LIKE compares text"),
        (Compare("ordinal", "ILIKE", "1%"), "ILIKE compares text"),
        (Compare("ordinal", "<", None), "is not a bigint"),
    ],
)
async def test_invalid_filters_are_refused(alice: Store, where: Where, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        await alice.find(Resource, where)


async def test_vector_filter_and_deep_condition_are_refused(alice: Store) -> None:
    with pytest.raises(InvalidInputError, match="is not a vector"):
        await alice.find(Document, {"embedding": [1.0]})
    deep: Condition = IsNull("category")
    for _ in range(3_000):
        deep = Not(deep)
    with pytest.raises(InvalidInputError, match="nested more than 100 levels"):
        await alice.find(Resource, deep)
