"""Read questions that count or list what is stored: "how many notes do I have?", "what did I do last week?"

Such a question becomes a SELECT over the rows that the user sees. Only questions that consist of known words are read
in this way: "how many kids does Tom have?" is a question about a fact. The words are in `rem/rules`, section
`questions`; the statements are in `db/queries/plain.sql`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from functools import cache

from rem.db.sql import fill, literal, query
from rem.query.syntax_tree import Sql
from rem.query.time_phrases import Period, TimePhrase, format_time
from rem.rules import alternatives, word_set, word_sets

DEFAULT_ROWS = 10
MAX_ROWS = 100
MAX_ROWS_OF_A_TIME = 50
LONG_TIME = timedelta(days=8)
"""In a longer time, moments stand for the messages they were derived from."""
NOTHING_STORED = "There is nothing in"
"""Beginning of what is said about a time without rows."""
LONG_AGO = datetime.min.replace(tzinfo=UTC)
_WORD = re.compile(r"\w+(?:['’]\w+)?")
_NAMES = {
    "notes": "your notes",
    "files": "your files",
    "messages": "your messages",
    "sessions": "your sessions",
    "people": "the people you know",
    "moments": "your moments",
    "memories": "what was stored",
    "long_memories": "what was stored",
}


@dataclass(frozen=True, slots=True)
class ListQuery:
    """A SELECT, and what it returns in words."""

    query: Sql
    meaning: str
    max_rows: int | None = None
    """The number of rows of a list. The query returns one more: the question itself can be a stored message."""
    if_empty: str = ""
    """What to say if it returns nothing. Without it, the question is searched for then."""
    is_about_time: bool = False
    """Whether it asks for everything of a time."""


def read_list_question(text: str, phrase: TimePhrase | None, now: datetime, *, has_user: bool) -> ListQuery | None:
    """Return the SELECT for a question that counts or lists, or None. `phrase` is the time that it names."""
    rest = (phrase.remove_from(text) if phrase else text).strip(" ?!.,;:…").casefold().replace("’", "'")
    period = phrase.period if phrase else None
    if period is None and _pattern("about_author").fullmatch(rest):
        return _make_self_description()
    counted = _find_counted(rest)
    if counted is not None:
        return _make_count(counted, period, has_user=has_user)
    if _pattern("know_people").fullmatch(rest):
        return _make_list("people", period, DEFAULT_ROWS, is_newest_first=True)
    words = _WORD.findall(rest)
    if phrase is not None and set(words) <= _words("anything"):
        is_past = phrase.is_past or not words or set(words) & _words("past_words") | set(words) & _words("news_words")
        kind = (
            "long_memories"
            if (phrase.period.until or now) - (phrase.period.since or LONG_AGO) > LONG_TIME
            else "memories"
        )
        listed = _make_list(kind, period, MAX_ROWS_OF_A_TIME, is_newest_first=False)
        return replace(listed, is_about_time=True) if is_past else None
    return _read_list(words, period)


def find_latest_topic(text: str) -> str:
    """Return the topic of a question for the newest about it: "What is the latest about the boat?", or ""."""
    start = _pattern("latest_about").match(text.casefold().replace("’", "'"))
    # Folding may change the length of a text. Then it is searched as it is.
    is_same_length = len(text) == len(text.casefold())
    return text[start.end() :].strip(" ?!.,;:…") if start and is_same_length else ""


def _find_counted(rest: str) -> str | None:
    """Return the kind of things that a question counts, or None."""
    start = _pattern("count").match(rest)
    if start is None:
        return None
    words = _WORD.findall(rest[start.end() :])
    kinds = [kind for word in words if (kind := _kinds().get(word))]
    others = {word for word in words if word not in _kinds()}
    if len(kinds) != 1 or not others <= _words("fillers") | _words("count_words"):
        return None
    # "How many people are there?" can be about a party.
    if kinds[0] == "people" and not others & _words("know_words"):
        is_contact = any(word in _words("contacts") for word in words)
        return kinds[0] if is_contact else None
    return kinds[0]


def _read_list(words: list[str], period: Period | None) -> ListQuery | None:
    kinds = [(word, kind) for word in words if (kind := _kinds().get(word))]
    if len(kinds) != 1:
        return None
    ((kind_word, kind),) = kinds
    others = [word for word in words if word != kind_word]
    numbers = [number for word in others if (number := _get_number(word))]
    names = {word for word in others if not _get_number(word)}
    latest = names & _words("latest")
    known = _words("fillers") | _words("list_words") | _words("list_signals")
    if kind == "people":
        known |= _words("know_words")
    if len(numbers) > 1 or not names - latest <= known:
        return None
    is_singular = kind_word in _words("singular")
    if is_singular and not latest:
        return None
    if not (latest or period or names & _words("list_signals")):
        return None
    default = 1 if is_singular else MAX_ROWS_OF_A_TIME if period else DEFAULT_ROWS
    rows = min(numbers[0], MAX_ROWS) if numbers else default
    return _make_list(kind, period, rows, is_newest_first=bool(latest) or period is None)


def _get_number(word: str) -> int:
    if word.isascii() and word.isdigit():
        return int(word[:6])
    return _numbers().get(word, 0)


def _make_count(kind: str, period: Period | None, *, has_user: bool) -> ListQuery:
    statement = _fill(
        "count",
        kind,
        period,
        own=" FILTER (WHERE user_id IS NOT NULL)" if has_user else "",
        shared=f", count(*) FILTER (WHERE user_id IS NULL) AS shared_{kind}"
        if has_user and kind not in _PRIVATE
        else "",
    )
    return ListQuery(Sql(statement), f"the number of {_NAMES[kind]}{_describe(period)}")


_PRIVATE = ("messages", "sessions")
"""Nobody shares these with all users of a tenant."""


def _make_list(kind: str, period: Period | None, rows: int, *, is_newest_first: bool) -> ListQuery:
    direction = " DESC" if is_newest_first else ""
    statement = _fill("list", kind, period, direction=direction, limit=str(rows + 1))
    order = "newest first" if is_newest_first else "oldest first"
    if_empty = f"{NOTHING_STORED} {_NAMES[kind]}{_describe(period)}." if period else ""
    return ListQuery(Sql(statement), f"{_NAMES[kind]}{_describe(period)}, {order}", rows, if_empty)


def _make_self_description() -> ListQuery:
    pattern = rf"\m{alternatives('questions.self_statements')}\M"
    statement = fill(_load("about_author"), pattern=literal(pattern), limit=str(DEFAULT_ROWS + 1))
    return ListQuery(Sql(statement), "your profile, and what you said about yourself, newest first", DEFAULT_ROWS)


def _fill(template: str, kind: str, period: Period | None, **parts: str) -> str:
    source = _load(kind)
    condition = " AND ".join(_compile_period(period))
    return fill(
        _load(template),
        source=fill(source, notes=_load("notes")),
        name=kind,
        condition=f" WHERE {condition}" if condition else "",
        **parts,
    )


def _compile_period(period: Period | None) -> list[str]:
    if period is None:
        return []
    bounds = ((">=", period.since), ("<", period.until))
    return [f"happened_at {sign} {literal(bound.isoformat())}" for sign, bound in bounds if bound is not None]


def _describe(period: Period | None) -> str:
    """Return a period in words. A day at its end is included: "from 2026-07-01 to 2026-07-31"."""
    if period is None:
        return ""
    last = period.until
    if last is not None and last.time() == time.min:
        last -= timedelta(days=1)
    since, until = (format_time(bound) if bound else None for bound in (period.since, last))
    if since == until:
        return f" on {since}"
    return f" from {since} to {until}" if since and until else f" since {since}" if since else f" until {until}"


def _load(name: str) -> str:
    """Return a block in one line, without its comments."""
    return " ".join(line.strip() for line in query("plain", name).splitlines() if not line.startswith("--"))


@cache
def _pattern(name: str) -> re.Pattern[str]:
    please = alternatives("questions.please")
    return re.compile(rf"(?:{please}\s+)?{alternatives(f'questions.{name}')}\b")


@cache
def _words(name: str) -> frozenset[str]:
    return word_set(f"questions.{name}")


@cache
def _kinds() -> dict[str, str]:
    return {word: kind for kind, words in word_sets("questions.kinds").items() for word in words}


@cache
def _numbers() -> dict[str, int]:
    order = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    return {
        word: number
        for number, label in enumerate(order, start=1)
        for word in word_sets("time.numbers")[label]
        if number > 1
    }
