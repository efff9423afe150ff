"""The rows of one result have a limited size together, and large ones are read and sent one by one."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from rem.api.pagination import MIN_PART_BYTES, make_rows_response
from rem.app import Rem
from rem.db.sql import query as sql
from rem.db.store import Store
from rem.errors import QueryLimitError
from rem.models import Edge, Resource
from tests.query.stub_executor import query_keys, run_query

LIMITED = "CREATE OR REPLACE FUNCTION rem.rem_max_result_bytes() RETURNS integer LANGUAGE sql IMMUTABLE RETURN 30000"
TEXT_CHARS = 20_000


@pytest.fixture
async def alice_with_large_rows(alice: Store) -> Store:
    """Return Alice's store with two rows that are too large together."""
    async with alice.executor.connection() as connection:
        await connection.execute(LIMITED)
    await alice.upsert_many([Resource(name=f"log {n}", content=f"walnut {n} " + "x" * TEXT_CHARS) for n in (1, 2)])
    return alice


@pytest.mark.parametrize("query", ["LOOKUP log-1, log-2", 'LOOKUP "log 1", "Log  1", "log_1"', "FUZZY log LIMIT 9"])
async def test_rows_that_are_too_large_together_are_refused(alice_with_large_rows: Store, query: str) -> None:
    with pytest.raises(QueryLimitError, match="fewer keys"):
        await run_query(alice_with_large_rows, query)


async def test_search_is_limited_as_well(alice_with_large_rows: Store, rem: Rem) -> None:
    with pytest.raises(QueryLimitError, match="lower LIMIT"):
        await rem.for_user(alice_with_large_rows.scope).query("SEARCH walnut LIMIT 9")
    assert (await rem.for_user(alice_with_large_rows.scope).query("SEARCH walnut LIMIT 1")).count == 1


@pytest.mark.parametrize("query", ["SEARCH walnut LIMIT 9", "FUZZY log LIMIT 9"])
async def test_sizes_are_checked_before_the_records_are_built(
    alice_with_large_rows: Store, rem: Rem, query: str
) -> None:
    async with alice_with_large_rows.executor.connection() as connection:
        await connection.execute(
            "CREATE OR REPLACE FUNCTION rem.rem_record(of_type text, of_tenant text, of_id uuid) RETURNS json "
            "LANGUAGE plpgsql STABLE AS $$ BEGIN RAISE 'built'; END $$"
        )
    with pytest.raises(QueryLimitError, match="lower LIMIT"):
        await rem.for_user(alice_with_large_rows.scope).query(query)


async def test_traverse_is_limited_as_well(alice_with_large_rows: Store, rem: Rem) -> None:
    edges = [Edge(dst=f"log-{n}", rel_type="has") for n in (1, 2)]
    await alice_with_large_rows.upsert(Resource(name="index", content="", graph_edges=edges))
    with pytest.raises(QueryLimitError, match="64 MiB"):
        await rem.for_user(alice_with_large_rows.scope).query("TRAVERSE FROM index")
    assert (await rem.for_user(alice_with_large_rows.scope).query("TRAVERSE FROM index LIMIT 1")).count == 1


async def test_list_is_limited_as_well(alice_with_large_rows: Store) -> None:
    with pytest.raises(QueryLimitError, match="in a list: `limit`"):
        await alice_with_large_rows.find(Resource)
    names = [row.name for row in await alice_with_large_rows.find(Resource, order_by="name", limit=1)]
    names += [row.name for row in await alice_with_large_rows.find(Resource, order_by="name", limit=1, offset=1)]
    assert names == ["log 1", "log 2"]


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"text": "x" * TEXT_CHARS}},
        {"tags": [f"tag {n}" for n in range(TEXT_CHARS // 10)]},
        {"graph_edges": [Edge(dst=f"log-{n}", rel_type="has") for n in range(TEXT_CHARS // 50)]},
        {"name": "x" * 1000, "category": "y" * TEXT_CHARS},
    ],
)
async def test_every_column_counts(alice: Store, fields: dict[str, Any]) -> None:
    """JSON that compresses to a few bytes is counted in full."""
    rows = [Resource.model_validate({"name": "row", **fields, "uri": f"file:///{n}", "ordinal": n}) for n in (1, 2)]
    rows[1].name = "another row"
    await alice.upsert_many(rows)
    assert len(await alice.find(Resource)) == 2
    async with alice.executor.connection() as connection:
        await connection.execute(LIMITED)
    with pytest.raises(QueryLimitError):
        await alice.find(Resource)


async def test_one_row_may_have_any_size(alice_with_large_rows: Store) -> None:
    await alice_with_large_rows.upsert(Resource(name="whole book", content="x" * 2 * TEXT_CHARS))
    assert await query_keys(alice_with_large_rows, "LOOKUP whole-book") == ["whole-book"]
    assert await query_keys(alice_with_large_rows, "LOOKUP whole-book, nothing") == ["whole-book"]
    assert await query_keys(alice_with_large_rows, "FUZZY whole-book LIMIT 1") == ["whole-book"]
    assert [row.name for row in await alice_with_large_rows.find(Resource, limit=1)] == ["whole book"]


async def test_driver_reads_matches_row_by_row(alice: Store) -> None:
    """One value of all matches is decoded at once, and no other request is served meanwhile."""
    await alice.upsert_many([Resource(name=f"log {n}") for n in range(3)])
    owner = (alice.scope.tenant_id, alice.scope.user_id)
    async with alice.executor.connection() as connection:
        matches = await connection.fetch(sql("db/lookup", "lookup"), *owner, ["log-0", "log-1", "log-2"], None)
        similar = await connection.fetch(sql("query/query", "fuzzy"), *owner, "log", 0.3, 9, None)
    assert (len(matches), len(similar)) == (3, 3)


@pytest.mark.parametrize("rows", [0, 1, 2, 50])
async def test_answer_is_sent_in_parts(rows: int) -> None:
    """One text of all rows is copied several times, and no other request is served meanwhile."""
    results = [{"key": f"log-{n}", "record": {"content": "ü" * MIN_PART_BYTES}} for n in range(rows)]
    fields = {"query_type": "LOOKUP", "results": results, "count": rows}
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    await (await make_rows_response(fields, "results"))({"type": "http"}, None, send)  # type: ignore[arg-type]
    start, *parts = messages
    body = b"".join(part["body"] for part in parts)
    assert orjson.loads(body) == fields
    assert dict(start["headers"]) == {
        b"content-type": b"application/json",
        b"content-length": str(len(body)).encode(),
    }
    assert max(len(part["body"]) for part in parts) < 4 * MIN_PART_BYTES
    assert [part.get("more_body", False) for part in parts] == [True] * (len(parts) - 1) + [False]
