"""Plain language without a language model: a key that somebody names is looked up, anything else is searched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from rem.db.sql import query as sql
from rem.errors import InvalidInputError, QuerySyntaxError
from rem.models.field_types import check_text
from rem.query.language.grammar import VERBS
from rem.query.language.parser import parse_query
from rem.query.language.printer import print_query
from rem.query.tree import Fuzzy, Lookup, Query, Search, Sql, Traverse

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.query.executor import QueryExecutor
    from rem.query.result import QueryResult

_NEAR = 0.65
"""How much a key must be like the text, as THRESHOLD says it: one misspelt word in two is, a word in common is not."""
_LONGEST_NAME = 1024
_MOST_QUOTED = 5
_LONGEST_NEAR_WORDS = 5
_LONGEST_NEAR = 80
_LONGEST_SHOWN = 200
_FRAME = re.compile(
    r"(?:please\s+)?"
    r"(?:(?:who|what|where|when)(?:\s+(?:is|are|was|were)|['’]s)|what\s+do\s+(?:you|we|i)\s+know\s+about|what\s+about"
    r"|tell\s+me\s+(?:more\s+)?about|show\s+me|give\s+me|look\s?up|look\s+for|search\s+for|find)"
    r"\s+(?:the\s+|an?\s+|my\s+|our\s+)?",
    re.IGNORECASE,
)
"""How English questions about one thing begin. What stands behind it may be the name of the thing."""
_QUOTED = re.compile(r"""(?<!\w)(?:"([^"]++)"|'([^']++)'|“([^“”]++)”|‘([^‘’]++)’|«([^«»]++)»)(?!\w)""")
"""No kind of quote goes over another that opens: so a text is read once, however many are left open."""
_PUNCTUATION = " \t\r\n?!.,;:…"
_FROM = re.compile(r"\bFROM\s+(?:rem\.)?\"?(\w+)", re.IGNORECASE)


class Interpretation(NamedTuple):
    """The query that a text became, and what the caller should know of how."""

    query: Query
    notes: tuple[str, ...]
    is_guess: bool = False
    """Whether it may be plain language all the same, if it turns out that it cannot be run."""


async def ask(executor: QueryExecutor, store: Store, text: str, limit: int | None = None) -> QueryResult:
    """The answer to a text; its notes say as which query it was understood."""
    understanding = await interpret(store, text)
    try:
        result = await executor.run(_limited(understanding.query, limit))
    except QuerySyntaxError as error:
        if not understanding.is_guess:
            raise
        understanding = _understood(await to_query(store, text), _not_valid("SQL", error.reason))
        result = await executor.run(_limited(understanding.query, limit))
    return replace(result, notes=(*understanding.notes, *result.notes))


def _limited(query: Query, limit: int | None) -> Query:
    """The query with another limit than the one that a search has by itself."""
    if limit and isinstance(query, Search | Fuzzy) and query.limit == type(query)("").limit:
        return replace(query, limit=limit)
    return query


async def interpret(store: Store, text: str) -> Interpretation:
    """The query that a text means: itself if it is one, else by what it names, in at most one round trip."""
    text = _readable(text)
    query, notes = _as_query(store, text)
    if isinstance(query, Sql) and not text.split(maxsplit=1)[0].isupper():
        return _understood(query)._replace(is_guess=True)
    return _understood(query or await to_query(store, text), *notes)


def _understood(query: Query, *notes: str) -> Interpretation:
    return Interpretation(query, (f"Understood as: {_shown(query)}", *notes))


def _not_valid(kind: str, reason: str) -> str:
    return f"As {kind} it would not be valid: {reason.rstrip('.')}."


async def to_query(store: Store, text: str) -> Query:
    """LOOKUP if the text names a key, FUZZY if it is short and one key is nearly it, else SEARCH."""
    text = _readable(text)
    names = [name for name in dict.fromkeys(_names(text)) if len(name) <= _LONGEST_NAME]
    near = _nearly_a_name(text)
    if not names:
        return Search(_searched(text))
    async with store.executor.connection() as connection:
        ((exact, nearest),) = await connection.fetch(
            sql("query", "find_named_key"),
            store.scope.tenant_id,
            store.scope.user_id,
            names,
            near,
            _NEAR,
            Fuzzy("").limit,
        )
    if exact is not None:
        return Lookup((names[exact - 1],))
    # What is equally like several keys, such as "review", is more likely a topic than the name of one of them.
    if near is not None and nearest == 1:
        return Fuzzy(near, threshold=_NEAR)
    return Search(_searched(text))


def _readable(text: str) -> str:
    try:
        check_text(text)
    except ValueError as error:
        raise InvalidInputError(f"The text {error}.") from error
    if not text.strip():
        raise InvalidInputError("The text is empty: write a key such as sarah-chen, or a question in plain words.")
    return text.strip()


def _as_query(store: Store, text: str) -> tuple[Query | None, tuple[str, ...]]:
    """The text as a query of the language, if it is one; a note if it is nearly one."""
    verb = text.split(maxsplit=1)[0]
    if verb.upper() not in (*VERBS, "SELECT", "WITH"):
        return None, ()
    try:
        query = parse_query(text)
    except QuerySyntaxError as error:
        return None, (_not_valid("a query", error.reason),) if verb.isupper() else ()
    return (query, ()) if verb.isupper() or _is_meant(store, text, query) else (None, ())


def _is_meant(store: Store, text: str, query: Query) -> bool:
    """Whether small letters are a query all the same: "select a gift from our shop" and "fuzzy feelings" are not."""
    if isinstance(query, Sql):
        return any(name.lower() in store.types.models for name in _FROM.findall(query.statement))
    verb, first, *rest = text.split()
    if first[0] in "\"'":
        return True
    clauses = VERBS[verb.upper()].by_word
    has_clause = any(word.partition("=")[0].upper() in clauses for word in (first, *rest))
    table = None if isinstance(query, Traverse) else query.table
    return has_clause and (table is None or table in store.types.models)


def _names(text: str) -> Iterator[str]:
    """What the text may name, the likeliest first: itself, what is in quotes, what is behind the question's frame."""
    yield text
    yield text.strip(_PUNCTUATION) or text
    yield from (_inner(quoted) for quoted in islice(_QUOTED.finditer(text), _MOST_QUOTED))
    yield _unframed(text)


def _inner(quoted: re.Match[str]) -> str:
    return next(group for group in quoted.groups() if group is not None)


def _unframed(text: str) -> str:
    bare = text.strip(_PUNCTUATION)
    frame = _FRAME.match(bare)
    return bare[frame.end() :].strip(_PUNCTUATION) if frame else bare


def _searched(text: str) -> str:
    """The text without the frame, which is not what it is about; without one, as it is."""
    return (_FRAME.match(text) and _unframed(text)) or text


def _nearly_a_name(text: str) -> str | None:
    """What is compared with the keys, if the text is short enough to name something."""
    bare = _unframed(text)
    if len(bare) > _LONGEST_NEAR or len(bare.split()) > _LONGEST_NEAR_WORDS:
        return None
    quoted = _QUOTED.search(bare)
    return _inner(quoted) if quoted else bare or None


def _shown(query: Query) -> str:
    written = print_query(query)
    return written if len(written) <= _LONGEST_SHOWN else f"{written[:_LONGEST_SHOWN]}…"
