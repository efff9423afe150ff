"""Answer questions in plain language by queries, without a language model.

A question is read in this order: as a query, as a name, as a question about connections, as a list or a count, as a
question about a named thing, as a search in a time, and else as a search.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from rem.db.sql import query as sql
from rem.errors import InvalidInputError, QueryLimitError, QuerySyntaxError
from rem.message_kinds import classify_message
from rem.models.field_types import check_text
from rem.models.message import MessageKind
from rem.query.answer_rows import FETCH_FACTOR, arrange_answer, get_text
from rem.query.executor import note_misspelt_clause
from rem.query.language.grammar import FIRST_WORDS, TIME_WORDS, VERBS
from rem.query.language.parser import parse_query
from rem.query.language.printer import print_query
from rem.query.list_questions import LONG_AGO, find_latest_topic, read_list_question
from rem.query.own_properties import states_asked_property
from rem.query.question_names import Connection, QuestionNames, asks_when, find_names, is_explicit_key
from rem.query.question_words import QuestionWords, find_content_words
from rem.query.read_time import ReadTimeLimit
from rem.query.role_names import find_role_names
from rem.query.row_times import get_time
from rem.query.syntax_tree import Fuzzy, Lookup, Query, Search, Sql, Traverse
from rem.query.time_phrases import Period, find_time_phrase, format_time
from rem.query.told_times import list_told_rows, make_time_search
from rem.query.value_kinds import find_wanted_kinds
from rem.query.verbs.search import WAITING_NOTE
from rem.retrieval.identifiers import find_identifiers
from rem.rules import word_set
from rem.text import fold_text, split_sentences, split_words

if TYPE_CHECKING:
    from rem.db.store import Store
    from rem.query.executor import QueryExecutor
    from rem.query.result import QueryResult

MAX_QUESTION_CHARS = 300_000
MAX_READ_CHARS = 5_000
"""The rest of a longer text is not looked at: reading all of it would take a second of the event loop."""
FUZZY_THRESHOLD = 0.65
"""One misspelt word of two reaches this similarity, one common word does not."""
MAX_COMPARED_KEYS = 20
MIN_ANSWER_SIMILARITY = 0.2
"""A text with less similarity and no common word is no answer."""
MAX_SHOWN_QUERY_CHARS = 200
MAX_CONNECTION_DEPTH = 3
MAX_CONNECTED_ROWS = 25
MAX_WALKED_ROWS = 500
"""The number of rows among which the other end of a connection is looked for."""
NAMED_ROW_PLACE = 2
"""A question about a property has the row of the named thing at this place, if it does not rank higher."""
NEAR_BEST_SCORE = 0.8
"""Of the rows that score nearly as well as the best, those of the asked time come first."""
UNNAMED_TABLES = ("sessions", "messages", "moments", "feedbacks", "shared_sessions", "approvals", "tool_gaps")
"""Their keys are made of words of texts, or of ids. They are no names of things."""
MAX_NAMING_ROWS = 8
"""Rows that may say who has a role: "the conductor" is Ilse."""
MIN_CLEAR_MATCH = 0.58
"""The similarity plus the share of the question's words. Of 374 right answers to everyday questions, 3 % have less, and
of 149 answers to questions about somebody else's life, 65 %."""
MAX_TINY_ROWS = 5
"""A search in a memory of so few texts returns all of them that are similar at all."""
WEAK_NOTE = "Nothing clearly answers this: these are the nearest texts."
"""A note of an answer whose best row is a weak match."""
_TITLES = ("", "Mr. ", "Mrs. ", "Ms. ", "Dr. ")
"""A person is known by the name that was used most."""
_TEXT_FIELDS = ("content", "summary", "description")
_FROM = re.compile(r"\bFROM\s+(?:rem\.)?\"?(\w+)", re.IGNORECASE)
_SPACE_BEFORE_SIGN = re.compile(r"\s+(?=[?!.,;:…])")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Reading:
    """How a text is understood: the query for it, and what to do with its rows."""

    query: Query
    notes: tuple[str, ...] = ()
    is_guess: bool = False
    """Whether the text is plain language if the query turns out to be invalid."""
    meaning: str = ""
    """What the query returns, in words, if the query itself is hard to read."""
    otherwise: tuple[Query, ...] = ()
    """Queries to try in this order if the query has no rows."""
    also: Query | None = None
    """A query whose rows are added."""
    max_rows: int | None = None
    """The number of rows of a list."""
    if_empty: str = ""
    """Note for a result without rows."""
    target: str | None = None
    """The key to which a TRAVERSE should lead: only the path to it is returned."""
    period: Period | None = None
    """Rows of this time come first among equally good ones."""
    is_overview: bool = False
    """Whether everything about a thing is asked for. Then the facts that dreams collected come first."""
    told_time: Period | None = None
    """What was told about this time later is added."""
    latest_topic: str = ""
    """The newest rows with the words of this topic come first."""


async def ask(executor: QueryExecutor, store: Store, text: str, limit: int | None = None) -> QueryResult:
    """Run the query for a text. The first note of the result shows the query."""
    text = _check_readable(text)
    async with ReadTimeLimit(executor.max_seconds):
        reading = await interpret(store, text, executor.now)
    if reading.is_overview and isinstance(reading.query, Search):
        reading = await _find_person(executor, store, text, reading.query)
    try:
        return await _answer(executor, store, text, reading, limit)
    except QuerySyntaxError as error:
        if not reading.is_guess:
            raise
        async with ReadTimeLimit(executor.max_seconds):
            reading = await read_question(store, text, executor.now)
        return await _answer(executor, store, text, _add_note(reading, _explain_invalid("SQL", error.reason)), limit)


async def _find_person(executor: QueryExecutor, store: Store, text: str, search: Search) -> Reading:
    """Return the LOOKUP of the person whom a question calls by role ("my sister"), if the person is known."""
    _, names = await find_rows(executor, store, text, search)
    candidates = tuple(f"{title}{name}" for role in names.values() for name in sorted(role) for title in _TITLES)
    async with ReadTimeLimit(executor.max_seconds):
        keys, _ = await _find_keys(store, QuestionNames((), candidates, (), None, None, search.text, True))
    person = _first_known(candidates, keys)
    return Reading(search) if person is None else Reading(Lookup((person,)), also=search, is_overview=True)


async def interpret(store: Store, text: str, now: datetime) -> Reading:
    """Return how a text is understood: as a query if it is one, else as plain language."""
    text = _check_readable(text)
    query, notes = _parse_as_query(store, text)
    if query is None:
        return _add_note(await read_question(store, text, now), *notes)
    return Reading(query, notes, is_guess=isinstance(query, Sql) and not text.split(maxsplit=1)[0].isupper())


async def to_query(store: Store, text: str, now: datetime) -> Query:
    """Return the query for a text in plain language. This takes at most one round trip to the database."""
    return (await read_question(store, text, now)).query


async def read_question(store: Store, text: str, now: datetime) -> Reading:
    """Return how a text in plain language is understood. This takes at most one round trip to the database."""
    text = _check_readable(text)
    is_question = classify_message(text) is MessageKind.QUESTION
    names = find_names(text, is_question=is_question)
    keys, nearest_keys = await _find_keys(store, names)
    phrase = find_time_phrase(text, now)
    search = Search(names.search_text)
    if whole := _first_known(names.whole, keys):
        return Reading(Lookup((whole,)), also=None if _is_key(whole) else search)
    if names.connection and (reading := _read_connection(names.connection, keys, search)):
        return reading
    if listed := read_list_question(text, phrase, now, has_user=store.scope.user_id is not None):
        return Reading(
            listed.query,
            meaning=listed.meaning,
            otherwise=(search,) if listed.max_rows and not listed.if_empty else (),
            max_rows=listed.max_rows,
            if_empty=listed.if_empty,
            told_time=phrase.period if phrase and listed.is_about_time else None,
        )
    if topic := find_latest_topic(text):
        return Reading(Search(topic), meaning=f"the newest about {topic[:MAX_SHOWN_QUERY_CHARS]}", latest_topic=topic)
    if asked := _first_known(names.asked, keys):
        return Reading(Lookup((asked,)), also=search, is_overview=names.is_overview)
    if phrase and (reading := _read_time(search, now)):
        return reading
    if mentioned := _first_known(names.mentioned, keys):
        return Reading(search, also=Lookup((mentioned,)))
    # A text that is equally similar to several keys, such as "review", is more likely a topic than a name.
    if names.fuzzy is not None and nearest_keys == 1:
        return Reading(Fuzzy(names.fuzzy, threshold=FUZZY_THRESHOLD), also=search, is_overview=names.is_overview)
    return Reading(search, is_overview=names.is_overview)


async def _find_keys(store: Store, names: QuestionNames) -> tuple[dict[str, str], int]:
    """Return the keys of the names that are known, and how many keys are nearest to the text."""
    listed = names.list_all()
    if not listed:
        return {}, 0
    ((keys, nearest),) = await store.executor.read(
        lambda connection: connection.fetch(
            sql("query", "find_named_keys"),
            store.scope.tenant_id,
            store.scope.user_id,
            listed,
            names.fuzzy,
            FUZZY_THRESHOLD,
            MAX_COMPARED_KEYS,
            UNNAMED_TABLES,
            [name for name in listed if is_explicit_key(name)],
        )
    )
    return {name: key for name, key in zip(listed, keys, strict=True) if key is not None}, nearest


def _first_known(names: Iterable[str], keys: dict[str, str]) -> str | None:
    return next((name for name in names if name in keys), None)


def _is_key(name: str) -> bool:
    """Return whether a name is written as a key, such as sarah-chen: then only its row is wanted."""
    return " " not in name and not name.isalpha()


def _read_connection(connection: Connection, keys: dict[str, str], search: Search) -> Reading | None:
    """Return the TRAVERSE for a question about connections, if its names are known."""
    first, second = (_first_known(names, keys) for names in (connection.first, connection.second))
    if first is None or (connection.second and second is None):
        return None
    depth = MAX_CONNECTION_DEPTH if second else 1
    walks = [
        Traverse(
            Lookup((first,)),
            route.edge_types,
            depth=depth,
            direction=route.direction,
            limit=MAX_WALKED_ROWS if second else MAX_CONNECTED_ROWS,
        )
        for route in connection.routes
    ]
    return Reading(walks[0], otherwise=(*walks[1:], search), also=search, target=keys[second] if second else None)


def _read_time(search: Search, now: datetime) -> Reading | None:
    """Return the search for a question about a time that is over.

    What was said at a time was stored at that time. Other events can be told later, so their time is no limit.
    """
    text = search.text
    phrase = find_time_phrase(text, now)
    if phrase is None:
        return None
    words = set(_WORD.findall(text.casefold()))
    before = _WORD.findall(text[: phrase.start].casefold())[-1:]
    is_planned = bool(before) and before[0] in _words("plans")
    is_past = phrase.is_past or bool(words & (_words("past_words") | _kind_words()))
    if asks_when(text) or is_planned or not is_past:
        return None
    if not words & (_words("speech_words") | _kind_words()):
        return Reading(search, period=phrase.period)
    since, until = (format_time(bound) if bound else None for bound in (phrase.period.since, phrase.period.until))
    rest = _SPACE_BEFORE_SIGN.sub("", phrase.remove_from(text))
    return Reading(Search(rest, since=since, until=until), otherwise=(search,), also=search)


@cache
def _words(name: str) -> frozenset[str]:
    return word_set(f"questions.{name}")


@cache
def _kind_words() -> frozenset[str]:
    return frozenset(word for name in ("notes", "messages", "sessions") for word in word_set(f"questions.kinds.{name}"))


async def _answer(executor: QueryExecutor, store: Store, text: str, reading: Reading, limit: int | None) -> QueryResult:
    """Run the queries of a reading, and return their rows in one result."""
    query = _apply_limit(reading.query, limit)
    result = _keep_wanted(await _run(executor, store, text, query), reading, text)
    notes = [f"Understood as: {_describe(query, reading.meaning)}", *reading.notes]
    for other in reading.otherwise:
        if result.results:
            break
        query, missed = _apply_limit(other, limit), query
        result = _keep_wanted(await _run(executor, store, text, query), reading, text)
        notes = [f"Understood as: {_describe(query, '')}", *reading.notes, f"There is nothing for: {_shorten(missed)}"]
    if reading.also is not None and query != _apply_limit(reading.also, limit):
        also = _apply_limit(reading.also, limit)
        added = await _run(executor, store, text, also)
        merged = _merge(result, added.results, query, also, is_overview=reading.is_overview)
        if isinstance(also, Search) and merged is not result:
            notes.append(f"Then: {_shorten(also)}")
        waiting = {WAITING_NOTE} & set(added.notes) - set(merged.notes)
        result = replace(merged, notes=(*merged.notes, *waiting))
    if reading.told_time is not None:
        result = await _add_told_rows(executor, result, reading.told_time)
    if query == _apply_limit(reading.query, limit) and isinstance(query, Search) and _is_weak(text, query, result):
        notes.append(WEAK_NOTE)
    if reading.if_empty and not result.results:
        notes.append(reading.if_empty)
    if reading.period is not None:
        result = replace(result, results=_put_time_first(result.results, reading.period))
    if reading.latest_topic:
        result = replace(result, results=_put_newest_first(result.results, reading.latest_topic))
    return replace(result, notes=(*notes, *result.notes))


async def _add_told_rows(executor: QueryExecutor, result: QueryResult, period: Period) -> QueryResult:
    """Return a list of what was stored at a time, after what was told about this time later."""
    search = make_time_search(period)
    if search is None:
        return result
    shown = {_identify(row) for row in result.results}
    told = list_told_rows((await executor.run(search)).results, period)
    return replace(result, results=[*(row for row in told if _identify(row) not in shown), *result.results])


def _is_weak(question: str, query: Search, result: QueryResult) -> bool:
    """Return whether the best rows share little with the question, by words and by meaning.

    If the question has an identifier, such as a ticket number, that no row has, they are about something else.
    """
    asked = {identifier.joined for identifier in find_identifiers(question)}
    found = {identifier.joined for row in result.results for identifier in find_identifiers(get_text(row))}
    if asked and result.results and asked.isdisjoint(found):
        return True
    best = [row for row in result.results[:2] if isinstance(row.get("similarity"), float)]
    is_tiny = len(result.results) <= min(MAX_TINY_ROWS, query.limit - 1)
    return bool(best) and not any(_is_clear(question, row, is_tiny=is_tiny) for row in best)


def _is_clear(question: str, row: dict[str, Any], *, is_tiny: bool) -> bool:
    """Return whether a row clearly answers a question."""
    text = get_text(row)
    asked = QuestionWords.of(question)
    weight = float(row.get("weight") or 0.0)
    if is_tiny and asked.words:
        # Few texts say nothing about how rare a word is, so all words of the question count alike. Half of them is much
        # less than all: "Where does Tom live?" is not answered by where somebody else lives.
        part = asked.find_part(text)
        has_value = not asked.kinds or not asked.kinds.isdisjoint(part.kinds)
        weight = max(weight, (len(part.covered) / len(asked.words)) ** 2 if has_value else 0.0)
    return row["similarity"] + weight >= MIN_CLEAR_MATCH or states_asked_property(question, text)


async def _run(executor: QueryExecutor, store: Store, text: str, query: Query) -> QueryResult:
    """Run a query. The rows of a SEARCH are arranged as an answer: without copies, the newest statement first."""
    if not isinstance(query, Search):
        return await executor.run(query)
    result, names = await find_rows(executor, store, text, query)
    async with ReadTimeLimit(executor.max_seconds):
        result = await arrange_answer(store, text, result, names, executor.answer_reranker)
    return replace(result, results=result.results[: query.limit])


async def find_rows(
    executor: QueryExecutor, store: Store, text: str, query: Search
) -> tuple[QueryResult, dict[str, frozenset[str]]]:
    """Run a SEARCH for more rows than an answer has. Also return the names of those whom the question calls by role."""
    result = await executor.run(_widen(query))
    # "Who is our landlord?" asks for the name itself.
    asks_name = "name" in find_wanted_kinds(text)
    naming = [] if asks_name else [get_text(row) for row in result.results[:MAX_NAMING_ROWS]]
    names = find_role_names(text, naming)
    if names:
        also = " ".join(name for role in names.values() for name in sorted(role))
        result = await executor.run(_widen(replace(query, text=f"{query.text} {also}")))
    return replace(result, results=[row for row in result.results if _is_answer(row)]), names


def _widen(query: Search) -> Search:
    """Return the query with more rows and a lower similarity: a question shares few words with its answer."""
    is_default = query.min_similarity == Search("").min_similarity
    return replace(
        query,
        limit=query.limit * FETCH_FACTOR,
        min_similarity=MIN_ANSWER_SIMILARITY if is_default else query.min_similarity,
    )


def _is_answer(row: dict[str, Any]) -> bool:
    """Return whether a row of a SEARCH says something. A session is also found by its name, and then has no text."""
    return row["table"] not in UNNAMED_TABLES or bool((row["passage"]["text"] or "").strip())


def _keep_wanted(result: QueryResult, reading: Reading, text: str) -> QueryResult:
    """Return the result without rows that are not meant: of other tables, off the path, or the question itself."""
    rows = result.results
    if reading.max_rows is not None and result.query_type == "SQL":
        rows = [row for row in rows if fold_text(row["content"]) != fold_text(text)][: reading.max_rows]
    match reading.query:
        case Lookup(keys) if not any(map(is_explicit_key, keys)):
            rows = [row for row in rows if row["table"] not in UNNAMED_TABLES]
        case Fuzzy():
            rows = [row for row in rows if row.get("table") not in UNNAMED_TABLES]
    if reading.target is not None and result.query_type == "TRAVERSE":
        path: list[str] = next((row["path"] for row in rows if row["key"] == reading.target), [])
        rows = sorted((row for row in rows if row["key"] in path), key=lambda row: path.index(row["key"]))
    return replace(result, results=rows)


def _merge(
    result: QueryResult, rows: list[dict[str, Any]], query: Query, also: Query, *, is_overview: bool
) -> QueryResult:
    """Return a result with the rows of another query, or the same result if they add nothing to it."""
    if isinstance(also, Lookup):
        return _insert_named(result, rows)
    shown = {_identify(row) for row in result.results}
    added = [row for row in rows if not {_identify(row), _identify_file(row)} & shown]
    own = result.results
    if isinstance(query, Lookup):
        # A note about a person says more than what dreams collected from other texts.
        own = sorted(own, key=lambda row: not _explains(row))
        result = replace(result, results=own)
    if isinstance(query, Lookup | Fuzzy):
        name = query.text if isinstance(query, Fuzzy) else query.keys[0]
        added = [row for row in added if _mentions(row, name)]
    if is_overview and any(map(_collects_facts, own)):
        own = sorted((row for row in own if _collects_facts(row) or _explains(row)), key=lambda row: not _explains(row))
        known = " ".join(str(row["record"].get(field) or "") for row in own for field in _TEXT_FIELDS)
        new = [row for row in added if fold_text(get_text(row)).rstrip(".!") not in fold_text(known)]
        return replace(result, results=[*own, *new][: max(len(own), also.limit if isinstance(also, Search) else 0)])
    if not added:
        return result
    max_rows = max(len(own), also.limit if isinstance(also, Search) else 0)
    if isinstance(query, Lookup | Fuzzy) and not any(map(_explains, own)):
        # A derived person often has no more than a name. Then what was said about the person is the better answer.
        return replace(result, results=[added[0], *own, *added[1:]][: max_rows + 1])
    return replace(result, results=[*own, *added][:max_rows])


def _insert_named(result: QueryResult, rows: list[dict[str, Any]]) -> QueryResult:
    """Return a result with the rows of a named thing among the first, if they have a text."""
    named = [row for row in rows if row["table"] not in UNNAMED_TABLES and _has_text(row)]
    keys = {_identify(row) for row in named}
    first = result.results[: NAMED_ROW_PLACE + 1]
    if keys <= {identify(row) for row in first for identify in (_identify, _identify_file)}:
        return result
    others = [row for row in result.results if _identify(row) not in keys]
    return replace(result, results=[*others[:NAMED_ROW_PLACE], *named, *others[NAMED_ROW_PLACE:]])


def _mentions(row: dict[str, Any], name: str) -> bool:
    """Return whether the text of a row contains a word of a name."""
    texts = (row.get("passage", {}).get("text"), *(row["record"].get(field) for field in ("name", *_TEXT_FIELDS)))
    words = {word for text in texts if isinstance(text, str) for word in split_words(text)}
    return not words.isdisjoint(split_words(name))


def _identify(row: dict[str, Any]) -> tuple[Any, Any]:
    return row.get("table"), row.get("key")


def _identify_file(row: dict[str, Any]) -> tuple[Any, Any]:
    """Return the table and the key of the file that a row is a part of."""
    return "files", row["record"].get("metadata", {}).get("file")


def _has_text(row: dict[str, Any]) -> bool:
    return any(str(row["record"].get(name) or "").strip() for name in _TEXT_FIELDS)


def _explains(row: dict[str, Any]) -> bool:
    """Return whether the row of a named thing says what it is: it has a text that no dream derived."""
    return _has_text(row) and not str(row["record"].get("origin")).startswith("dream:")


def _collects_facts(row: dict[str, Any]) -> bool:
    """Return whether the row of a named thing has more than one sentence about it."""
    texts = (str(row["record"].get(field) or "") for field in _TEXT_FIELDS)
    return any(len(split_sentences(text)) > 1 for text in texts)


def _put_time_first(rows: list[dict[str, Any]], period: Period) -> list[dict[str, Any]]:
    """Return the rows with those of a time first, among the rows that score nearly as well as the best."""
    best = max((row.get("score") or 0 for row in rows), default=0)

    def is_first(row: dict[str, Any]) -> bool:
        return (row.get("score") or 0) >= NEAR_BEST_SCORE * best and _happened_in(row, period)

    return sorted(rows, key=lambda row: not is_first(row))


def _put_newest_first(rows: list[dict[str, Any]], topic: str) -> list[dict[str, Any]]:
    """Return the rows with those that have all words of a topic first, the newest before older ones."""
    asked = QuestionWords.of(topic)
    about = [row for row in rows if asked.find_in(find_content_words(get_text(row))) == asked.words]
    newest = sorted(about, key=lambda row: get_time(row) or LONG_AGO, reverse=True)
    return [*newest, *(row for row in rows if row not in about)]


def _happened_in(row: dict[str, Any], period: Period) -> bool:
    moment = get_time(row)
    if moment is None:
        return False
    return (period.since is None or moment >= period.since) and (period.until is None or moment < period.until)


def _apply_limit(query: Query, limit: int | None) -> Query:
    """Return the query with another limit, if it has the default limit."""
    if limit and isinstance(query, Search | Fuzzy) and query.limit == type(query)("").limit:
        return replace(query, limit=limit)
    return query


def _add_note(reading: Reading, *notes: str) -> Reading:
    return replace(reading, notes=(*notes, *reading.notes))


def _describe(query: Query, meaning: str) -> str:
    return f"{meaning}: {_shorten(query)}" if meaning else _shorten(query)


def _shorten(query: Query) -> str:
    written = print_query(query)
    return written if len(written) <= MAX_SHOWN_QUERY_CHARS else f"{written[:MAX_SHOWN_QUERY_CHARS]}…"


def _explain_invalid(kind: str, reason: str) -> str:
    return f"As {kind} it would not be valid: {reason.rstrip('.')}."


def _check_readable(text: str) -> str:
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


def _parse_as_query(store: Store, text: str) -> tuple[Query | None, tuple[str, ...]]:
    """Parse the text as a query. Return None if it is not one, with a note if it starts with a verb in capitals."""
    first, *others = text.split(maxsplit=2)
    verb = others[0] if first.upper() == "REM" and others else first
    if verb.upper() not in FIRST_WORDS:
        return None, ()
    try:
        query = parse_query(text)
    except QuerySyntaxError as error:
        return None, (_explain_invalid("a query", error.reason),) if verb.isupper() else ()
    if verb.isupper():
        return query, note_misspelt_clause(text)
    return (query, ()) if _is_real_query(store, text, query) else (None, ())


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
