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
from rem.text import STOP_WORDS, collapse_spaces, split_sentences, split_words

if TYPE_CHECKING:
    from rem.context import Scope
    from rem.db.database import Connection

MAX_TOPIC_CHARS = 500
MAX_REPEATED_CHARS = 5000
"""Length of a text of which the repetitions are looked for."""
MIN_SHARED_WORDS = 0.3
"""Two sentences about a topic that share this many of their other words say something about the same."""
MAX_TEXT_CHARS = 200
"""Length of the text of a row in a preview."""
_LEAD = re.compile(
    r"\A(?:please )?(?:everything|anything|all|whatever|what|that|"
    r"(?:the|my|all) (?:notes?|facts?|things?|messages?|memor(?:y|ies)))? ?"
    r"(?:(?:that )?(?:i|we|you) (?:\w+ )?(?:said|told(?: you)?|wrote|mentioned|know|have|remember|stored|saved))?"
    r" ?(?:about|on|of|regarding|concerning)? ",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d")
_IS = re.compile(r"(?:\b(?:is|are|was|were|am)|['’]s|:)\s+(?!\w+(?:ed|en)\b)", re.IGNORECASE)
"""Says what something is, not what was done with it."""


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
        """Return the rows with all words of a topic, newest first, and their total number.

        Questions and REM's own answers only repeat what the user has said. They are left out, unless nothing else has
        these words; `find_repetitions` finds them. Raise InvalidInputError if the topic has no words to look for.
        """
        topic = await self.clean_topic(topic)
        rows, total = await self._find(topic, limit, only_statements=True)
        if not rows:
            rows, total = await self._find(topic, limit, only_statements=False)
        return sort_rows(rows)[:limit], total

    async def _find(self, topic: str, limit: int, *, only_statements: bool) -> tuple[list[TopicRow], int]:
        rows: list[TopicRow] = []
        total = 0
        for table, text in (await self._fetch_tables()).items():
            statement = query_table("forget/changes", "rows_about", table, text=text)
            found = await self._connection.fetch(statement, *self._owner, self._language, topic, limit, only_statements)
            rows += [_to_row(table, row) for row in found]
            total += found[0]["total"] if found else 0
            encrypted = await self._find_encrypted(table, text, topic, only_statements=only_statements)
            rows += encrypted[:limit]
            total += len(encrypted)
        return rows, total

    async def _find_encrypted(self, table: str, text: str, topic: str, *, only_statements: bool) -> list[TopicRow]:
        """Return the rows with an encrypted text that has all words of a topic. All of them are read."""
        statement = query_table("forget/changes", "encrypted_rows", table, text=text)
        rows = await self._connection.fetch(statement, *self._owner, only_statements)
        if not rows:
            return []
        texts = [f"{row['title']}{row['text']}" for row in rows]
        places = await self._connection.fetch(query("forget/changes", "texts_about"), self._language, topic, texts)
        return [_to_row(table, rows[place - 1]) for (place,) in places]

    async def find_repetitions(self, rows: Sequence[TopicRow]) -> set[UUID]:
        """Return the user's questions and REM's answers that repeat the text of one of these rows.

        They have most of its words, or one of its codes and long numbers.
        """
        texts = [row.text[:MAX_REPEATED_CHARS] for row in rows]
        found = await self._connection.fetch(
            query("forget/changes", "repetitions"), *self._owner, self._language, texts
        )
        return {row["id"] for row in found} | await self._find_encrypted_repetitions(texts)

    async def _find_encrypted_repetitions(self, texts: Sequence[str]) -> set[UUID]:
        answers = await self._connection.fetch(query("forget/changes", "own_answers"), *self._owner)
        if not answers:
            return set()
        contents = [answer["content"] for answer in answers]
        places = await self._connection.fetch(
            query("forget/changes", "repeated_texts"), self._language, texts, contents
        )
        return {answers[place - 1]["id"] for (place,) in places}

    async def fetch(self, ids_by_table: Mapping[str, Sequence[UUID]]) -> list[TopicRow]:
        """Return those of some rows that the owner has, in tables with texts of the user."""
        tables = await self._fetch_tables()
        rows: list[TopicRow] = []
        for table, ids in sorted(ids_by_table.items()):
            if table in tables:
                statement = query_table("forget/changes", "rows_by_id", table, text=tables[table])
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
        words = (
            await self._connection.fetchval(query("forget/changes", "word_count"), self._language, plain)
            if plain
            else 0
        )
        if not words:
            raise InvalidInputError('Say what it is about, in words that the text has, such as "my code word".')
        return plain

    async def _fetch_tables(self) -> dict[str, str]:
        """Return the tables with texts of the user, each with the SQL expression of its text."""
        rows = await self._connection.fetch(query("forget/changes", "searchable_tables"))
        return {row["name"]: f"coalesce({row['search_expression']}, '')" for row in rows}


def select_replaced(rows: Sequence[TopicRow], topic: str, new_text: str) -> list[TopicRow]:
    """Return the rows that a correction replaces: those that say about the topic what the new text says differently.

    "My flight is SK1427" replaces "My flight is SK1425", but not "Ana booked the flight". If none does, return all
    rows: the user sees them before anything changes.
    """
    wanted = frozenset(split_words(topic)) - STOP_WORDS
    replaced = [row for row in rows if _is_replaced(row, wanted, new_text)]
    return replaced or list(rows)


def _is_replaced(row: TopicRow, topic_words: frozenset[str], new_text: str) -> bool:
    if topic_words == frozenset(split_words(row.key)):
        return True
    sentences = [text for text in split_sentences(row.text) if topic_words & frozenset(split_words(text))]
    return any(_has_same_point(sentence, new_text, topic_words) for sentence in sentences or [row.text])


def _has_same_point(old: str, new: str, topic_words: frozenset[str]) -> bool:
    old_words, new_words = (frozenset(split_words(text)) - topic_words - STOP_WORDS for text in (old, new))
    if not old_words:
        return True
    if shared := old_words & new_words:
        return len(shared) >= MIN_SHARED_WORDS * min(len(old_words), len(new_words))
    if any(_NUMBER.search(word) for word in old_words) and any(_NUMBER.search(word) for word in new_words):
        return True
    return bool(_IS.search(old) and _IS.search(new))


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
