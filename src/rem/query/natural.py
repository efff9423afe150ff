"""Translate plain language into a query, without a language model: a named key is looked up, all else is searched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from rem.db.sql import query as sql
from rem.errors import InvalidInputError, QuerySyntaxError
from rem.models.field_types import check_text
from rem.query.answer_rows import FETCH_FACTOR, arrange_rows, find_property_words
from rem.query.language.grammar import VERBS
from rem.query.language.parser import parse_query
from rem.query.language.printer import print_query
from rem.query.syntax_tree import Fuzzy, Lookup, Query, Search, Sql, Traverse

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.query.executor import QueryExecutor
    from rem.query.result import QueryResult

FUZZY_THRESHOLD = 0.65
"""One misspelt word of two reaches this similarity, one common word does not."""
MAX_NAME_CHARS = 1024
MAX_QUOTED_NAMES = 5
MAX_FUZZY_WORDS = 5
MAX_FUZZY_CHARS = 80
"""A longer text is hardly a misspelt key."""
MAX_SHOWN_QUERY_CHARS = 200
_QUESTION_PHRASE = re.compile(
    r"(?:please\s+)?"
    r"(?:(?:who|what|where|when)(?:\s+(?:is|are|was|were)|['’]s)|what\s+do\s+(?:you|we|i)\s+know\s+about|what\s+about"
    r"|tell\s+me\s+(?:more\s+)?about|show\s+me|give\s+me|look\s?up|look\s+for|search\s+for|find)"
    r"\s+(?:the\s+|an?\s+|my\s+|our\s+)?",
    re.IGNORECASE,
)
"""The beginning of English questions about one thing. The name of the thing may follow."""
_QUOTED = re.compile(r"""(?<!\w)(?:"([^"]++)"|'([^']++)'|“([^“”]++)”|‘([^‘’]++)’|«([^«»]++)»)(?!\w)""")
"""Quotes of the same kind do not nest, so the text is scanned once, however many quotes are left open."""
_PUNCTUATION = " \t\r\n?!.,;:…"
_FROM = re.compile(r"\bFROM\s+(?:rem\.)?\"?(\w+)", re.IGNORECASE)


class Interpretation(NamedTuple):
    """The query for a text, and notes for the caller."""

    query: Query
    notes: tuple[str, ...]
    is_guess: bool = False
    """Whether the text is plain language if the query turns out to be invalid."""


async def ask(executor: QueryExecutor, store: Store, text: str, limit: int | None = None) -> QueryResult:
    """Run the query for a text. The first note of the result shows the query."""
    interpretation = await interpret(store, text)
    try:
        result = await _run(executor, store, text, _apply_limit(interpretation.query, limit))
    except QuerySyntaxError as error:
        if not interpretation.is_guess:
            raise
        interpretation = _make_interpretation(await to_query(store, text), _explain_invalid("SQL", error.reason))
        result = await _run(executor, store, text, _apply_limit(interpretation.query, limit))
    return replace(result, notes=(*interpretation.notes, *result.notes))


async def _run(executor: QueryExecutor, store: Store, text: str, query: Query) -> QueryResult:
    """Run a query. The rows of a SEARCH are arranged as an answer: without copies, the newest statement first."""
    if not isinstance(query, Search):
        return await executor.run(query)
    wider = replace(query, limit=query.limit * FETCH_FACTOR)
    result = await executor.run(wider)
    rows = result.results
    other_words = find_property_words(text)
    if other_words:
        known = {(row["table"], row["key"]) for row in rows}
        more = await executor.run(replace(wider, text=other_words))
        rows = [*rows, *(row for row in more.results if (row["table"], row["key"]) not in known)]
    rows = await arrange_rows(store, text, rows)
    return replace(result, results=rows[: query.limit])


def _apply_limit(query: Query, limit: int | None) -> Query:
    """Return the query with another limit, if it has the default limit."""
    if limit and isinstance(query, Search | Fuzzy) and query.limit == type(query)("").limit:
        return replace(query, limit=limit)
    return query


async def interpret(store: Store, text: str) -> Interpretation:
    """Return the query for a text: the text itself if it is a query, else LOOKUP, FUZZY or SEARCH."""
    text = _check_readable(text)
    query, notes = _parse_as_query(store, text)
    if isinstance(query, Sql) and not text.split(maxsplit=1)[0].isupper():
        return _make_interpretation(query)._replace(is_guess=True)
    return _make_interpretation(query or await to_query(store, text), *notes)


def _make_interpretation(query: Query, *notes: str) -> Interpretation:
    return Interpretation(query, (f"Understood as: {_shorten_query(query)}", *notes))


def _explain_invalid(kind: str, reason: str) -> str:
    return f"As {kind} it would not be valid: {reason.rstrip('.')}."


async def to_query(store: Store, text: str) -> Query:
    """Return LOOKUP if the text names a key, FUZZY if it is short and nearly one key, else SEARCH.

    This takes at most one round trip to the database.
    """
    text = _check_readable(text)
    names = [name for name in dict.fromkeys(_list_possible_names(text)) if len(name) <= MAX_NAME_CHARS]
    fuzzy_text = _find_fuzzy_text(text)
    if not names:
        return Search(_find_search_text(text))
    async with store.executor.connection() as connection:
        ((exact, nearest_keys),) = await connection.fetch(
            sql("query", "find_named_key"),
            store.scope.tenant_id,
            store.scope.user_id,
            names,
            fuzzy_text,
            FUZZY_THRESHOLD,
            Fuzzy("").limit,
        )
    if exact is not None:
        return Lookup((names[exact - 1],))
    # A text that is equally similar to several keys, such as "review", is more likely a topic than a name.
    if fuzzy_text is not None and nearest_keys == 1:
        return Fuzzy(fuzzy_text, threshold=FUZZY_THRESHOLD)
    return Search(_find_search_text(text))


def _check_readable(text: str) -> str:
    try:
        check_text(text)
    except ValueError as error:
        raise InvalidInputError(f"The text {error}.") from error
    if not text.strip():
        raise InvalidInputError("The text is empty: write a key such as sarah-chen, or a question in plain words.")
    return text.strip()


def _parse_as_query(store: Store, text: str) -> tuple[Query | None, tuple[str, ...]]:
    """Parse the text as a query. Return None if it is not one, with a note if it starts with a verb in capitals."""
    verb = text.split(maxsplit=1)[0]
    if verb.upper() not in (*VERBS, "SELECT", "WITH"):
        return None, ()
    try:
        query = parse_query(text)
    except QuerySyntaxError as error:
        return None, (_explain_invalid("a query", error.reason),) if verb.isupper() else ()
    return (query, ()) if verb.isupper() or _is_real_query(store, text, query) else (None, ())


def _is_real_query(store: Store, text: str, query: Query) -> bool:
    """Return whether a query in lower case is meant as a query, unlike "fuzzy feelings" or "select a gift from us"."""
    if isinstance(query, Sql):
        return any(name.lower() in store.types.models for name in _FROM.findall(query.statement))
    verb, first, *rest = text.split()
    if first[0] in "\"'":
        return True
    clauses = VERBS[verb.upper()].by_word
    has_clause = any(word.partition("=")[0].upper() in clauses for word in (first, *rest))
    table = None if isinstance(query, Traverse) else query.table
    return has_clause and (table is None or table in store.types.models)


def _list_possible_names(text: str) -> Iterator[str]:
    """Yield possible names, likeliest first: the text, its quoted parts, the part after the question phrase."""
    yield text
    yield text.strip(_PUNCTUATION) or text
    yield from (_get_quoted_text(quoted) for quoted in islice(_QUOTED.finditer(text), MAX_QUOTED_NAMES))
    yield _strip_question_phrase(text)


def _get_quoted_text(quoted: re.Match[str]) -> str:
    return next(group for group in quoted.groups() if group is not None)


def _strip_question_phrase(text: str) -> str:
    bare = text.strip(_PUNCTUATION)
    phrase = _QUESTION_PHRASE.match(bare)
    return bare[phrase.end() :].strip(_PUNCTUATION) if phrase else bare


def _find_search_text(text: str) -> str:
    """Return the text without the question phrase, which is not part of the topic."""
    return (_QUESTION_PHRASE.match(text) and _strip_question_phrase(text)) or text


def _find_fuzzy_text(text: str) -> str | None:
    """Return the text to compare with keys, or None if the text is too long for a name."""
    bare = _strip_question_phrase(text)
    if len(bare) > MAX_FUZZY_CHARS or len(bare.split()) > MAX_FUZZY_WORDS:
        return None
    quoted = _QUOTED.search(bare)
    return _get_quoted_text(quoted) if quoted else bare or None


def _shorten_query(query: Query) -> str:
    written = print_query(query)
    return written if len(written) <= MAX_SHOWN_QUERY_CHARS else f"{written[:MAX_SHOWN_QUERY_CHARS]}…"
