"""ORDER BY of TRAVERSE: by how a node was reached, or by a field of its row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rem.errors import InvalidInputError
from rem.query.order import OrderTerm, order_terms
from rem.query.suggestions import nearest

if TYPE_CHECKING:
    from rem.db.registry import TypeRegistry

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


def order_sql(order_by: str, types: TypeRegistry, first_parameter: int) -> OrderSql:
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


def sorted_rows(rows: list[dict[str, Any]], order_by: str | None, fields: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a plan in the order asked for."""
    for term in reversed(_terms(order_by) if order_by is not None else []):
        field = term.field.lower()
        _require(term.field, field, fields)
        rows = sorted(rows, key=lambda row: row[field], reverse=term.descending)
    return rows


def _terms(order_by: str) -> list[OrderTerm]:
    terms = order_terms(order_by)
    if not terms:
        raise InvalidInputError(f"ORDER BY {order_by}: write fields such as weight DESC, depth.")
    return terms


def _require(written: str, name: str, known: Sequence[str]) -> None:
    if name in known:
        return
    near = nearest(name, known)
    hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}."
    raise InvalidInputError(f"TRAVERSE cannot order by {written}: {hint}")
