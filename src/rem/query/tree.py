"""The query tree: one dataclass for each verb."""

from __future__ import annotations

from dataclasses import dataclass, fields
from dataclasses import field as field_
from typing import Any, Literal, TypeAlias

from rem.db.conditions import Condition

Mode: TypeAlias = Literal["hybrid", "vector", "text"]
Direction: TypeAlias = Literal["out", "in", "both"]
_LEFT_OUT_IF_NONE = {"is_left_out_if_none": True}
"""Metadata of a field that the JSON of a tree contains only if it is set."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A WHERE: the parsed condition and its text."""

    text: str
    condition: Condition = field_(compare=False, repr=False)


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

    `rem_search` (search/functions/search.sql) gets this tree as JSON, so a new field is available there.
    """

    text: str
    table: str | None = None
    limit: int = 10
    where: Filter | None = None
    field: str | None = None
    min_similarity: float = 0.3
    mode: Mode = "hybrid"
    since: str | None = field_(default=None, metadata=_LEFT_OUT_IF_NONE)
    """A time as it was written, such as 2026-07-01 or last week. The text happened at this time or later."""
    until: str | None = field_(default=None, metadata=_LEFT_OUT_IF_NONE)
    """The text happened before this time."""


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
    values = {
        field.name: _json_value(value)
        for field in fields(query)
        if (value := getattr(query, field.name)) is not None or "is_left_out_if_none" not in field.metadata
    }
    return {"type": type(query).__name__.upper(), **values}


def _json_value(value: Any) -> Any:
    match value:
        case Filter(text):
            return text
        case tuple():
            return list(value)
        case Lookup() | Fuzzy() | Search() | Traverse() | Sql():
            return to_json(value)
    return value
