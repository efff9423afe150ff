"""The rows that are searched: how each type's texts are read, with what stands around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from rem.context import Scope
from rem.db.sql import fill, identifier, query
from rem.errors import SettingsError

if TYPE_CHECKING:
    from rem.db.database import Connection


@dataclass(frozen=True, slots=True)
class SearchableType:
    """An entity type that is searched: by which columns, and which one is the title."""

    name: str
    fields: tuple[str, ...]
    title_field: str | None

    @property
    def table(self) -> str:
        """The table, quoted."""
        return f"rem.{identifier(self.name)}"

    @property
    def is_conversation(self) -> bool:
        """Whether its rows belong to sessions and follow each other."""
        return self.name == "messages"


@dataclass(frozen=True, slots=True)
class SearchableRow:
    """A row as it is indexed."""

    id: UUID
    user_id: str | None
    expires_at: datetime | None
    language: str | None
    title: str
    happened_at: datetime | None
    """When it was said or took place."""
    group_id: UUID | None
    position: int | None
    bodies: dict[str, str]
    before: tuple[str, ...]
    """What was said before, the nearest first, where the row is part of a conversation."""
    role: str | None
    speaker: str | None
    is_searched: bool = True
    """False for notes of tools, and for what says so itself (`metadata.searchable`): they would crowd out the rest."""
    is_title_meant: bool = True
    """Whether the title says something of its own. The name of a moment that was dreamt is made of a date and of what
    it tells: so its vector is that of what it tells, and two of them can be compared by it (dreaming/moments)."""

    @property
    def is_message(self) -> bool:
        """Whether the row is one of a conversation's messages."""
        return self.role is not None


_IS_SEARCHED = "(r.metadata -> 'searchable') IS DISTINCT FROM 'false'"
_IS_TITLE_MEANT = {"moments": "r.origin NOT LIKE 'dream:%'"}
_TIMES = {"messages": "r.created_at", "moments": "r.starts_timestamp", "resources": "r.timestamp"}


def visible_owners(scope: Scope) -> list[str]:
    """Whose passages a scope sees: its user's and, under the empty name, the shared ones."""
    return ["", scope.user_id] if scope.user_id else [""]


async def load_searchable_types(connection: Connection) -> dict[str, SearchableType]:
    """The types that are searched, by name."""
    rows = await connection.fetch(query("passages", "searchable_types"))
    return {name: SearchableType(name, tuple(fields), title_field) for name, fields, title_field in rows}


async def load_languages(connection: Connection, default: str) -> frozenset[str]:
    """The languages whose words PostgreSQL can stem; an error if the one of the settings is not among them."""
    languages = frozenset(row[0] for row in await connection.fetch(query("passages", "languages")))
    if default not in languages:
        raise SettingsError(
            f"SEARCH__LANGUAGE is {default!r}, which this PostgreSQL has no words for: use one of "
            f"{', '.join(sorted(languages))}."
        )
    return languages


async def limit_ids_by_size(
    connection: Connection, kind: SearchableType, tenant_id: str, ids: Sequence[UUID], size: int
) -> list[UUID]:
    """The first of some rows whose texts are not larger together than `size`; one at least."""
    sizes = " + ".join(f"coalesce(octet_length(r.{identifier(field)}::text), 0)" for field in kind.fields)
    statement = fill(query("passages", "ids_within"), table=kind.table, size=sizes)
    return [row[0] for row in await connection.fetch(statement, tenant_id, ids, size)]


async def load_rows(
    connection: Connection, kind: SearchableType, tenant_id: str, ids: Sequence[UUID], *, lock: bool = False
) -> list[SearchableRow]:
    """The live ones of some rows; with `lock`, those that nobody is just writing, and nobody can until the end."""
    statement = fill(
        query("passages", "read_rows"),
        table=kind.table,
        title=f"coalesce(r.{identifier(kind.title_field)}::text, '')" if kind.title_field else "''",
        # A session's own text stands beside its messages, at no place among them.
        group_id={"messages": "r.session_id", "sessions": "r.id"}.get(kind.name, "NULL::uuid"),
        position="r.message_index" if kind.is_conversation else "NULL::integer",
        happened_at=_TIMES.get(kind.name, "NULL::timestamptz"),
        role="r.role" if kind.is_conversation else "NULL::text",
        is_searched=_IS_SEARCHED + (" AND r.role <> 'tool'" if kind.is_conversation else ""),
        is_title_meant=_IS_TITLE_MEANT.get(kind.name, "true"),
        bodies=", ".join(f"coalesce(r.{identifier(field)}::text, '')" for field in kind.fields),
        before=f"({query('passages', 'said_before')})" if kind.is_conversation else "NULL::text[]",
        lock="FOR SHARE OF r SKIP LOCKED" if lock else "",
    )
    return [
        SearchableRow(
            row["id"],
            row["user_id"],
            row["expires_at"],
            row["language"],
            row["title"],
            row["happened_at"],
            row["group_id"],
            row["position"],
            dict(zip(kind.fields, row["bodies"], strict=True)),
            tuple(row["before"] or ()),
            row["role"],
            row["speaker"],
            row["is_searched"],
            row["is_title_meant"],
        )
        for row in await connection.fetch(statement, tenant_id, ids)
    ]
