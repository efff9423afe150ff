"""Load the rows to index: the texts of each searchable type, with their context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.context import Scope
from rem.db.sql import fill, identifier, query
from rem.errors import SettingsError
from rem.message_kinds import continues_earlier

if TYPE_CHECKING:
    from rem.db.database import Connection

MAX_EARLIER_MESSAGES = 3


@dataclass(frozen=True, slots=True)
class SearchableType:
    """An entity type that SEARCH covers, with its text columns and its title column."""

    name: str
    fields: tuple[str, ...]
    title_field: str | None

    @property
    def table(self) -> str:
        """The quoted table name."""
        return f"rem.{identifier(self.name)}"

    @property
    def has_messages(self) -> bool:
        """Whether its rows are messages of sessions."""
        return self.name == "messages"


@dataclass(frozen=True, slots=True)
class SearchableRow:
    """A row with everything that the index needs."""

    id: UUID
    user_id: str | None
    expires_at: datetime | None
    language: str | None
    title: str
    happened_at: datetime | None
    """When the message was written, or when the moment or resource took place."""
    group_id: UUID | None
    position: int | None
    """The place in the session. None for a message outside of a dialogue: users tell `rem:local` many things in a row,
    so the messages around one say nothing about it."""
    bodies: dict[str, str]
    earlier_messages: tuple[str, ...]
    """The texts of up to three messages before it in the session that give it context, nearest first."""
    role: str | None
    speaker: str | None
    kind: str | None = None
    """The kind of a message; `quotation` also for derived rows that only quote other rows."""
    range_time: datetime | None = None
    """The time that a time range of SEARCH applies to: `happened_at`, or when a resource without a time was stored."""
    is_searched: bool = True
    """False for messages of tools, for answers in which `rem:local` quotes other rows, and for rows with
    `metadata.searchable` false: they would crowd out the rest."""
    has_own_title: bool = True
    """Whether the title is embedded with the text. The name of a dreamed moment is left out: it consists of a date and
    words of its text, and dreaming/moments compares moments by the vectors of their texts."""

    @property
    def is_message(self) -> bool:
        """Whether the row is a message of a session."""
        return self.role is not None


_IS_SEARCHED = "(r.metadata -> 'searchable') IS DISTINCT FROM 'false'"
_IS_SEARCHED_MESSAGE = " AND r.role <> 'tool' AND r.model IS DISTINCT FROM 'rem:local'"
_KINDS = {
    "messages": "r.kind",
    # Rows that a dream made without a model quote the messages and notes that they come from, and records are parts of
    # them. These are the answers.
    "moments": "CASE WHEN r.metadata -> 'is_extract' = 'true' THEN 'quotation' END",
    "ontologies": "CASE r.origin WHEN 'dream:entities' THEN 'quotation' END",
    "users": "CASE WHEN r.origin LIKE 'dream:%' THEN 'quotation' END",
    "records": "'quotation'",
}
_LISTS = {"users": ("interests", "preferred_topics")}
"""Columns that are lists of texts. Their text is that of the record in which a passage is shown."""
_HAS_OWN_TITLE = {"moments": "r.origin NOT LIKE 'dream:%'"}
_TIME_COLUMNS = {"messages": "r.created_at", "moments": "r.starts_timestamp", "resources": "r.timestamp"}
_RANGE_TIMES = {**_TIME_COLUMNS, "resources": "coalesce(r.timestamp, r.created_at)"}


def visible_owners(scope: Scope) -> list[str]:
    """Return the owners whose passages a scope sees: its user, and "" for shared rows."""
    return ["", scope.user_id] if scope.user_id else [""]


def find_antecedents(text: str, earlier: Iterable[str]) -> Iterator[str]:
    """Yield the earlier messages that a message continues, nearest first: up to the one that names the subject."""
    for message in earlier:
        if not continues_earlier(text):
            return
        yield message
        text = message


async def load_searchable_types(connection: Connection) -> dict[str, SearchableType]:
    """Return the types that SEARCH covers, by name."""
    rows = await connection.fetch(query("search/passages", "searchable_types"))
    return {name: SearchableType(name, tuple(fields), title_field) for name, fields, title_field in rows}


async def load_languages(connection: Connection, default: str) -> frozenset[str]:
    """Return the languages that PostgreSQL can stem. Raise SettingsError if the default language is not one of them."""
    languages = frozenset(row[0] for row in await connection.fetch(query("search/passages", "languages")))
    if default not in languages:
        raise SettingsError(
            f"SEARCH__LANGUAGE is {default!r}, which this PostgreSQL cannot stem: use one of "
            f"{', '.join(sorted(languages))}."
        )
    return languages


async def limit_ids_by_size(
    connection: Connection, searchable_type: SearchableType, tenant_id: str, ids: Sequence[UUID], max_bytes: int
) -> list[UUID]:
    """Return the first ids whose texts have at most `max_bytes` together, but at least one id."""
    sizes = " + ".join(f"coalesce(octet_length(r.{identifier(field)}::text), 0)" for field in searchable_type.fields)
    statement = fill(query("search/passages", "limit_ids_by_size"), table=searchable_type.table, size=sizes)
    return [row[0] for row in await connection.fetch(statement, tenant_id, ids, max_bytes)]


async def load_rows(
    connection: Connection, searchable_type: SearchableType, tenant_id: str, ids: Sequence[UUID], *, lock: bool = False
) -> list[SearchableRow]:
    """Load rows that are not deleted. With `lock`, lock them, and leave out rows that are being written."""
    title_column = searchable_type.title_field
    statement = fill(
        query("search/passages", "load_rows"),
        table=searchable_type.table,
        title=f"coalesce(r.{identifier(title_column)}::text, '')" if title_column else "''",
        # The description of a session is grouped with its messages, but has no position among them.
        group_id={"messages": "r.session_id", "sessions": "r.id"}.get(searchable_type.name, "NULL::uuid"),
        position="r.message_index" if searchable_type.has_messages else "NULL::integer",
        happened_at=_TIME_COLUMNS.get(searchable_type.name, "NULL::timestamptz"),
        range_time=_RANGE_TIMES.get(searchable_type.name, "NULL::timestamptz"),
        role="r.role" if searchable_type.has_messages else "NULL::text",
        kind=_KINDS.get(searchable_type.name, "NULL::text"),
        is_searched=_IS_SEARCHED + (_IS_SEARCHED_MESSAGE if searchable_type.has_messages else ""),
        has_own_title=_HAS_OWN_TITLE.get(searchable_type.name, "true"),
        bodies=", ".join(_express_body(searchable_type.name, field) for field in searchable_type.fields),
        before=f"({query('search/passages', 'earlier_messages')})" if searchable_type.has_messages else "NULL::json",
        lock="FOR NO KEY UPDATE OF r SKIP LOCKED" if lock else "",
    )
    return [_make_row(row, searchable_type) for row in await connection.fetch(statement, tenant_id, ids)]


def _express_body(table: str, field: str) -> str:
    """Return SQL for the text of a column."""
    column = f"r.{identifier(field)}"
    if field in _LISTS.get(table, ()):
        return f"CASE WHEN cardinality({column}) > 0 THEN to_json({column})::text ELSE '' END"
    return f"coalesce({column}::text, '')"


def _make_row(row: Any, searchable_type: SearchableType) -> SearchableRow:
    bodies = dict(zip(searchable_type.fields, row["bodies"], strict=True))
    before = row["before"] or {"has_answers": False, "texts": []}
    is_part = row["role"] != "user" or row["speaker"] is not None or before["has_answers"]
    texts = [text for _, text in before["texts"]]
    if not is_part:
        texts = list(find_antecedents(" ".join(bodies.values()), texts))
    return SearchableRow(
        row["id"],
        row["user_id"],
        row["expires_at"],
        row["language"],
        row["title"],
        row["happened_at"],
        row["group_id"],
        row["position"] if is_part else None,
        bodies,
        tuple(texts[:MAX_EARLIER_MESSAGES]),
        row["role"],
        row["speaker"],
        row["kind"],
        row["range_time"],
        row["is_searched"],
        row["has_own_title"],
    )
