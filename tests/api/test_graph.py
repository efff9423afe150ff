"""`GET /graph`: the entities around a key, and the edges between them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from rem.db.store import Store
from rem.models import Edge, Moment, Resource, User

_MAY = datetime(2026, 5, 1, 12, tzinfo=UTC)
_JUNE = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
async def memory(alice: Store, shared: Store) -> None:
    """Store two people who know each other, what they wrote, and a meeting of each month."""
    await shared.upsert(Resource(name="Handbook", content="How we work.", timestamp=_MAY))
    await alice.upsert_many(
        [
            User(
                name="Sarah Chen",
                summary="Leads the API team.",
                graph_edges=[Edge(dst="tom-berg", rel_type="manages"), Edge(dst="handbook", rel_type="wrote")],
            ),
            User(name="Tom Berg", graph_edges=[Edge(dst="handbook", rel_type="reads")]),
        ]
    )
    await alice.upsert_many(
        [
            Moment(name="May meeting", starts_timestamp=_MAY, graph_edges=[Edge(dst="sarah-chen", rel_type="with")]),
            Moment(name="June meeting", starts_timestamp=_JUNE, graph_edges=[Edge(dst="sarah-chen", rel_type="with")]),
        ]
    )


async def draw(by: httpx2.AsyncClient, **asked: Any) -> dict[str, Any]:
    answer = await by.get("/api/v1/graph", params={"key": "sarah-chen", **asked})
    assert answer.status_code == 200, answer.text
    graph: dict[str, Any] = answer.json()
    return graph


def keys(graph: dict[str, Any]) -> list[str]:
    return [node["key"] for node in graph["nodes"]]


def relations(graph: dict[str, Any]) -> set[tuple[str, str, str]]:
    by_id = {node["id"]: node["key"] for node in graph["nodes"]}
    return {(by_id[edge["source"]], edge["rel_type"], by_id[edge["target"]]) for edge in graph["edges"]}


async def test_graph_has_the_neighbours_and_all_edges_between_them(as_alice: httpx2.AsyncClient) -> None:
    graph = await draw(as_alice)
    assert keys(graph)[0] == "sarah-chen"
    assert set(keys(graph)) == {"sarah-chen", "tom-berg", "handbook", "may-meeting", "june-meeting"}
    assert relations(graph) == {
        ("sarah-chen", "manages", "tom-berg"),
        ("sarah-chen", "wrote", "handbook"),
        ("tom-berg", "reads", "handbook"),
        ("may-meeting", "with", "sarah-chen"),
        ("june-meeting", "with", "sarah-chen"),
    }
    start = graph["nodes"][0]
    assert (start["table"], start["name"], start["excerpt"], start["depth"]) == (
        *("users", "Sarah Chen", "Leads the API team."),
        0,
    )
    assert not graph["is_cut"]


async def test_graph_is_filtered_by_relation_table_and_time(as_alice: httpx2.AsyncClient) -> None:
    assert set(keys(await draw(as_alice, rel_type=["manages", "wrote"]))) == {"sarah-chen", "tom-berg", "handbook"}
    assert set(keys(await draw(as_alice, tables="moments"))) == {"sarah-chen", "may-meeting", "june-meeting"}
    assert "may-meeting" not in keys(await draw(as_alice, since="2026-05-15"))
    # People have no time, and stay.
    assert set(keys(await draw(as_alice, until="2026-05-01"))) == {"sarah-chen", "tom-berg"}


async def test_nodes_behind_a_filtered_one_are_left_out(as_alice: httpx2.AsyncClient) -> None:
    graph = await draw(as_alice, key="may-meeting", depth=2)
    assert {"tom-berg", "handbook"} <= set(keys(graph))
    assert keys(await draw(as_alice, key="may-meeting", depth=2, tables="resources")) == ["may-meeting"]


async def test_limit_cuts_the_graph_and_says_so(as_alice: httpx2.AsyncClient) -> None:
    graph = await draw(as_alice, limit=3)
    assert (len(graph["nodes"]), graph["is_cut"]) == (3, True)
    assert (await draw(as_alice, limit=5))["is_cut"] is False
    assert (await draw(as_alice, limit=2, tables="moments"))["is_cut"] is True


async def test_graph_of_another_user_is_not_found(as_bob: httpx2.AsyncClient, as_alice: httpx2.AsyncClient) -> None:
    assert (await as_bob.get("/api/v1/graph", params={"key": "sarah-chen"})).status_code == 404
    assert keys(await draw(as_bob, key="handbook")) == ["handbook"]
    assert (await as_alice.get("/api/v1/graph", params={"key": "sarah-chen", "tables": "none"})).status_code == 400


async def test_graph_of_two_thousand_nodes(alice: Store, as_alice: httpx2.AsyncClient) -> None:
    many = [Edge(dst=f"note-{n}", rel_type="has") for n in range(2500)]
    await alice.upsert_many([Resource(name=f"Note {n}", content="x") for n in range(2500)])
    await alice.upsert(Resource(name="Hub", graph_edges=many))
    graph = await draw(as_alice, key="hub", limit=2000)
    assert (len(graph["nodes"]), len(graph["edges"]), graph["is_cut"]) == (2000, 1999, True)
