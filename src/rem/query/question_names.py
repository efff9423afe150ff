"""Find names of things in plain questions: "who is Marta?", "where is the boat?", "how is Marta connected to Aurora?"

The words are in `rem/rules`, sections `questions` and `connections`. Only the database knows which names exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import NamedTuple

from rem.query.syntax_tree import Direction
from rem.rules import alternatives, patterns

MAX_NAME_CHARS = 1024
MAX_QUOTED_NAMES = 5
MAX_FUZZY_WORDS = 5
MAX_FUZZY_CHARS = 80
"""A longer text is hardly a misspelt key."""
PUNCTUATION = " \t\r\n?!.,;:…"
_QUOTED = re.compile(r"""(?<!\w)(?:"([^"]++)"|'([^']++)'|“([^“”]++)”|‘([^‘’]++)’|«([^«»]++)»|„([^„“]++)“)(?!\w)""")
"""Quotes of the same kind do not nest, so the text is scanned once, however many quotes are left open."""
_EXPLICIT_KEY = re.compile(r"\S+/\S+|\S*[0-9a-f]{8}-[0-9a-f]{4}-\S+")
"""A key with its table, or with an id: `sessions/boat`, `session-…-msg-4`."""


class Route(NamedTuple):
    """The edges that answer a question."""

    edge_types: tuple[str, ...]
    direction: Direction


_ROUTES: dict[str, tuple[Route, ...]] = {
    "between": (Route((), "both"),),
    "around": (Route((), "both"),),
    "works_with": (Route(("works_with", "colleague_of"), "both"),),
    "reports_to": (Route(("reports_to",), "in"), Route(("manages",), "out")),
    "manages": (Route(("manages",), "in"), Route(("reports_to",), "out")),
    "leads": (Route(("leads", "heads"), "in"), Route(("led_by", "owned_by"), "out"), Route(("manages",), "in")),
    "works_on": (Route(("works_on", "leads", "member_of", "contributes_to"), "in"),),
    "works_at": (Route(("works_at", "works_for", "employed_by"), "in"),),
}
"""The edges for each kind of question in `connections`. They are tried in this order."""


@dataclass(frozen=True, slots=True)
class Connection:
    """A question about the connections of one thing, or of two things with each other."""

    first: tuple[str, ...]
    """Spellings of the name, likeliest first."""
    second: tuple[str, ...]
    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True)
class QuestionNames:
    """The names that a text may contain."""

    whole: tuple[str, ...]
    """The text itself, which may be a name."""
    asked: tuple[str, ...]
    """Names of the thing that the text is about: quoted, or after "who is"."""
    mentioned: tuple[str, ...]
    """Names of a thing whose property the text asks for, as in "where is the boat?"."""
    connection: Connection | None
    fuzzy: str | None
    """A text that may be a misspelt name."""
    search_text: str
    """The text without "show me" and the like, which is no part of the topic."""
    is_overview: bool
    """Whether the text asks for everything about a thing: "what do you know about Marta?"."""

    def list_all(self) -> list[str]:
        """Return all names, without duplicates."""
        connected = (*self.connection.first, *self.connection.second) if self.connection else ()
        names = dict.fromkeys((*self.whole, *self.asked, *self.mentioned, *connected))
        return [name for name in names if len(name) <= MAX_NAME_CHARS]


def find_names(text: str, *, is_question: bool) -> QuestionNames:
    """Return the names that a text may contain. `is_question`: it is a question, so it is no name itself."""
    bare = text.strip(PUNCTUATION)
    quoted = tuple(_get_quoted_text(match) for match in islice(_QUOTED.finditer(text), MAX_QUOTED_NAMES))
    about, show, asks_property = (_strip_phrase(name, bare) for name in ("about", "show", "property"))
    topic = about or show
    names = _list_spellings(topic) if topic else ()
    mentioned = (*quoted, *_list_spellings(asks_property)) if asks_property else ()
    fuzzy = _find_fuzzy_text(topic or (bare if not is_question and not asks_property else None))
    return QuestionNames(
        whole=(text, bare or text),
        asked=() if asks_property else (*quoted, *names),
        mentioned=mentioned,
        connection=_find_connection(bare),
        fuzzy=fuzzy,
        search_text=show or text,
        is_overview=show is not None and _phrase("overview").match(bare) is not None,
    )


def is_explicit_key(name: str) -> bool:
    """Return whether a name is a key that says which row is meant, also in tables whose names are words of texts."""
    return _EXPLICIT_KEY.fullmatch(name) is not None


def asks_when(text: str) -> bool:
    """Return whether a text asks for a time: then a time in it is no limit."""
    return re.match(rf"{alternatives('questions.for_time')}\b", text.casefold()) is not None


def _get_quoted_text(quoted: re.Match[str]) -> str:
    return next(group for group in quoted.groups() if group is not None)


def _strip_phrase(name: str, bare: str) -> str | None:
    """Return the part of a text after a phrase and an article, or None if it does not begin with the phrase."""
    match = _phrase(name).match(bare)
    return (bare[match.end() :].strip(PUNCTUATION) or None) if match else None


def _list_spellings(name: str) -> tuple[str, ...]:
    """Return the ways in which a name in a question may be stored: "the Aurora project" is also "Aurora"."""
    name = name.strip(PUNCTUATION)
    article = re.match(rf"{alternatives('questions.articles')}\s+", name, re.IGNORECASE)
    plain = name[article.end() :] if article else name
    kind = alternatives("questions.kind_words")
    short = re.sub(rf"^{kind}\s+|\s+{kind}$", "", plain, flags=re.IGNORECASE)
    return tuple(dict.fromkeys(spelling for spelling in (name, plain, short) if spelling))


def _find_fuzzy_text(name: str | None) -> str | None:
    if name is None or len(name) > MAX_FUZZY_CHARS or len(name.split()) > MAX_FUZZY_WORDS:
        return None
    quoted = _QUOTED.search(name)
    return _get_quoted_text(quoted) if quoted else name or None


def _find_connection(bare: str) -> Connection | None:
    if len(bare) > MAX_NAME_CHARS:
        return None
    for kind, pattern in _connection_patterns():
        match = pattern.fullmatch(bare)
        if match is not None:
            second = match.groupdict().get("second")
            return Connection(_list_spellings(match["first"]), _list_spellings(second) if second else (), _ROUTES[kind])
    return None


@cache
def _connection_patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple(_iterate_connection_patterns())


def _iterate_connection_patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    for kind in _ROUTES:
        for pattern in patterns(f"connections.{kind}"):
            yield kind, re.compile(pattern, re.IGNORECASE)


@cache
def _phrase(name: str) -> re.Pattern[str]:
    please, phrases = alternatives("questions.please"), alternatives(f"questions.{name}")
    articles = alternatives("questions.articles")
    return re.compile(rf"(?:{please}\s+)?{phrases}\s+(?:{articles}\s+)?", re.IGNORECASE)
