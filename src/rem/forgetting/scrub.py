"""Scrubbing: taking one thing out of rows that are about something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

IsIt: TypeAlias = Callable[[str], bool]

_NOT_CONTENT = frozenset(
    {
        *("id", "tenant_id", "user_id", "key", "created_at", "updated_at", "deleted_at", "expires_at", "origin"),
        *("run_id", "confidence", "valid_from", "valid_to", "graph_edges", "embedding", "session_id", "message_id"),
    }
)
_REFERENCES = frozenset({"sources", "previous_moment_keys"})
"""Keys of other rows. What they are called is no statement about the thing, as long as those rows are there."""


def content_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a stored row in which people or machines said something."""
    return {name: value for name, value in record.items() if name not in _NOT_CONTENT | _REFERENCES}


def lists_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a stored row from which single items can be taken."""
    return {
        name: value for name, value in record.items() if name not in _NOT_CONTENT and isinstance(value, list | dict)
    }


def without_items(value: Any, is_it: IsIt) -> Any:
    """A JSON value without the items of its lists that are the thing."""
    if isinstance(value, list):
        return [without_items(item, is_it) for item in value if not (isinstance(item, str) and is_it(item))]
    if isinstance(value, dict):
        return {name: without_items(inner, is_it) for name, inner in value.items()}
    return value
