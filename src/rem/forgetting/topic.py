"""Find the user's rows about a topic in plain words, such as "my code word" or "what I said about Marta"."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rem.db.sql import query, query_table
from rem.errors import InvalidInputError
from rem.models.field_types import check_text
from rem.text import collapse_spaces

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Connection

MAX_TOPIC_CHARS = 500
MAX_TEXT_CHARS = 200
"""Length of the text of a row in a preview."""
_LEAD = re.compile(
    r"(?:please\s+)?(?:everything|anything|all|whatever|what|that|"
    r"(?:the|my|all)\s+(?:notes?|facts?|things?|messages?|memor(?:y|ies)))?\s*"
    r"(?:(?:that\s+)?(?:i|we|you)\s+(?:\w+\s+)?(?:said|told(?:\s+you)?|wrote|mentioned|know|have|remember|stored|saved))?"
    r"\s*(?:about|on|of|regarding|concerning)?\s+",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A row of the user about a topic."""

    table: str
    id: UUID
    key: str
    version: datetime
    """The time of its last change."""
    happened_at: datetime
    text: str
    role: str | None
    """The author of a message."""
    origin: str | None
    is_chunk: bool
    """It is a part of a file."""
    is_question: bool

    @property
    def is_statement(self) -> bool:
        """Return whether the user said it, or it was derived from that: no question, and no answer of REM."""
        return not self.is_question and self.role in (None, "user")

    @property
    def is_editable(self) -> bool:
        """Return whether its text can be changed. Messages, documents and parts of files never change."""
        return self.table not in ("messages", "documents") and not self.is_chunk

    @property
    def excerpt(self) -> str:
        """Return the text on one line, cut at MAX_TEXT_CHARS."""
        line = collapse_spaces(self.text)
        return line if len(line) <= MAX_TEXT_CHARS else f"{line[:MAX_TEXT_CHARS].rstrip()}…"


class TopicFinder:
    """Finds rows of one owner, inside one snapshot or transaction."""

    def __init__(self, connection: Connection, scope: Scope, language: str) -> None:
        self._connection = connection
        self._owner = scope.tenant_id, scope.user_id
        self._language = language

    async def find(self, topic: str, limit: int) -> tuple[list[TopicRow], int]:
        """Return the rows with all words of a topic, and their total number: the user's statements first, newest first.

        Raise InvalidInputError if the topic has no words to look for.
        """
        topic = await self.clean_topic(topic)
        rows: list[TopicRow] = []
        total = 0
        for table, text in (await self._fetch_tables()).items():
            statement = query_table("changes", "rows_about", table, text=text)
            found = await self._connection.fetch(statement, *self._owner, self._language, topic, limit)
            rows += [_to_row(table, row) for row in found]
            total += found[0]["total"] if found else 0
        return sort_rows(rows)[:limit], total

    async def fetch(self, ids_by_table: Mapping[str, Sequence[UUID]]) -> list[TopicRow]:
        """Return those of some rows that the owner has, in tables with texts of the user."""
        tables = await self._fetch_tables()
        rows: list[TopicRow] = []
        for table, ids in sorted(ids_by_table.items()):
            if table in tables:
                statement = query_table("changes", "rows_by_id", table, text=tables[table])
                found = await self._connection.fetch(statement, *self._owner, list(ids))
                rows += [_to_row(table, row) for row in found]
        return sort_rows(rows)

    async def clean_topic(self, topic: str) -> str:
        """Return a topic without "everything that I said about". Raise InvalidInputError if nothing is left."""
        try:
            check_text(topic)
        except ValueError as error:
            raise InvalidInputError(f"The topic {error}.") from error
        plain = collapse_spaces(topic).strip(" .!?\"'“”")
        plain = _LEAD.sub("", f"{plain} ", count=1).strip() if _LEAD.match(f"{plain} ") else plain
        if len(plain) > MAX_TOPIC_CHARS:
            raise InvalidInputError(f"The topic has more than {MAX_TOPIC_CHARS} characters: name it in a few words.")
        words = await self._connection.fetchval(query("changes", "word_count"), self._language, plain) if plain else 0
        if not words:
            raise InvalidInputError('Say what it is about, in words that the text has, such as "my code word".')
        return plain

    async def _fetch_tables(self) -> dict[str, str]:
        """Return the tables with texts of the user, each with the SQL expression of its text."""
        rows = await self._connection.fetch(query("changes", "searchable_tables"))
        return {row["name"]: f"coalesce({row['search_expression']}, '')" for row in rows}


def sort_rows(rows: Sequence[TopicRow]) -> list[TopicRow]:
    """Return rows in the order of a preview: statements of the user first, each group with the newest first."""
    newest_first = sorted(rows, key=lambda row: (row.happened_at, str(row.id)), reverse=True)
    return sorted(newest_first, key=lambda row: (not row.is_statement, row.table not in ("messages", "resources")))


def _to_row(table: str, row: Any) -> TopicRow:
    return TopicRow(
        table,
        row["id"],
        row["key"],
        row["updated_at"],
        row["happened_at"],
        row["text"],
        row["role"],
        row["origin"],
        bool(row["is_chunk"]),
        bool(row["is_question"]),
    )
