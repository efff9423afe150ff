"""Any input gives a tree or a QuerySyntaxError, quickly."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rem.errors import QueryLimitError, QuerySyntaxError
from rem.query.grammar import MAX_QUERY_CHARS
from rem.query.parser import parse_query
from rem.query.printer import print_query
from rem.query.tree import Query
from tests.query.conformance_cases import SEEDS

pytestmark = pytest.mark.slow

_LONGEST = MAX_QUERY_CHARS - 100
_FRAGMENTS = [
    *"\"'\\()[],;= \n\t-$/*%_.",
    *(" FROM ", " in ", " WITH ", " WHERE ", " LIMIT 5", " limit ", " ORDER BY x", " TYPE a", " AND ", " NOT "),
    *("LOOKUP ", "SEARCH ", "TRAVERSE ", "SQL ", "SELECT ", "-- ", "/*", "$$", "\0", "é", "日", "\ud800", "ß", "İ"),
]


def parse_or_error(query: str) -> Query | QuerySyntaxError:
    try:
        return parse_query(query)
    except QuerySyntaxError as error:
        return error


def check_query(query: str) -> None:
    """Check that a query gives a tree that prints and parses to itself, or an error with a valid suggestion."""
    outcome = parse_or_error(query)
    if not isinstance(outcome, QuerySyntaxError):
        assert parse_query(print_query(outcome)) == outcome
        return
    assert str(outcome).encode()
    assert 1 <= outcome.line <= query.count("\n") + 1
    assert 1 <= outcome.column <= len(query) + 1
    if outcome.suggestion is not None:
        parse_query(outcome.suggestion)


@settings(max_examples=500, deadline=None)
@given(st.text())
@example("\x1c")
@example("LOOKUP\x85a")
def test_any_text_parses_or_raises_syntax_error(text: str) -> None:
    check_query(text)
    for verb in ("LOOKUP ", "FUZZY ", "SEARCH ", "TRAVERSE ", "SQL ", "SELECT ", "SEARCH x WHERE ", "TRAVERSE WITH ("):
        check_query(verb + text)


@st.composite
def mutations(draw: st.DrawFn) -> str:
    """Return a known query with a few parts inserted, removed, or replaced by the rest of another query."""
    query: str = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(query)))
        end = min(len(query), start + draw(st.integers(0, 5)))
        inserted: str = draw(st.sampled_from([*_FRAGMENTS, ""]) | st.sampled_from(SEEDS))
        query = query[:start] + (inserted[start:] if inserted in SEEDS else inserted) + query[end:]
    return query


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutations())
def test_mutated_query_parses_or_raises_syntax_error(query: str) -> None:
    check_query(query)


_HUGE = {
    "words": ("SEARCH ", "word ", ""),
    "keys": ("LOOKUP ", "a, ", "a"),
    "list": ("LOOKUP [", "a, ", "a]"),
    "types": ("TRAVERSE x TYPE ", "a, ", "a"),
    "order": ("TRAVERSE x ORDER BY ", "a, ", "a"),
    "conditions": ("SEARCH x WHERE ", "a = 1 AND ", "a = 1"),
    "values": ("SEARCH x WHERE a IN (", "1, ", "1)"),
    "nots": ("SEARCH x WHERE ", "NOT ", "a = 1"),
    "condition parentheses": ("SEARCH x WHERE ", "(", "a = 1"),
    "text parentheses": ("SEARCH ", "(", ""),
    "query parentheses": ("TRAVERSE WITH ", "(", "LOOKUP x"),
    "traversals": ("", "TRAVERSE WITH ", "LOOKUP x"),
    "traversals in parentheses": ("", "TRAVERSE WITH (", "LOOKUP x"),
    "backslashes": ('LOOKUP "', "\\", ""),
    "quotes": ("LOOKUP ", "'", ""),
    "string pieces": ("SEARCH x WHERE ", "'\\", ""),
    "assignments": ("SEARCH ", "lomat=b ", ""),
    "keywords": ("LOOKUP ", "limit ", ""),
    "words of other verbs": ("SEARCH ", "with ", ""),
    "verbs": ("SEARCH ", "LOOKUP ", ""),
    "semicolons": ("LOOKUP a", "; ", "b"),
    "only semicolons": ("", "; ", ""),
    "spaces": ("", " ", ""),
    "a word": ("", "x", ""),
    "digits": ("SEARCH x LIMIT ", "9", ""),
    "a number": ("SEARCH x WHERE a = ", "9", ""),
    "trailing words": ('SEARCH "x" ', "y ", ""),
    "columns": ("SELECT ", "a, ", "1"),
    "comments": ("SELECT ", "/*", ""),
    "dollars": ("SELECT ", "$a$ ", ""),
    "leading comments": ("", "/**/", ""),
    "escapes": ('SEARCH x WHERE "', 'a = \\"b\\" AND ', 'zzz"'),
}


@pytest.mark.parametrize(("head", "unit", "tail"), _HUGE.values(), ids=_HUGE)
def test_longest_query_parses_or_raises_syntax_error(head: str, unit: str, tail: str) -> None:
    query = head + unit * (_LONGEST // len(unit)) + tail
    started = time.process_time()
    outcome = parse_or_error(query)
    assert not isinstance(outcome, QuerySyntaxError) or len(str(outcome)) < 1000
    # It should take about a tenth of a second. No other request is served meanwhile.
    assert time.process_time() - started < 2


@pytest.mark.parametrize("query", ["SEARCH " + "word " * 100_000, "SEARCH x WHERE " + "a = 1 OR " * 300_000 + "a = 1"])
def test_longer_query_is_refused_with_the_limit(query: str) -> None:
    with pytest.raises(QueryLimitError, match=r"a query has at most 100,000: ask in steps"):
        parse_query(query)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("LOOKUP " + ", ".join(["a"] * 1001), "at most 1,000 keys"),
        ("LOOKUP [" + ", ".join(["a"] * 1001) + "]", "at most 1,000 keys"),
        ("TRAVERSE x TYPE " + ", ".join(["a"] * 1001), "at most 1,000 edge types"),
        ("SEARCH x WHERE " + " OR ".join(["a = 1"] * 1251), "at most 5,000 words, values and signs"),
    ],
)
def test_query_with_too_many_parts_is_refused_with_the_limit(query: str, reason: str) -> None:
    with pytest.raises(QuerySyntaxError, match=reason):
        parse_query(query)
