"""TRAVERSE: what can be reached over edges from what another query found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from rem.db.sql import fill
from rem.db.sql import query as sql
from rem.errors import InvalidInputError
from rem.models.values import storable_text
from rem.query.result import QueryResult
from rem.query.steps import Steps
from rem.query.traverse_order import order_sql, sorted_rows
from rem.query.traverse_start import StartSet, start_set

if TYPE_CHECKING:
    from asyncpg import Record

    from rem.db.store import Store
    from rem.query.tree import Traverse

MOST_NODES = 100_000
"""Where a walk stops, however deep it was to go."""
_SHOWN_DESTINATIONS = 20
_PLAN_FIELDS = ("table", "key", "rel_type", "direction", "count", "destinations")


async def run_traverse(
    store: Store, query: Traverse, start: QueryResult, *, most_nodes: int = MOST_NODES
) -> QueryResult:
    """One row for each node that is reached, at its least depth; at depth 0, which edges the start nodes have."""
    _check_types(query.edge_types)
    steps = Steps(start.steps)
    nodes = await start_set(store, start, steps)
    notes = [*start.notes, *(() if start.results else ("There is nothing to start from.",))]
    if query.depth == 0:
        rows = await _plan(store, query, nodes, steps)
    else:
        rows, walk_notes = await _walk(store, query, nodes, most_nodes, steps)
        notes += walk_notes
    return QueryResult("TRAVERSE", rows, tuple(notes), tuple(steps))


async def _walk(
    store: Store, query: Traverse, start: StartSet, most_nodes: int, steps: Steps
) -> tuple[list[dict[str, Any]], list[str]]:
    parameters = [*_parameters(store, query, start), query.depth]
    if query.order_by is None:
        statement = sql("query", "traverse")
        parameters.append(min(query.limit or most_nodes, most_nodes))
    else:
        order = order_sql(query.order_by, store.types, first_parameter=len(parameters) + 3)
        statement = fill(sql("query", "traverse_ordered"), order=order.text)
        parameters += [most_nodes, query.limit or most_nodes, *order.paths]
    with steps.timed("traverse") as step:
        async with store.executor.connection() as connection:
            found = await connection.fetch(statement, *parameters)
        rows = [_node(row) for row in found if row["depth"] is not None]
        walk: dict[str, Any] = orjson.loads(next(row["path"] for row in found if row["depth"] is None))
        step.rows = len(rows)
        step.detail = f"{walk['reached']} reached from {len(start.ids)}"
    return rows, _notes(walk, most_nodes)


def _node(row: Record) -> dict[str, Any]:
    return {
        "table": row["entity_type"],
        "key": row["key"],
        "depth": row["depth"],
        "path": orjson.loads(f"[{row['path']}]"),
        "rel_type": row["rel_type"],
        "weight": row["weight"],
        "direction": row["direction"],
        "record": orjson.loads(row["record"]),
    }


async def _plan(store: Store, query: Traverse, start: StartSet, steps: Steps) -> list[dict[str, Any]]:
    with steps.timed("plan") as step:
        async with store.executor.connection() as connection:
            found = await connection.fetch(
                sql("query", "traverse_plan"), *_parameters(store, query, start), _SHOWN_DESTINATIONS
            )
        step.rows = len(found)
    rows = [dict(zip(_PLAN_FIELDS, row, strict=True)) for row in found]
    return sorted_rows(rows, query.order_by, _PLAN_FIELDS)[: query.limit]


def _parameters(store: Store, query: Traverse, start: StartSet) -> list[Any]:
    directions = ["out", "in"] if query.direction == "both" else [query.direction]
    return [
        store.scope.tenant_id,
        store.scope.user_id,
        start.tables,
        start.ids,
        list(query.edge_types),
        directions,
    ]


def _check_types(edge_types: tuple[str, ...]) -> None:
    for edge_type in edge_types:
        try:
            storable_text(edge_type)
        except ValueError as error:
            raise InvalidInputError(f"The edge type {edge_type!r} {error}.") from error


def _notes(walk: dict[str, Any], most_nodes: int) -> list[str]:
    notes = []
    if walk["dangling"]:
        first = walk["first_dangling"]
        more = ", …" if walk["dangling"] > len(first) else ""
        edges = "1 edge leads" if walk["dangling"] == 1 else f"{walk['dangling']} edges lead"
        notes.append(f"{edges} to keys that nothing answers to (yet): {', '.join(first)}{more}.")
    if walk["only_back"]:
        notes.append("The edges lead only to the start nodes themselves, which are not listed.")
    if walk["reached"] >= most_nodes:
        notes.append(f"The walk stopped at {most_nodes:,} nodes: give fewer types or less DEPTH.")
    return notes
