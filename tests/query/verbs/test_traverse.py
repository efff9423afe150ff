"""TRAVERSE follows edges breadth-first within the scope, and returns each entity once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.errors import InvalidInputError
from rem.models import Edge, Entity, Moment, Resource, User
from rem.models.field_types import utc_now
from rem.models.results import Hit, Result
from rem.query.parser import parse_query
from rem.query.tree import Lookup, Traverse
from rem.query.verbs.traverse import run_traverse
from tests.query.stub_executor import query_keys, run_query


def node(name: str, *targets: str | Edge, **fields: Any) -> Resource:
    edges = [target if isinstance(target, Edge) else Edge(dst=target, rel_type="links_to") for target in targets]
    return Resource(name=name, graph_edges=edges, **fields)


def to(dst: str, rel_type: str = "links_to", weight: float = 1.0, **properties: Any) -> Edge:
    return Edge(dst=dst, rel_type=rel_type, weight=weight, properties=properties)


async def put(store: Store, *nodes: Entity) -> None:
    for kind in {type(entity) for entity in nodes}:
        await store.upsert_many([entity for entity in nodes if type(entity) is kind])


async def depths(store: Store, query: str) -> dict[str, int]:
    return {row["key"]: row["depth"] for row in (await run_query(store, query)).list_rows()}


async def test_row_shows_path_depth_and_last_edge(alice: Store) -> None:
    await put(
        alice, node("a", to("b", "manages", 0.5)), node("b", to("c", "mentors", 0.25)), node("c", content="the end")
    )
    result = await run_query(alice, "TRAVERSE FROM a DEPTH 2")
    assert result.verb == "TRAVERSE"
    assert result.notes == ()
    b, c = result.list_rows()
    assert {name: b[name] for name in b if name not in ("record", "happened_at")} == {
        "table": "resources",
        "key": "b",
        "depth": 1,
        "path": ["a", "b"],
        "rel_type": "manages",
        "weight": 0.5,
        "direction": "out",
    }
    assert (c["depth"], c["path"], c["rel_type"], c["weight"]) == (2, ["a", "b", "c"], "mentors", 0.25)
    assert c["record"]["content"] == "the end"
    assert [step.name for step in result.steps] == ["parse", "lookup", "traverse"]
    assert await query_keys(alice, "TRAVERSE a") == ["b"]


async def test_each_node_is_returned_once_at_its_smallest_depth(alice: Store) -> None:
    await put(
        alice,
        node("a", "a", "b", "c", "b"),
        node("b", "d", "a"),
        node("c", "d", "e"),
        node("d", "e", "a", "f"),
        node("e", "f", "b"),
        node("f", "a"),
    )
    assert await depths(alice, "TRAVERSE a DEPTH 100") == {"b": 1, "c": 1, "d": 2, "e": 2, "f": 3}
    assert await depths(alice, "TRAVERSE a DEPTH 2") == {"b": 1, "c": 1, "d": 2, "e": 2}
    assert await depths(alice, "TRAVERSE a, d DEPTH 100") == {"b": 1, "c": 1, "e": 1, "f": 1}


async def test_row_shows_heaviest_edge_at_smallest_depth(alice: Store) -> None:
    await put(
        alice,
        node("a", to("b", weight=0.1), to("c", weight=0.9), to("d", "weak", 0.2), to("d", "strong", 0.3)),
        node("b", to("e", "heavy", 0.8)),
        node("c", to("e", "light", 0.7), to("b", weight=5)),
        node("d"),
        node("e"),
    )
    rows = {row["key"]: row for row in (await run_query(alice, "TRAVERSE a DEPTH 2")).list_rows()}
    assert (rows["e"]["rel_type"], rows["e"]["path"]) == ("heavy", ["a", "b", "e"])
    assert (rows["b"]["depth"], rows["b"]["weight"]) == (1, 0.1)
    assert rows["d"]["rel_type"] == "strong"


async def test_order_by_limit_and_their_errors(alice: Store) -> None:
    await put(
        alice,
        node("start", to("x", weight=0.2), to("m", weight=0.9), to("b", weight=0.2)),
        node("x", to("deep", weight=3), content="1", category="two", metadata={"rank": 10}),
        node("m", content="3", ordinal=7, metadata={"rank": 9}),
        node("b", content="2", category="one"),
        node("deep", content="4"),
    )
    assert await query_keys(alice, "TRAVERSE start DEPTH 2") == ["m", "b", "x", "deep"]
    assert await query_keys(alice, "TRAVERSE start DEPTH 2 LIMIT 2") == ["m", "b"]
    assert await query_keys(alice, "TRAVERSE start DEPTH 2 ORDER BY weight DESC LIMIT 2") == ["deep", "m"]
    assert await query_keys(alice, "TRAVERSE start DEPTH 2 ORDER BY -depth, key") == ["deep", "b", "m", "x"]
    assert await query_keys(alice, "TRAVERSE start DEPTH 2 ORDER BY content") == ["x", "b", "m", "deep"]
    assert await query_keys(alice, "TRAVERSE start DEPTH 2 ORDER BY category DESC") == ["x", "b", "deep", "m"]
    assert await query_keys(alice, "TRAVERSE start DEPTH 2 ORDER BY metadata.rank, key LIMIT 2") == ["m", "x"]
    assert await query_keys(alice, "TRAVERSE start DEPTH 2 ORDER BY rel_type, table, direction, KEY DESC") == [
        "x",
        "m",
        "deep",
        "b",
    ]
    with pytest.raises(InvalidInputError, match="cannot order by wieght: did you mean weight"):
        await run_query(alice, "TRAVERSE start ORDER BY wieght")
    with pytest.raises(InvalidInputError, match="write fields such as weight DESC"):
        await run_query(alice, Traverse(Lookup(("start",)), order_by="depth; DROP TABLE rem.edges"))


async def test_edge_types_ignore_case_and_separators(alice: Store) -> None:
    await put(
        alice,
        node(
            "a",
            to("b", "works_with"),
            to("c", "WorksWith"),
            to("d", "works-with"),
            to("e", "manages"),
            to("f", "Ärger"),
        ),
        *[node(name) for name in "bcdef"],
    )
    for written in ("works_with", "WORKS-WITH", '"works with"', "WorksWith"):
        assert await query_keys(alice, f"TRAVERSE {written} FROM a") == ["b", "c", "d"], written
    assert await query_keys(alice, "TRAVERSE a TYPE manages, ärger") == ["e", "f"]
    assert await query_keys(alice, "TRAVERSE a TYPE nothing") == []


async def test_direction_in_and_both(alice: Store) -> None:
    await put(
        alice, node("a", to("b", "manages")), node("b", to("c", "manages")), node("c"), node("d", to("b", "likes"))
    )
    result = await run_query(alice, "TRAVERSE b DIRECTION in")
    assert [(row["key"], row["direction"], row["path"]) for row in result.list_rows()] == [
        ("a", "in", ["b", "a"]),
        ("d", "in", ["b", "d"]),
    ]
    assert await query_keys(alice, "TRAVERSE manages FROM c DIRECTION in DEPTH 2") == ["b", "a"]
    both = (await run_query(alice, "TRAVERSE b DIRECTION both")).list_rows()
    assert [(row["key"], row["direction"]) for row in both] == [("a", "in"), ("c", "out"), ("d", "in")]
    assert await depths(alice, "TRAVERSE a DIRECTION both DEPTH 9") == {"b": 1, "c": 2, "d": 2}


async def test_both_directions_follow_the_same_edges(alice: Store, shared: Store) -> None:
    """Check that an edge found in one direction is found in the other."""
    await put(shared, User(name="Sarah Chen", email="sarah@example.com"))
    await put(
        alice,
        node("OpenAI"),
        node("postgresql"),
        node("plain"),
        node("tool box"),
        node("toolbox"),
        Moment(name="plain"),
    )
    labels = {
        "openai": ["open-ai"],
        "o-pen-ai": ["open-ai"],
        "PostgreSQL": ["postgresql"],
        "resources/PostgreSQL": ["postgresql"],
        "users/sarah@example.com": ["sarah-chen"],
        "sarah@example.com": ["sarah-chen"],
        "users/SarahChen": ["sarah-chen"],
        "toolbox": ["toolbox"],
        "plain": ["plain", "plain"],
        "moments/plain": ["plain"],
        "moments/sarah-chen": [],
    }
    await put(alice, *[node(f"from {number}", label) for number, label in enumerate(labels)])
    await put(
        alice,
        node("typed", to("plain", dst_entity_type="moments")),
        node("mistyped", to("plain", dst_entity_type="users")),
    )
    forwards: set[tuple[str, str, str]] = set()
    for number, (label, expected) in enumerate(labels.items()):
        rows = (await run_query(alice, f"TRAVERSE 'from {number}'")).list_rows()
        assert [row["key"] for row in rows] == expected, label
        forwards |= {(f"from-{number}", row["table"], row["key"]) for row in rows}
    forwards.add(("typed", "moments", "plain"))
    assert [row["table"] for row in (await run_query(alice, "TRAVERSE typed")).list_rows()] == ["moments"]
    backwards = set()
    for table, key in {(table, key) for _, table, key in forwards} | {("resources", "tool-box")}:
        rows = (await run_query(alice, f"TRAVERSE '{table}/{key}' DIRECTION in")).list_rows()
        backwards |= {(row["key"], table, key) for row in rows}
    assert backwards == forwards


async def test_walk_stays_within_the_scope(alice: Store, bob: Store, shared: Store, rem: Rem) -> None:
    await put(shared, node("hub", "team"), node("team", "handbook", "alices"), node("handbook"))
    await put(alice, node("alices", "handbook", "bobs"), node("private", "hub"))
    await put(bob, node("bobs", "handbook", "hub"), node("hub", "bobs"))
    await put(
        rem.for_user("alice@example.com", tenant="elsewhere").store,
        node("hub", "far"),
        node("far"),
        node("handbook", "far"),
    )
    assert await depths(alice, "TRAVERSE hub DEPTH 9") == {"team": 1, "alices": 2, "handbook": 2}
    assert await depths(alice, "TRAVERSE hub DEPTH 9 DIRECTION in") == {"private": 1}
    assert await depths(alice, "TRAVERSE handbook DIRECTION in") == {"alices": 1, "team": 1}
    assert await depths(shared, "TRAVERSE hub DEPTH 9") == {"team": 1, "handbook": 2}
    assert await depths(shared, "TRAVERSE handbook DEPTH 9 DIRECTION in") == {"team": 1, "hub": 2}
    assert await depths(bob, "TRAVERSE bobs") == {"handbook": 1, "hub": 1}
    # The id of another user's row is no start.
    (bobs,) = await bob.lookup("bobs")
    for clauses in ("", "DIRECTION in", "DEPTH 0 DIRECTION both"):
        assert (
            await query_keys(alice, f"TRAVERSE WITH (SELECT id FROM resources) {clauses}", stub_rows=[{"id": bobs.id}])
            == []
        )


async def test_edge_leads_to_own_and_shared_targets(alice: Store, shared: Store) -> None:
    await put(shared, node("handbook", content="ours"))
    await put(alice, node("handbook", content="mine"), node("a", "handbook"))
    rows = (await run_query(alice, "TRAVERSE a")).list_rows()
    assert sorted(row["record"]["content"] for row in rows) == ["mine", "ours"]


async def test_note_reports_dangling_edges(alice: Store, bob: Store) -> None:
    await put(bob, node("bobs"))
    await put(alice, node("a", "b", to("nowhere", "cites"), to("bobs", "cites")), node("b", "x1", "x2"))
    result = await run_query(alice, "TRAVERSE a DEPTH 3")
    assert [row["key"] for row in result.list_rows()] == ["b"]
    (note,) = result.notes
    assert note.code == "dangling"
    assert note.text.startswith("4 edges lead to keys without an entity: ")
    assert "a cites nowhere" in note.text
    assert note.text.endswith(", ….")
    (note,) = (await run_query(alice, "TRAVERSE b TYPE links_to DEPTH 1")).notes
    assert note.text == "2 edges lead to keys without an entity: b links_to x1, b links_to x2."
    assert (await run_query(alice, "TRAVERSE a TYPE nothing")).notes == ()


async def test_walk_skips_deleted_and_expired_nodes(alice: Store) -> None:
    lapsed = utc_now() - timedelta(seconds=1)
    await put(
        alice,
        node("a", "gone", "lapsed", "ok"),
        node("gone", "behind"),
        node("lapsed", "behind", expires_at=lapsed),
        node("ok", expires_at=utc_now() + timedelta(hours=1)),
        node("behind"),
    )
    (gone,) = await alice.lookup("gone")
    await alice.delete(gone)
    assert await depths(alice, "TRAVERSE a DEPTH 3") == {"ok": 1}
    assert await depths(alice, "TRAVERSE behind DIRECTION in DEPTH 3") == {}
    assert await query_keys(alice, "TRAVERSE WITH (SELECT id FROM resources)", stub_rows=[{"id": gone.id}]) == []


async def test_depth_zero_lists_edges(alice: Store, bob: Store) -> None:
    many = [to(f"n{n:02}", "links_to", n / 100) for n in range(30)]
    await put(
        alice,
        node("a", to("b", "manages"), to("c", "manages", 2), to("lost", "cites"), *many),
        node("b", "a"),
        node("c"),
    )
    await put(bob, node("bobs", "a"))
    result = await run_query(alice, "TRAVERSE a, b DEPTH 0 DIRECTION both")
    assert result.list_rows()[0] == {
        "table": "resources",
        "key": "a",
        "rel_type": "links_to",
        "direction": "out",
        "count": 30,
        "destinations": [f"n{n:02}" for n in range(29, 9, -1)],
    }
    rest = [
        (row["key"], row["rel_type"], row["direction"], row["count"], row["destinations"])
        for row in result.list_rows()[1:]
    ]
    assert rest == [
        ("a", "manages", "out", 2, ["c", "b"]),
        ("a", "cites", "out", 1, ["lost"]),
        ("a", "links_to", "in", 1, ["b"]),
        ("b", "links_to", "out", 1, ["a"]),
        ("b", "manages", "in", 1, ["a"]),
    ]
    assert [row["rel_type"] for row in (await run_query(alice, "TRAVERSE Manages FROM a DEPTH 0")).list_rows()] == [
        "manages"
    ]
    assert [
        row["rel_type"]
        for row in (await run_query(alice, "TRAVERSE a DEPTH 0 ORDER BY count, rel_type LIMIT 2")).list_rows()
    ] == [
        "cites",
        "manages",
    ]
    with pytest.raises(InvalidInputError, match="cannot order by weight: there are table, key"):
        await run_query(alice, "TRAVERSE a DEPTH 0 ORDER BY weight")


async def test_walk_starts_from_the_rows_of_any_query(alice: Store) -> None:
    await put(alice, node("sarah", "x"), node("mike", "y"), node("x", "z"), node("y"), node("z"))
    assert await query_keys(alice, "TRAVERSE WITH LOOKUP sarah, mike") == ["x", "y"]
    assert await query_keys(alice, "TRAVERSE WITH FUZZY sara THRESHOLD 0.7") == ["x"]
    assert await query_keys(alice, "TRAVERSE WITH (TRAVERSE sarah)") == ["z"]
    assert await query_keys(alice, "TRAVERSE WITH (TRAVERSE sarah DEPTH 0)") == ["x"]
    sarah, mike = await alice.lookup("sarah", "mike")
    stub_rows = [{"table": "resources", "key": "sarah", "score": 0.5, "record": {"id": str(sarah.id)}}]
    result = await run_query(alice, "TRAVERSE WITH SEARCH 'who'", stub_rows=stub_rows)
    assert [row["key"] for row in result.list_rows()] == ["x"]
    assert result.has_note("words_only")
    by_sql = "TRAVERSE WITH (SELECT * FROM resources)"
    assert await query_keys(
        alice, by_sql, stub_rows=[{"id": str(sarah.id)}, {"id": mike.id}, {"id": uuid4()}, {"id": None}]
    ) == [
        "x",
        "y",
    ]
    assert await query_keys(alice, by_sql, stub_rows=[{"key": "Sarah"}, {"key": "nobody"}]) == ["x"]
    assert await query_keys(alice, by_sql, stub_rows=[]) == []
    with pytest.raises(InvalidInputError, match=r"must select their id or key; it gives name, n\."):
        await run_query(alice, by_sql, stub_rows=[{"name": "Sarah", "n": 1}])
    with pytest.raises(InvalidInputError, match="'seven' is none"):
        await run_query(alice, by_sql, stub_rows=[{"id": "seven"}])


async def test_note_reports_an_empty_start(alice: Store) -> None:
    result = await run_query(alice, "TRAVERSE nobody")
    assert result.count == 0
    assert [note.code for note in result.notes] == ["missing_key", "no_start"]


async def test_note_reports_edges_only_among_start_nodes(alice: Store) -> None:
    await put(alice, node("a", "b"), node("b", "a"), node("self", "self"), node("lonely"))
    for query in ("TRAVERSE a, b", "TRAVERSE a, b DIRECTION in DEPTH 3", "TRAVERSE self"):
        result = await run_query(alice, query)
        assert (result.hits, [note.code for note in result.notes]) == ([], ["only_back"]), query
    assert (await run_query(alice, "TRAVERSE lonely DIRECTION both")).notes == ()
    assert (await run_query(alice, "TRAVERSE a, b TYPE other")).notes == ()


async def test_large_star_and_long_chain(alice: Store) -> None:
    rim = [node(f"rim {n}", "hub", "last") for n in range(5_000)]
    chain = [node(f"link {n}", f"link {n + 1}") for n in range(101)]
    await put(alice, node("hub", *[f"rim {n}" for n in range(5_000)]), node("last"), *rim, *chain)
    result = await run_query(alice, "TRAVERSE hub DEPTH 100")
    assert result.count == 5_001
    assert result.list_rows()[-1]["key"] == "last"
    assert (await run_query(alice, "TRAVERSE hub DIRECTION in LIMIT 7")).count == 7
    deepest = (await run_query(alice, 'TRAVERSE "link 0" DEPTH 100 ORDER BY -depth LIMIT 1')).list_rows()[0]
    assert (deepest["key"], deepest["depth"], len(deepest["path"])) == ("link-100", 100, 101)
    tree = parse_query("TRAVERSE hub DEPTH 2")
    assert isinstance(tree, Traverse)
    (hub,) = await alice.find_matches(["hub"])
    start = Result("LOOKUP", [Hit("resources", "hub", hub.record)])
    capped = await run_traverse(alice, tree, start, max_nodes=50)
    assert capped.count == 50
    assert capped.has_note("rows_cut")


async def test_unicode_quotes_and_odd_weights_are_unchanged(alice: Store) -> None:
    await put(alice, node('say "hi" \\ ☕', to("日本 語", 'type "x" \\', -1.5e-300)), node("日本 語"))
    (row,) = (await run_query(alice, Traverse(Lookup(('say "hi" \\ ☕',))))).list_rows()
    assert row["path"] == [await alice.normalize_key('say "hi" \\ ☕'), await alice.normalize_key("日本 語")]
    assert (row["rel_type"], row["weight"]) == ('type "x" \\', -1.5e-300)
    with pytest.raises(InvalidInputError, match="edge type"):
        await run_query(alice, Traverse(Lookup(("a",)), edge_types=("a\0b",)))
    async with alice.snapshot() as snapshot:
        assert len(await query_keys(snapshot, Traverse(Lookup(('say "hi" \\ ☕',))))) == 1
