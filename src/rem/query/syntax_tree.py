"""The query tree: one dataclass for each verb."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from rem.db.conditions import Condition

Mode: TypeAlias = Literal["hybrid", "vector", "text"]
Direction: TypeAlias = Literal["out", "in", "both"]


@dataclass(frozen=True, slots=True)
class Filter:
    """A WHERE: the parsed condition and its text."""

    text: str
    condition: Condition = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Lookup:
    """LOOKUP: find the entities with the given keys."""

    keys: tuple[str, ...]
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Fuzzy:
    """FUZZY: find the entities with a key or summary like a text."""

    text: str
    threshold: float = 0.5
    limit: int = 5
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """SEARCH: find the entities whose texts are about a text.

    `rem_search` (db/functions/search.sql) gets this tree as JSON, so a new field is available there.
    """

    text: str
    table: str | None = None
    limit: int = 10
    where: Filter | None = None
    field: str | None = None
    min_similarity: float = 0.3
    mode: Mode = "hybrid"


@dataclass(frozen=True, slots=True)
class Traverse:
    """TRAVERSE: follow edges from the entities that another query finds."""

    start: Query
    edge_types: tuple[str, ...] = ()
    depth: int = 1
    limit: int | None = None
    direction: Direction = "out"
    order_by: str | None = None


@dataclass(frozen=True, slots=True)
class Sql:
    """SQL: return the rows of a SELECT."""

    statement: str


Query: TypeAlias = Lookup | Fuzzy | Search | Traverse | Sql


def to_json(query: Query) -> dict[str, Any]:
    """Return the tree as JSON values. WHERE becomes its text."""
    values = ((field.name, getattr(query, field.name)) for field in fields(query))
    return {"type": type(query).__name__.upper(), **{name: _json_value(value) for name, value in values}}


def _json_value(value: Any) -> Any:
    match value:
        case Filter(text):
            return text
        case tuple():
            return list(value)
        case Lookup() | Fuzzy() | Search() | Traverse() | Sql():
            return to_json(value)
    return value
