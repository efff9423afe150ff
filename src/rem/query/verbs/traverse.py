"""TRAVERSE: follow edges from the entities that another query found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import orjson

from rem.db.sql import fill
from rem.db.sql import query as sql
from rem.errors import InvalidInputError
from rem.fair_map import map_fairly
from rem.models.field_types import check_text
from rem.models.results import EdgeGroup, Hit, JsonRow, Note, Result, Steps, Walk
from rem.query.operands import OrderTerm, parse_order_by
from rem.query.syntax_errors import find_nearest

if TYPE_CHECKING:
    from asyncpg import Record as Row

    from rem.db.store import Store
    from rem.db.type_registry import TypeRegistry
    from rem.models import Entity
    from rem.query.tree import Traverse

MAX_NODES = 100_000
"""A walk stops at this many entities, at any depth."""
MAX_SHOWN_DESTINATIONS = 20
_EDGE_LIST_FIELDS = tuple(field.name for field in fields(EdgeGroup))
_NODE_FIELDS = {
    "depth": "n.depth",
    "weight": "n.weight",
    "key": "n.key",
    "rel_type": "n.rel_type",
    "direction": "n.direction",
    "table": "n.entity_type",
}
_TIE_BREAKERS = "n.key, n.entity_type, n.entity_id"
# A null in JSON counts as no value, and comes last.
_RECORD_FIELD = "nullif(n.record::jsonb #> ${number}::text[], 'null')"


async def run_traverse(store: Store, query: Traverse, start: Result, *, max_nodes: int = MAX_NODES) -> Result:
    """Return one hit for each reached entity, at its smallest depth. With DEPTH 0, return the edges of the start."""
    _check_edge_types(query.edge_types)
    steps = Steps(start.steps)
    nodes = await _find_start_nodes(store, start, steps)
    notes = [*start.notes, *(() if start.count else (Note("no_start", "There is nothing to start from."),))]
    hits: list[Hit] = []
    edges: list[EdgeGroup] = []
    if query.depth == 0:
        edges = await _run_edge_list(store, query, nodes, steps)
    else:
        hits, walk_notes = await _run_walk(store, query, nodes, max_nodes, steps)
        notes += walk_notes
    return Result("TRAVERSE", hits, notes=tuple(notes), steps=tuple(steps), edges=edges)


async def _run_walk(
    store: Store, query: Traverse, start: StartNodes, max_nodes: int, steps: Steps
) -> tuple[list[Hit], list[Note]]:
    parameters = [*_make_parameters(store, query, start), query.depth]
    if query.order_by is None:
        statement = sql("query/query", "traverse")
        parameters.append(min(query.limit or max_nodes, max_nodes))
    else:
        order = _compile_order(query.order_by, store.types, first_parameter=len(parameters) + 3)
        statement = fill(sql("query/query", "traverse_ordered"), order=order.text)
        parameters += [max_nodes, query.limit or max_nodes, *order.paths]
    with steps.measure("traverse") as step:
        records = await store.executor.read(lambda connection: connection.fetch(statement, *parameters))
        reached = [record for record in records if record["depth"] is not None]
        hits = await map_fairly(lambda record: _make_hit(record, store.types.models), reached)
        # The record without a depth is about the walk itself.
        walk: JsonRow = orjson.loads(next(record["path"] for record in records if record["depth"] is None))
        step.rows = len(hits)
        step.detail = f"{walk['reached']} reached from {len(start.ids)}"
    return hits, _make_notes(walk, max_nodes)


def _make_hit(row: Row, models: Mapping[str, type[Entity]]) -> Hit:
    path = orjson.loads(f"[{row['path']}]")
    walk = Walk(row["depth"], path, row["rel_type"], row["weight"], row["direction"])
    return Hit(row["entity_type"], row["key"], orjson.loads(row["record"]), walk=walk, models=models)


async def _run_edge_list(store: Store, query: Traverse, start: StartNodes, steps: Steps) -> list[EdgeGroup]:
    with steps.measure("plan") as step:
        parameters = (*_make_parameters(store, query, start), MAX_SHOWN_DESTINATIONS)
        records = await store.executor.read(
            lambda connection: connection.fetch(sql("query/query", "traverse_plan"), *parameters)
        )
        step.rows = len(records)
    groups = [EdgeGroup(*record) for record in records]
    return _sort_edge_list(groups, query.order_by)[: query.limit]


def _make_parameters(store: Store, query: Traverse, start: StartNodes) -> list[Any]:
    directions = ["out", "in"] if query.direction == "both" else [query.direction]
    return [
        store.scope.tenant_id,
        store.scope.user_id,
        start.tables,
        start.ids,
        list(query.edge_types),
        directions,
    ]


def _check_edge_types(edge_types: tuple[str, ...]) -> None:
    for edge_type in edge_types:
        try:
            check_text(edge_type)
        except ValueError as error:
            raise InvalidInputError(f"The edge type {edge_type!r} {error}.") from error


def _make_notes(walk: JsonRow, max_nodes: int) -> list[Note]:
    notes = []
    if walk["dangling"]:
        first = walk["first_dangling"]
        more = ", …" if walk["dangling"] > len(first) else ""
        edges = "1 edge leads" if walk["dangling"] == 1 else f"{walk['dangling']} edges lead"
        notes.append(Note("dangling", f"{edges} to keys without an entity: {', '.join(first)}{more}."))
    if walk["only_back"]:
        notes.append(Note("only_back", "The edges lead only to the start nodes themselves, which are not listed."))
    if walk["reached"] >= max_nodes:
        notes.append(Note("rows_cut", f"The walk stopped at {max_nodes:,} nodes: give fewer types or less DEPTH."))
    return notes


class StartNodes(NamedTuple):
    """Entities by table and id. The table is None if only the id is known."""

    tables: list[str | None]
    ids: list[UUID]


async def _find_start_nodes(store: Store, start: Result, steps: Steps) -> StartNodes:
    """Return the entities in a result. Rows of SQL and edges must have an `id` or a `key`."""
    nodes: list[tuple[str | None, UUID]] = [(hit.table, UUID(hit.id)) for hit in start.hits]
    labels = [f"{group.table}/{group.key}" for group in start.edges]
    for row in start.rows:
        if row.get("id") is not None:
            nodes.append((None, _parse_id(row["id"])))
        elif row.get("key") is not None:
            labels.append(f"{row['table']}/{row['key']}" if row.get("table") else str(row["key"]))
        elif not {"id", "key"} & row.keys():
            raise InvalidInputError(_explain_no_identity(row))
    if labels:
        with steps.measure("lookup") as step:
            matches = await store.find_matches(labels)
            step.rows = len(matches)
        nodes += [(match.table, UUID(match.record["id"])) for match in matches]
    return StartNodes([table for table, _ in nodes], [node_id for _, node_id in nodes])


def _parse_id(value: Any) -> UUID:
    try:
        return value if isinstance(value, UUID) else UUID(str(value))
    except ValueError as error:
        raise InvalidInputError(f"TRAVERSE starts from the ids of entities, and {value!r} is none.") from error


def _explain_no_identity(row: JsonRow) -> str:
    columns = ", ".join(row)
    return f"TRAVERSE starts from entities, so the SQL after WITH must select their id or key; it gives {columns}."


class OrderSql(NamedTuple):
    """An ORDER BY over the rows `n` of `rem_traverse`, and its parameters: paths in the records."""

    text: str
    paths: list[list[str]]


def _compile_order(order_by: str, types: TypeRegistry, first_parameter: int) -> OrderSql:
    """Compile ORDER BY to SQL. A field that is no column of the result is looked up in the records."""
    columns = {name for model in types.models.values() for name in model.model_fields}
    parts: list[str] = []
    paths: list[list[str]] = []
    for term in _parse_terms(order_by):
        expression = _NODE_FIELDS.get(term.field.lower())
        if expression is None:
            column, *path = term.field.split(".")
            _require_field(term.field, column.lower(), [*_NODE_FIELDS, *sorted(columns)])
            expression = _RECORD_FIELD.format(number=first_parameter + len(paths))
            paths.append([column.lower(), *path])
        parts.append(f"{expression} {'DESC' if term.descending else 'ASC'} NULLS LAST")
    return OrderSql(", ".join([*parts, _TIE_BREAKERS]), paths)


def _sort_edge_list(groups: list[EdgeGroup], order_by: str | None) -> list[EdgeGroup]:
    """Sort the edges of DEPTH 0."""
    for term in reversed(_parse_terms(order_by) if order_by is not None else []):
        field = term.field.lower()
        _require_field(term.field, field, _EDGE_LIST_FIELDS)
        groups = sorted(groups, key=attrgetter(field), reverse=term.descending)
    return groups


def _parse_terms(order_by: str) -> list[OrderTerm]:
    terms = parse_order_by(order_by)
    if not terms:
        raise InvalidInputError(f"ORDER BY {order_by}: write fields such as weight DESC, depth.")
    return terms


def _require_field(written: str, name: str, known: Sequence[str]) -> None:
    if name in known:
        return
    nearest = find_nearest(name, known)
    hint = f"did you mean {nearest}?" if nearest else f"there are {', '.join(known)}."
    raise InvalidInputError(f"TRAVERSE cannot order by {written}: {hint}")
