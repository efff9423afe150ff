"""Tell a query or an exact key from a question."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rem.db.sql import query as sql
from rem.errors import InvalidInputError, QueryLimitError, QuerySyntaxError
from rem.models.field_types import check_text
from rem.query.grammar import FIRST_WORDS, TIME_WORDS, VERBS
from rem.query.parser import parse_query
from rem.query.tree import Lookup, Query, Search, Sql, Traverse
from rem.text import FUNCTION_WORDS

if TYPE_CHECKING:
    from rem.db.store import Store

MAX_QUESTION_CHARS = 300_000
MAX_READ_CHARS = 5_000
"""The rest of a longer text is not looked at: reading all of it would take a second of the event loop."""
MAX_KEY_CHARS = 200
MIN_NAME_WORDS = 2
UNNAMED_TABLES = ("sessions", "messages", "moments", "feedbacks", "shared_sessions", "approvals", "tool_gaps")
"""Their keys are made of words of texts, or of ids. They are no names of things."""
_FROM = re.compile(r"\bFROM\s+(?:rem\.)?\"?(\w+)", re.IGNORECASE)
_AROUND_KEY = " ?!.\"'“”‘’"
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-.")


def check_question(text: str) -> str:
    """Return a question without white space around it. Raise InvalidInputError if it cannot be read."""
    if not isinstance(text, str):
        raise InvalidInputError(f"A question is a text, not {type(text).__name__}.")
    try:
        check_text(text)
    except ValueError as error:
        raise InvalidInputError(f"The text {error}.") from error
    if len(text) > MAX_QUESTION_CHARS:
        raise QueryLimitError(
            f"The question has {len(text):,} characters, and a question has at most {MAX_QUESTION_CHARS:,}: shorten it."
        )
    if not text.strip():
        raise InvalidInputError("The text is empty: write a key such as sarah-chen, or a question in plain words.")
    return text.strip()[:MAX_READ_CHARS]


def parse_as_query(store: Store, text: str) -> Query | None:
    """Return the query that a text is; None if it is plain language, which may begin with a verb in lower case."""
    first, *others = text.split(maxsplit=2)
    verb = others[0] if first.upper() == "REM" and others else first
    if verb.upper() not in FIRST_WORDS:
        return None
    try:
        query = parse_query(text)
    except QuerySyntaxError:
        return None
    return query if verb.isupper() or _is_real_query(store, text, query) else None


async def find_exact_key(store: Store, text: str) -> Lookup | None:
    """Return the LOOKUP of a text that is the key or the name of something.

    A name of several words may have words without content around it: "Who is Sarah Chen?".
    """
    name = text.strip(_AROUND_KEY)
    if not name or len(name) > MAX_KEY_CHARS:
        return None
    rest = [word for word in name.split() if word.lower() not in FUNCTION_WORDS]
    names = [name, " ".join(rest)] if MIN_NAME_WORDS <= len(rest) < len(name.split()) else [name]
    ((keys, _),) = await store.executor.read(
        lambda connection: connection.fetch(
            sql("query/query", "find_named_keys"),
            store.scope.tenant_id,
            store.scope.user_id,
            names,
            None,
            1.0,
            1,
            UNNAMED_TABLES,
            [name] if is_explicit_key(name) else [],
        )
    )
    return next((Lookup((found,)) for found, key in zip(names, keys, strict=True) if key is not None), None)


def is_explicit_key(name: str) -> bool:
    """Return whether a name is a key that says which row is meant, also in tables whose names are words of texts.

    It is a key with its table, or with an id: `sessions/boat`, `session-…-msg-4`.
    """
    return name.split() == [name] and ("/" in name[1:-1] or _ID.search(name) is not None)


def _is_real_query(store: Store, text: str, query: Query) -> bool:
    """Return whether a query in lower case is meant as a query, unlike "fuzzy feelings" or "select a gift from us"."""
    if isinstance(query, Sql):
        return any(name.lower() in store.types.models for name in _FROM.findall(query.statement))
    words = text.split()
    verb, first, *rest = words[1:] if words[0].upper() == "REM" else words
    if first[0] in "\"'":
        return True
    clauses = set(VERBS[verb.upper()].by_word)
    if isinstance(query, Search) and query.since is None and query.until is None:
        clauses -= TIME_WORDS
    has_clause = any(word.partition("=")[0].upper() in clauses for word in (first, *rest))
    table = None if isinstance(query, Traverse) else query.table
    return has_clause and (table is None or table in store.types.models)
