"""LOOKUP returns rows in the order of the keys, and notes about missing keys."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.errors import InvalidInputError, QuerySyntaxError
from rem.models import Entity, Moment, Resource, Session, User
from rem.models.field_types import utc_now
from rem.query.tree import Lookup
from tests.query.stub_executor import query_keys, run_query


class Planet(Entity, table="planets"):
    name: str


async def test_row_has_table_key_asked_and_record(alice: Store) -> None:
    stored = await alice.upsert(User(name="Sarah Chen", email="sarah@example.com", summary="Runs the platform."))
    result = await run_query(alice, "LOOKUP users/SARAH@example.com")
    assert result.verb == "LOOKUP"
    assert result.notes == ()
    (row,) = result.list_rows()
    assert (row["table"], row["key"], row["asked"]) == ("users", "sarah-chen", "users/SARAH@example.com")
    assert row["record"]["id"] == str(stored.id)
    assert row["record"]["summary"] == "Runs the platform."
    assert User.from_row(row["record"]) == stored


async def test_matches_come_in_the_order_of_the_keys(alice: Store) -> None:
    await alice.upsert_many([Resource(name=f"r {n}") for n in range(4)])
    result = await run_query(alice, 'LOOKUP "r 3", nobody, r_1, R-3, "r 0"')
    assert [(row["asked"], row["key"]) for row in result.list_rows()] == [
        ("r 3", "r-3"),
        ("r_1", "r-1"),
        ("R-3", "r-3"),
        ("r 0", "r-0"),
    ]
    assert [(step.name, step.rows) for step in result.steps] == [("parse", None), ("lookup", 4)]


async def test_note_lists_missing_keys_and_proposes_fuzzy(alice: Store) -> None:
    await alice.upsert(Resource(name="known"))
    result = await run_query(alice, 'LOOKUP known, sara, "say \\"hi\\""')
    assert result.count == 1
    (note,) = result.notes
    assert (note.code, note.text) == ("missing_key", 'No match for sara, say "hi". FUZZY "sara" finds similar keys.')
    many = await run_query(alice, Lookup(tuple(f"k{n}" for n in range(9))))
    (note,) = many.notes
    assert note.text == 'No match for k0, k1, k2, k3, k4 and 4 more. FUZZY "k0" finds similar keys.'
    (note,) = (await run_query(alice, Lookup(("x" * 1_000_000,)))).notes
    assert len(note.text) < 300


async def test_own_rows_come_before_shared_rows_without_other_users_rows(
    alice: Store, bob: Store, shared: Store, rem: Rem
) -> None:
    await shared.upsert(Resource(name="Handbook", content="ours"))
    await alice.upsert(Resource(name="Handbook", content="mine"))
    await bob.upsert(Resource(name="Handbook", content="bob's"))
    elsewhere = rem.for_user("alice@example.com", tenant="elsewhere").store
    contents = [row["record"]["content"] for row in (await run_query(alice, "LOOKUP handbook")).list_rows()]
    assert contents == ["mine", "ours"]
    assert [row["record"]["content"] for row in (await run_query(shared, "LOOKUP handbook")).list_rows()] == ["ours"]
    assert (await run_query(elsewhere, "LOOKUP handbook")).count == 0


async def test_table_restricts_matches_and_unknown_table_is_an_error(alice: Store) -> None:
    await alice.upsert(Resource(name="Apollo"))
    await alice.upsert(Moment(name="Apollo"))
    assert [row["table"] for row in (await run_query(alice, "LOOKUP apollo")).list_rows()] == ["moments", "resources"]
    assert [row["table"] for row in (await run_query(alice, "LOOKUP apollo FROM resources")).list_rows()] == [
        "resources"
    ]
    with pytest.raises(InvalidInputError, match=r"There is no table 'resource'\. Did you mean 'resources'\?"):
        await run_query(alice, "LOOKUP apollo FROM resource")


async def test_table_created_by_another_process_is_known(alice: Store, rem: Rem) -> None:
    await rem.register(Planet)
    await alice.upsert(Planet(name="Mars"))
    del alice.types.models["planets"]
    assert await query_keys(alice, "LOOKUP mars IN planets") == ["mars"]


async def test_large_and_uncached_rows_are_complete(alice: Store) -> None:
    await alice.upsert(Resource(name="Long", content="x" * 50_000))
    session = await alice.upsert(Session(name="Chat"))
    result = await run_query(alice, f'LOOKUP long, "{session.id}"')
    assert len(result.list_rows()[0]["record"]["content"]) == 50_000
    assert result.list_rows()[1]["key"] == "chat"


async def test_deleted_and_expired_rows_are_not_found(alice: Store) -> None:
    gone = await alice.upsert(Resource(name="gone"))
    await alice.delete(gone)
    await alice.upsert(Resource(name="lapsed", expires_at=utc_now() - timedelta(seconds=1)))
    assert (await run_query(alice, "LOOKUP gone, lapsed")).count == 0


async def test_invalid_key_is_an_error(alice: Store) -> None:
    with pytest.raises(QuerySyntaxError, match="LOOKUP"):
        await run_query(alice, "LOOKPU x")
    with pytest.raises(InvalidInputError, match="NUL"):
        await run_query(alice, Lookup(("a\0b",)))
