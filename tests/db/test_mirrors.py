"""kv_store and edges match the entity tables after every change."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import asyncpg
import pytest

from rem.app import Rem
from rem.db.maintenance import check_mirrors
from rem.db.store import Store
from rem.errors import InvalidInputError
from rem.models import Edge, Message, Moment, Resource, Session, User
from rem.settings import Settings

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def _read_keys(sql: Sql) -> list[tuple[str, str]]:
    return [
        tuple(row)
        for row in await sql.fetch(
            "SELECT entity_type, entity_key FROM kv_store WHERE tenant_id <> '' ORDER BY entity_type, entity_key"
        )
    ]


async def _read_edges(sql: Sql) -> list[tuple[str, str]]:
    return [tuple(row) for row in await sql.fetch("SELECT src_key, dst_key FROM edges ORDER BY src_key, ordinal")]


@pytest.fixture
async def report(alice: Store) -> Resource:
    """Store a resource with two edges."""
    edges = [Edge(dst="Sarah Chen", rel_type="authored_by", weight=0.5), Edge(dst="users/Bob")]
    return await alice.upsert(Resource(name="Quarterly Report", content="Numbers", graph_edges=edges))


async def test_insert_is_mirrored_completely(alice: Store, report: Resource, sql: Sql) -> None:
    rows = await sql.fetch(
        """SELECT tenant_id, user_id, entity_type, entity_key, compact_key, entity_id, key_rank, content_summary,
                  expires_at FROM kv_store WHERE tenant_id <> ''"""
    )
    assert [dict(row) for row in rows] == [
        {
            "tenant_id": "default",
            "user_id": alice.scope.user_id,
            "entity_type": "resources",
            "entity_key": "quarterly-report",
            "compact_key": "quarterlyreport",
            "entity_id": report.id,
            "key_rank": 1,
            "content_summary": "Numbers",
            "expires_at": None,
        }
    ]
    edge = await sql.fetchrow("SELECT * FROM edges WHERE ordinal = 1")
    assert edge is not None
    assert dict(edge) == {
        "tenant_id": "default",
        "src_type": "resources",
        "src_id": report.id,
        "ordinal": 1,
        "user_id": alice.scope.user_id,
        "src_key": "quarterly-report",
        "dst_key": "sarah-chen",
        "dst_type": None,
        "rel_type": "authored_by",
        "weight": 0.5,
        "origin": "user",
        "properties": "{}",
    }


async def test_every_change_of_an_entity_is_mirrored(rem: Rem, alice: Store, report: Resource, sql: Sql) -> None:
    edges = [("quarterly-report", "sarah-chen"), ("quarterly-report", "users/bob")]
    renamed_edges = [("annual-report", "sarah-chen"), ("annual-report", "users/bob")]
    expected: list[tuple[Any, list[tuple[str, str]], list[tuple[str, str]]]] = [
        (alice.upsert(Resource(id=report.id, name="Annual Report")), [("resources", "annual-report")], renamed_edges),
        (alice.delete(report), [], []),
        (alice.restore(Resource, report.id), [("resources", "annual-report")], renamed_edges),
        (alice.upsert(Resource(id=report.id, name="Quarterly Report")), [("resources", "quarterly-report")], edges),
        (
            alice.upsert(Resource(name="quarterly report", graph_edges=[Edge(dst="Nobody")])),
            [("resources", "quarterly-report")],
            [("quarterly-report", "nobody")],
        ),
        (alice.erase(report), [], []),
    ]
    for operation, keys, graph in expected:
        await operation
        assert (await _read_keys(sql), await _read_edges(sql)) == (keys, graph)
        assert (await check_mirrors(rem.database)).is_exact


async def test_rolled_back_change_leaves_the_mirrors_unchanged(
    rem: Rem, alice: Store, report: Resource, sql: Sql
) -> None:
    before = await _read_keys(sql), await _read_edges(sql)
    with pytest.raises(ZeroDivisionError):  # fails the transaction
        async with alice.transaction() as inside:
            await inside.upsert(Resource(id=report.id, name="Renamed", graph_edges=[]))
            await inside.upsert_many([Resource(name=f"r{n}", graph_edges=[Edge(dst="x")]) for n in range(210)])
            await inside.erase(report)
            raise ZeroDivisionError
    assert (await _read_keys(sql), await _read_edges(sql)) == before
    assert (await check_mirrors(rem.database)).is_exact


@pytest.mark.parametrize("size", [3, 250])
async def test_bulk_load_is_mirrored(rem: Rem, alice: Store, sql: Sql, size: int) -> None:
    for turn in range(2):
        await alice.upsert_many(
            [
                Resource(name=f"r{n:03}", content=f"{turn}", graph_edges=[Edge(dst=f"r{n + turn:03}"), Edge(dst="x")])
                for n in range(size)
            ]
        )
        assert await _read_keys(sql) == [("resources", f"r{n:03}") for n in range(size)]
        assert await _read_edges(sql) == [(f"r{n:03}", dst) for n in range(size) for dst in (f"r{n + turn:03}", "x")]
        assert (await check_mirrors(rem.database)).is_exact


async def test_truncate_removes_the_mirror_rows_of_the_table(
    rem: Rem, alice: Store, report: Resource, sql: Sql
) -> None:
    await alice.upsert(Moment(name="Kept", graph_edges=[Edge(dst="a")]))
    await sql.execute("TRUNCATE resources")
    assert (await _read_keys(sql), await _read_edges(sql)) == ([("moments", "kept")], [("kept", "a")])
    assert (await check_mirrors(rem.database)).is_exact


async def test_messages_are_mirrored_with_their_session(rem: Rem, alice: Store, sql: Sql) -> None:
    session = await alice.upsert(Session(name="Chat"))
    await alice.upsert_many(
        [Message(session_id=session.id, message_index=n, role="user", content=f"{n}") for n in range(3)]
    )
    prefix = f"session-{session.id}-msg-"
    all_keys = [("messages", f"{prefix}{n}") for n in range(3)]
    all_keys += sorted([("sessions", "chat"), ("sessions", str(session.id))])
    for operation, keys in (
        (alice.delete(session), []),
        (alice.restore(Session, session.id), all_keys),
        (alice.erase(session), []),
    ):
        await operation
        assert await _read_keys(sql) == keys
        assert (await check_mirrors(rem.database)).is_exact


async def test_hand_written_sql_is_mirrored(rem: Rem, alice: Store, report: Resource, sql: Sql) -> None:
    await alice.upsert_many([Resource(name=f"r{n}", graph_edges=[Edge(dst="x")]) for n in range(3)])
    statements = [
        "UPDATE resources SET name = name || ' II', content = repeat('long ', 100)",
        "UPDATE resources SET expires_at = now() + interval '1 day' WHERE name LIKE 'r%'",
        "UPDATE resources SET deleted_at = now() WHERE name LIKE 'r1%'",
        "UPDATE resources SET updated_at = updated_at",
        "UPDATE resources SET name = CASE name WHEN 'r0 II' THEN 'swapped' ELSE name END, graph_edges = '[]'",
        'UPDATE resources SET deleted_at = NULL, graph_edges = \'[{"dst": "y"}]\'',
        "INSERT INTO resources (name, tenant_id) SELECT 'by hand ' || n, 't' || n FROM generate_series(1, 9) n",
        "INSERT INTO resources (name) VALUES ('by hand') ON CONFLICT DO NOTHING",
        "WITH gone AS (DELETE FROM resources WHERE name LIKE 'r%' RETURNING name) "
        "INSERT INTO moments (name) TABLE gone",
        "MERGE INTO resources r USING (VALUES ('by hand'), ('merged')) AS v (name) ON r.name = v.name "
        "WHEN MATCHED THEN UPDATE SET name = 'matched' WHEN NOT MATCHED THEN INSERT (name) VALUES (v.name)",
        "DELETE FROM resources",
    ]
    for statement in statements:
        await sql.execute(statement)
        assert (await check_mirrors(rem.database)).is_exact, statement
    assert {key for _, key in await _read_keys(sql)} == {"r1-ii", "r2-ii"}


async def test_lookup_shows_every_change_immediately(rem: Rem, alice: Store, report: Resource, sql: Sql) -> None:
    await sql.execute("SET TIME ZONE 'Asia/Tokyo'")
    for change in (
        "metadata = '{\"n\": 1.50}'",
        "tags = '{a,b}'",
        "timestamp = '2025-01-01 12:00:00.123456+09'",
        "content = repeat('x', 10000)",
        "content = 'short again'",
        "valid_from = now(), confidence = 0.1",
        "graph_edges = '[]'",
    ):
        await sql.execute(f"UPDATE resources SET {change}")
        assert await alice.lookup("quarterly-report") == [await alice.get(Resource, report.id)], change
        assert (await check_mirrors(rem.database)).is_exact, change


async def test_two_rows_may_swap_their_names(rem: Rem, alice: Store, sql: Sql) -> None:
    first, second = await alice.upsert(Resource(name="a")), await alice.upsert(Resource(name="b"))
    async with alice.transaction() as inside:
        await inside.upsert(Resource(id=first.id, name="c"))
        await inside.upsert(Resource(id=second.id, name="a"))
        await inside.upsert(Resource(id=first.id, name="b"))
    assert [entity.id for entity in await alice.lookup("a", "b")] == [second.id, first.id]
    assert (await check_mirrors(rem.database)).is_exact


async def test_malformed_edges_block_nothing(rem: Rem, alice: Store, report: Resource, sql: Sql) -> None:
    malformed = """["text", 3, null, [], {}, {"dst": null}, {"dst": " - "}, {"dst": {"deep": 1}}, {"dst": 5},
        {"dst": "a", "weight": "heavy", "properties": null}, {"dst": "b", "properties": [1]},
        {"dst": "c", "rel_type": null, "origin": null, "weight": 2}]"""
    await sql.execute("UPDATE resources SET graph_edges = $1", malformed)
    rows = await sql.fetch("SELECT ordinal, dst_key, rel_type, weight, origin FROM edges ORDER BY ordinal")
    assert [tuple(row) for row in rows if row["dst_key"] in "abc"] == [
        (10, "a", "related_to", 1.0, "user"),
        (11, "b", "related_to", 1.0, "user"),
        (12, "c", "related_to", 2.0, "user"),
    ]
    assert (await check_mirrors(rem.database)).is_exact
    assert (await alice.upsert(Resource(name="Another"))).key == "another"
    await sql.execute("UPDATE resources SET graph_edges = '[]'")
    assert await _read_edges(sql) == []


@pytest.mark.parametrize("graph_edges", ["{}", "null", '"text"'])
async def test_edges_must_be_a_list(report: Resource, sql: Sql, graph_edges: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="graph_edges_is_list"):
        await sql.execute("UPDATE resources SET graph_edges = $1", graph_edges)


async def test_loops_and_repeated_dangling_edges_are_kept(rem: Rem, alice: Store, sql: Sql) -> None:
    loops = [Edge(dst="Loop"), Edge(dst="nowhere"), Edge(dst="Nowhere", weight=2.0), Edge(dst="nowhere")]
    stored = await alice.upsert(Resource(name="Loop", graph_edges=loops))
    assert stored.graph_edges == loops
    assert await _read_edges(sql) == [("loop", "loop"), *[("loop", "nowhere")] * 3]
    assert await alice.count_dangling_edges() == 3
    assert (await check_mirrors(rem.database)).is_exact


async def test_edge_whose_key_grows_too_long_is_refused(alice: Store, sql: Sql) -> None:
    with pytest.raises(InvalidInputError, match="An edge's dst must have 1 to 1,024 bytes once normalised"):
        await alice.upsert(Resource(name="a", graph_edges=[Edge(dst="ﷺ" * 300)]))
    assert await _read_keys(sql) == []


async def test_user_has_keys_for_name_email_and_id(rem: Rem, shared: Store, sql: Sql) -> None:
    sarah = await shared.upsert(User(name="Sarah", email="sarah@example.com"))
    zed = await shared.upsert(User(name="Zed", email="zed@example.com"))
    await shared.upsert(User(id=zed.id, name="sarah@example.com"))
    ranks = await sql.fetch(
        "SELECT entity_id, key_rank FROM kv_store WHERE entity_key = 'sarah@example.com' ORDER BY key_rank"
    )
    assert [tuple(row) for row in ranks] == [(zed.id, 1), (sarah.id, 2)]
    await shared.upsert(User(id=sarah.id, name="Sarah", email=None))
    assert [entity.id for entity in await shared.lookup("sarah@example.com", "zed@example.com")] == [zed.id, zed.id]
    same = await shared.upsert(User(name="same@example.com", email="Same@example.com"))
    keys = await sql.fetch("SELECT entity_key, key_rank FROM kv_store WHERE entity_id = $1 ORDER BY key_rank", same.id)
    assert [tuple(row) for row in keys] == [("same@example.com", 1), (str(same.id), 3)]
    assert (await check_mirrors(rem.database)).is_exact


async def test_check_finds_wrong_rows_and_rebuild_fixes_them(
    rem: Rem, alice: Store, report: Resource, sql: Sql
) -> None:
    await alice.upsert(User(name="Sarah", email="sarah@example.com"))
    await sql.execute("UPDATE kv_store SET entity_key = 'wrong' WHERE entity_key = 'quarterly-report'")
    await sql.execute("DELETE FROM edges WHERE ordinal = 2")
    check = await check_mirrors(rem.database)
    assert (check.keys, check.edges, check.wrong_keys, check.wrong_edges) == (4, 1, 2, 1)
    assert not check.is_exact
    rebuilt = await rem.rebuild_cache()
    assert (rebuilt.keys, rebuilt.edges) == (4, 2)
    assert (await check_mirrors(rem.database)).is_exact
    assert [entity.id for entity in await alice.lookup("quarterly-report")] == [report.id]


@pytest.mark.parametrize("written_after_the_crash", [False, True])
async def test_emptied_kv_store_is_rebuilt_before_the_first_lookup(
    rem: Rem, alice: Store, report: Resource, sql: Sql, settings: Settings, written_after_the_crash: bool
) -> None:
    # A crash of PostgreSQL empties an UNLOGGED table just so.
    await sql.execute("TRUNCATE kv_store")
    if written_after_the_crash:
        await sql.execute("INSERT INTO resources (name) VALUES ('Written early')")
    assert await alice.lookup("quarterly-report") == []
    async with Rem.open(settings) as reopened:
        entities = await reopened.for_user("alice@example.com").store.lookup("quarterly-report", "written early")
        assert entities[0] == report
        assert len(entities) == (2 if written_after_the_crash else 1)
        assert (await check_mirrors(reopened.database)).is_exact


async def test_concurrent_opens_with_an_empty_kv_store_all_work(
    rem: Rem, report: Resource, sql: Sql, settings: Settings
) -> None:
    async def open_and_ask() -> int:
        async with Rem.open(settings) as reopened:
            return len(await reopened.for_user("alice@example.com").store.lookup("quarterly-report"))

    await sql.execute("TRUNCATE kv_store")
    assert await asyncio.gather(*(open_and_ask() for _ in range(5))) == [1] * 5
    assert (await check_mirrors(rem.database)).is_exact


async def test_rebuild_during_writes_loses_nothing(rem: Rem, alice: Store) -> None:
    writers = [alice.upsert(Resource(name=f"r{n}", graph_edges=[Edge(dst="x")])) for n in range(40)]
    await asyncio.gather(*writers, *(rem.rebuild_cache() for _ in range(4)))
    report = await check_mirrors(rem.database)
    assert (report.keys, report.edges) == (40, 40)
    assert report.is_exact
