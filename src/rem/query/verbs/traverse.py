"""TRAVERSE: what can be reached over edges from what another query found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import orjson

from rem.db.sql import fill
from rem.db.sql import query as sql
from rem.errors import InvalidInputError
from rem.models.field_types import check_text
from rem.query.language.operands import OrderTerm, parse_order_by
from rem.query.language.syntax_errors import find_nearest
from rem.query.result import QueryResult, Steps

if TYPE_CHECKING:
    from asyncpg import Record

    from rem.db.store import Store
    from rem.db.type_registry import TypeRegistry
    from rem.query.tree import Traverse


_NODE_FIELDS = {
    "depth": "n.depth",
    "weight": "n.weight",
    "key": "n.key",
    "rel_type": "n.rel_type",
    "direction": "n.direction",
    "table": "n.entity_type",
}
_LAST = "n.key, n.entity_type, n.entity_id"
# A null in JSON is no value: it comes last, as everywhere.
_RECORD_FIELD = "nullif(n.record::jsonb #> ${number}::text[], 'null')"


class OrderSql(NamedTuple):
    """An ORDER BY over the rows `n` of `rem_traverse`, and the values of its parameters: places in the nodes' rows."""

    text: str
    paths: list[list[str]]


def compile_order(order_by: str, types: TypeRegistry, first_parameter: int) -> OrderSql:
    """The SQL of an order; what is no field of a node is looked for in the rows."""
    columns = {name for model in types.models.values() for name in model.model_fields}
    parts: list[str] = []
    paths: list[list[str]] = []
    for term in _terms(order_by):
        expression = _NODE_FIELDS.get(term.field.lower())
        if expression is None:
            column, *path = term.field.split(".")
            _require(term.field, column.lower(), [*_NODE_FIELDS, *sorted(columns)])
            expression = _RECORD_FIELD.format(number=first_parameter + len(paths))
            paths.append([column.lower(), *path])
        parts.append(f"{expression} {'DESC' if term.descending else 'ASC'} NULLS LAST")
    return OrderSql(", ".join([*parts, _LAST]), paths)


def sort_plan_rows(rows: list[dict[str, Any]], order_by: str | None, fields: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a plan in the order asked for."""
    for term in reversed(_terms(order_by) if order_by is not None else []):
        field = term.field.lower()
        _require(term.field, field, fields)
        rows = sorted(rows, key=lambda row: row[field], reverse=term.descending)
    return rows


def _terms(order_by: str) -> list[OrderTerm]:
    terms = parse_order_by(order_by)
    if not terms:
        raise InvalidInputError(f"ORDER BY {order_by}: write fields such as weight DESC, depth.")
    return terms


def _require(written: str, name: str, known: Sequence[str]) -> None:
    if name in known:
        return
    near = find_nearest(name, known)
    hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}."
    raise InvalidInputError(f"TRAVERSE cannot order by {written}: {hint}")


class StartNodes(NamedTuple):
    """Entities by table and id; the table is None where only the id is known."""

    tables: list[str | None]
    ids: list[UUID]


async def find_start_nodes(store: Store, found: QueryResult, steps: Steps) -> StartNodes:
    """The entities of an answer: rows of SQL are known by their `id` or `key`, all others by their record."""
    nodes: list[tuple[str | None, UUID]] = []
    labels: list[str] = []
    for row in found.results:
        if found.query_type != "SQL" and "record" in row:
            nodes.append((row["table"], UUID(row["record"]["id"])))
        elif row.get("id") is not None:
            nodes.append((None, _id(row["id"])))
        elif row.get("key") is not None:
            labels.append(f"{row['table']}/{row['key']}" if row.get("table") else str(row["key"]))
        elif not {"id", "key"} & row.keys():
            raise InvalidInputError(_no_identity(row))
    if labels:
        with steps.measure("lookup") as step:
            answers = await store.find_matches(labels)
            step.rows = len(answers)
        nodes += [(answer.table, UUID(answer.record["id"])) for answer in answers]
    return StartNodes([table for table, _ in nodes], [node_id for _, node_id in nodes])


def _id(value: Any) -> UUID:
    try:
        return value if isinstance(value, UUID) else UUID(str(value))
    except ValueError as error:
        raise InvalidInputError(f"TRAVERSE starts from the ids of entities, and {value!r} is none.") from error


def _no_identity(row: dict[str, Any]) -> str:
    columns = ", ".join(row)
    return f"TRAVERSE starts from entities, so the SQL after WITH must select their id or key; it gives {columns}."


MAX_NODES = 100_000
"""Where a walk stops, however deep it was to go."""
_SHOWN_DESTINATIONS = 20
_PLAN_FIELDS = ("table", "key", "rel_type", "direction", "count", "destinations")


async def run_traverse(
    store: Store, query: Traverse, start: QueryResult, *, most_nodes: int = MAX_NODES
) -> QueryResult:
    """One row for each node that is reached, at its least depth; at depth 0, which edges the start nodes have."""
    _check_types(query.edge_types)
    steps = Steps(start.steps)
    nodes = await find_start_nodes(store, start, steps)
    notes = [*start.notes, *(() if start.results else ("There is nothing to start from.",))]
    if query.depth == 0:
        rows = await _plan(store, query, nodes, steps)
    else:
        rows, walk_notes = await _walk(store, query, nodes, most_nodes, steps)
        notes += walk_notes
    return QueryResult("TRAVERSE", rows, tuple(notes), tuple(steps))


async def _walk(
    store: Store, query: Traverse, start: StartNodes, most_nodes: int, steps: Steps
) -> tuple[list[dict[str, Any]], list[str]]:
    parameters = [*_parameters(store, query, start), query.depth]
    if query.order_by is None:
        statement = sql("query", "traverse")
        parameters.append(min(query.limit or most_nodes, most_nodes))
    else:
        order = compile_order(query.order_by, store.types, first_parameter=len(parameters) + 3)
        statement = fill(sql("query", "traverse_ordered"), order=order.text)
        parameters += [most_nodes, query.limit or most_nodes, *order.paths]
    with steps.measure("traverse") as step:
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


async def _plan(store: Store, query: Traverse, start: StartNodes, steps: Steps) -> list[dict[str, Any]]:
    with steps.measure("plan") as step:
        async with store.executor.connection() as connection:
            found = await connection.fetch(
                sql("query", "traverse_plan"), *_parameters(store, query, start), _SHOWN_DESTINATIONS
            )
        step.rows = len(found)
    rows = [dict(zip(_PLAN_FIELDS, row, strict=True)) for row in found]
    return sort_plan_rows(rows, query.order_by, _PLAN_FIELDS)[: query.limit]


def _parameters(store: Store, query: Traverse, start: StartNodes) -> list[Any]:
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
            check_text(edge_type)
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
