"""A syntax error names the expected input, its position and the nearest valid query."""

from __future__ import annotations

import pytest

from rem.errors import InvalidInputError, QuerySyntaxError
from rem.query.parser import parse_query


def catch_error(query: str) -> QuerySyntaxError:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(query)
    return caught.value


def test_error_shows_line_column_and_caret() -> None:
    error = catch_error('SEARCH "x"\n  FROM resources\n  LIMIT many')
    assert str(error) == (
        "LIMIT takes a whole number from 1 to 10,000, not 'many' (line 3, column 9)\n"
        "    LIMIT many\n"
        "          ^\n"
        'Did you mean: SEARCH "x"\n  FROM resources\n  LIMIT 1'
    )
    assert (error.line, error.column) == (3, 9)
    assert error.reason == "LIMIT takes a whole number from 1 to 10,000, not 'many'"
    assert isinstance(error, InvalidInputError)
    assert error.exit_code == 2


def test_caret_position_counts_wide_and_combining_characters() -> None:
    lines = str(catch_error("SEARCH 日本\tx MODE fast")).splitlines()
    assert lines[1] == "  SEARCH 日本 x MODE fast"
    # Each of the two characters is two columns wide.
    assert lines[2].index("^") == len(lines[1]) - len("fast") + 2


def test_error_shows_an_excerpt_of_a_long_line() -> None:
    error = catch_error("SEARCH " + "word " * 1000 + "LIMIT many " + "word " * 1000)
    excerpt = str(error).splitlines()[1]
    assert len(excerpt) < 120
    assert "LIMIT many" in excerpt
    assert excerpt.strip().startswith("…")
    assert excerpt.endswith("…")


@pytest.mark.parametrize(
    ("query", "column", "reason", "suggestion"),
    [
        ("LOKUP x", 1, "Unknown verb 'LOKUP'", "LOOKUP x"),
        ("serch x", 1, "Unknown verb 'serch'", "SEARCH x"),
        ("SELCT * FROM t", 1, "SELECT", "SELECT * FROM t"),
        ("REM LOKUP x", 5, "Unknown verb 'LOKUP'", "REM LOOKUP x"),
        ("REM is fast", 1, "Unknown verb 'REM'", 'SEARCH "REM is fast"'),
        ("SEARCH x SINCE", 15, "SINCE needs a time, such as 2026-07-01", "SEARCH x SINCE yesterday"),
        ("SEARCH x UNTIL LIMIT 3", 16, "UNTIL needs a time", "SEARCH x UNTIL yesterday LIMIT 3"),
        ('SEARCH "x" SINCE soon', 18, "SINCE takes a time, such as 2026-07-01", None),
        ('SEARCH "x" SINCE "soon"', 18, "not 'soon'", None),
        ('SEARCH "x" SINCE 2026-13-01', 18, "not '2026-13-01'", None),
        ("SEARCH boat SINCE we moved", 19, "SINCE takes a time", 'SEARCH "boat SINCE we moved"'),
        ('SEARCH "x" SINCE today SINCE today', 24, "SINCE is given twice", 'SEARCH "x" SINCE today'),
        ("FUZZY x SINCE today", 9, "FUZZY has no SINCE", 'FUZZY "x SINCE today"'),
        ("sarah-chen", 1, "begins with LOOKUP", 'LOOKUP "sarah-chen"'),
        ("who is sarah", 1, "begins with LOOKUP", 'SEARCH "who is sarah"'),
        ("UPDATE t SET a = 1", 1, "read-only", None),
        ("SQL DELETE FROM t", 5, "read-only", None),
        ('FUZZY "x" TRESHOLD 0.7', 11, "Unknown clause 'TRESHOLD'", 'FUZZY "x" THRESHOLD 0.7'),
        ("FUZZY sara treshold=0.7", 12, "Unknown clause 'treshold'", "FUZZY sara THRESHOLD=0.7"),
        ('SEARCH text="x"', 8, "Unknown clause 'text'", None),
        ('LOOKUP "x" LIMIT 5', 12, "LOOKUP has no LIMIT", 'LOOKUP "x"'),
        ("LOOKUP x limit=5", 10, "LOOKUP has no LIMIT", "LOOKUP x"),
        ('FUZZY "x" MIN_SIMILARITY 0.6', 11, "FUZZY has no MIN_SIMILARITY", 'FUZZY "x" THRESHOLD 0.6'),
        ('SEARCH "x" THRESHOLD 0.6', 12, "SEARCH has no THRESHOLD", 'SEARCH "x" MIN_SIMILARITY 0.6'),
        ("FUZZY sara WHERE a = 1", 12, "FUZZY has no WHERE", "FUZZY sara"),
        ('SEARCH "x" MODE hybird', 17, "hybrid, vector or text, not 'hybird'", 'SEARCH "x" MODE hybrid'),
        ("SEARCH x MODE", 14, "MODE needs hybrid", "SEARCH x MODE hybrid"),
        ("TRAVERSE x DIRECTION sideways", 22, "out, in or both", "TRAVERSE x DIRECTION out"),
        ('SEARCH "x" LIMIT', 17, "LIMIT needs a whole number", 'SEARCH "x" LIMIT 1'),
        ('SEARCH "x" LIMIT FROM t', 18, "LIMIT needs a whole number", 'SEARCH "x" LIMIT 1 FROM t'),
        ('SEARCH "x" LIMIT 2.6', 18, "whole number", 'SEARCH "x" LIMIT 3'),
        ('SEARCH "x" LIMIT 10001', 18, "from 1 to 10,000", 'SEARCH "x" LIMIT 10000'),
        ('SEARCH "x" LIMIT 1,000', 18, "whole number", 'SEARCH "x" LIMIT 1000'),
        ('SEARCH "x" LIMIT "5"', 18, "whole number", 'SEARCH "x" LIMIT 1'),
        ('FUZZY "x" THRESHOLD 80%', 21, "from 0 to 1", 'FUZZY "x" THRESHOLD 0.8'),
        ('FUZZY "x" THRESHOLD 0,5', 21, "from 0 to 1", 'FUZZY "x" THRESHOLD 0.5'),
        ('FUZZY "x" THRESHOLD nan', 21, "from 0 to 1", 'FUZZY "x" THRESHOLD 1'),
        ('SEARCH "x" MIN_SIMILARITY -0.1', 27, "from 0 to 1", 'SEARCH "x" MIN_SIMILARITY 0.1'),
        ("TRAVERSE x DEPTH 101", 18, "from 0 to 100", "TRAVERSE x DEPTH 100"),
        ('SEARCH "x" LIMIT 5 LIMIT 6', 20, "LIMIT is given twice", 'SEARCH "x" LIMIT 5'),
        ('SEARCH "x" FROM a IN b', 19, "FROM already says the table", 'SEARCH "x" FROM a'),
        ("LOOKUP x FROM", 14, "FROM needs a table", "LOOKUP x FROM resources"),
        ("LOOKUP x FROM a-b", 15, "FROM takes a table", 'LOOKUP "x FROM a-b"'),
        ('LOOKUP "a" "b"', 12, "commas", 'LOOKUP "a", "b"'),
        ("LOOKUP a,", 10, "another key", "LOOKUP a"),
        ("LOOKUP ,a", 8, "at least one key", None),
        ("LOOKUP []", 9, "at least one key", None),
        ('LOOKUP ["a", "b" oops]', 18, "Expected ',' or ']' in the list, not 'oops'", None),
        ("LOOKUP [a, b", 8, "Unclosed '['", "LOOKUP [a, b]"),
        ('LOOKUP ""', 8, "at least one key", 'LOOKUP "a-key"'),
        ("LOOKUP 'Sarah's notes'", 15, "backslash", 'LOOKUP "Sarah\'s notes"'),
        ('LOOKUP "C:\\dir\\"', 8, "Unclosed string", 'LOOKUP "C:\\dir\\""'),
        ("LOOKUP foo (bar", 12, "Unclosed '('", 'LOOKUP "foo (bar"'),
        ("LOOKUP foo)", 11, "nothing was opened", "LOOKUP foo"),
        ("LOOKUP a; LOOKUP b", 11, "One query at a time", "LOOKUP a"),
        ('LOOKUP "a"; LOOKUP "b"', 11, "One query at a time", 'LOOKUP "a"'),
        ("SELECT 1; SELECT 2", 9, "One statement at a time", "SELECT 1"),
        ("SELECT (1", 8, "Unclosed '('", "SELECT (1)"),
        ("SELECT 1)", 9, "nothing was opened", "SELECT 1"),
        ("SELECT 'a", 8, "Unclosed string", "SELECT 'a'"),
        ("SELECT 1 /* x", 10, "Unclosed comment", "SELECT 1 /* x */"),
        ("SELECT $a$ x", 8, "$a$", None),
        ("WITH x", 1, "needs a SELECT", None),
        ("SQL", 1, "a SELECT, or a table", "SQL resources"),
        ("SQL t WHERE a = 1 -- x", 19, "comment", None),
        ("SQL t WHERE a = 1; DROP TABLE t", 18, "One query at a time", "SQL t WHERE a = 1"),
        ("SQL t TABLE u", 7, "given twice", None),
        ("SEARCH", 1, "a text to search for", 'SEARCH "a text"'),
        ("SEARCH '  '", 8, "a text to search for", 'SEARCH "a text"'),
        ('SEARCH "a" b', 12, "Unexpected 'b'", 'SEARCH "a b"'),
        ('SEARCH a "b"', 10, "all in quotes", 'SEARCH "a \\"b\\""'),
        ('SEARCH "a", "b"', 11, "Unexpected ','", None),
        ('SEARCH "a" LIMIT 5 10', 20, "expected FROM, IN, TABLE", None),
        ("TRAVERSE", 1, "a key or a query to start from", 'TRAVERSE "a-key"'),
        ("TRAVERSE x ORDER weight", 18, "Expected BY", "TRAVERSE x ORDER BY weight"),
        ("TRAVERSE x ORDER BY", 20, "ORDER BY needs", "TRAVERSE x ORDER BY weight"),
        ("TRAVERSE x TYPE", 16, "edge types", "TRAVERSE x TYPE manages"),
        ("TRAVERSE reports to FROM x", 10, "single words", 'TRAVERSE "reports to" FROM x'),
        ("TRAVERSE manages FROM x TYPE b", 10, "TYPE already says the edge types", "TRAVERSE FROM x TYPE b"),
        ('TRAVERSE FROM "x" manages', 19, "edge types come after TYPE", 'TRAVERSE FROM "x" TYPE manages'),
        ("TRAVERSE FROM x WITH LOOKUP y", 17, "FROM already says where to start", None),
        ('TRAVERSE FROM LOOKUP "x"', 15, "after WITH", 'TRAVERSE WITH LOOKUP "x"'),
        ("TRAVERSE WITH sarah", 15, "WITH needs a query", "TRAVERSE FROM sarah"),
        ("TRAVERSE WITH LOKUP x", 15, "WITH needs a query", "TRAVERSE WITH LOOKUP x"),
        ("TRAVERSE WITH SELECT 1", 15, "parentheses", "TRAVERSE WITH (SELECT 1)"),
        ("TRAVERSE WITH SQL users", 15, "parentheses", "TRAVERSE WITH (SQL users)"),
        ("TRAVERSE WITH (LOOKUP x", 15, "Unclosed '('", "TRAVERSE WITH (LOOKUP x)"),
        ("LOOKUP a\0b", 9, "U+0000", "LOOKUP ab"),
        ("LOOKUP a\ud800", 9, "U+D800", "LOOKUP a"),
    ],
)
def test_error_explains_mistake_and_suggests_fix(query: str, column: int, reason: str, suggestion: str | None) -> None:
    error = catch_error(query)
    assert reason in error.reason
    assert (error.line, error.column) == (1, column)
    assert error.suggestion == suggestion


@pytest.mark.parametrize(
    ("query", "suggestion"),
    [
        ("LOOKUP speed limit", 'LOOKUP "speed limit"'),
        ("LOOKUP Rate LIMIT guide", 'LOOKUP "Rate LIMIT guide"'),
        ("LOOKUP limit", 'LOOKUP "limit"'),
        ("LOOKUP from", 'LOOKUP "from"'),
        ("LOOKUP speed limit IN resources", 'LOOKUP "speed limit" IN resources'),
        ("LOOKUP a, speed limit, c", 'LOOKUP a, "speed limit", c'),
        ("LOOKUP lost in the woods", 'LOOKUP "lost in the woods"'),
        ("LOOKUP Where the wild things are", 'LOOKUP "Where the wild things are"'),
        ("LOOKUP order of the phoenix", 'LOOKUP "order of the phoenix"'),
        ("TRAVERSE FROM speed limit DEPTH 2", 'TRAVERSE FROM "speed limit" DEPTH 2'),
        ("TRAVERSE field of dreams", 'TRAVERSE "field of dreams"'),
        ("SEARCH how to limit memory LIMIT 5", 'SEARCH "how to limit memory" LIMIT 5'),
        ("SEARCH notes from last week", 'SEARCH "notes from last week"'),
        ("SEARCH where is my book", 'SEARCH "where is my book"'),
        ("SEARCH where is the speed limit in town", 'SEARCH "where is the speed limit in town"'),
        ("FUZZY speed limit in town THRESHOLD 0.4", 'FUZZY "speed limit in town" THRESHOLD 0.4'),
        (
            "SEARCH what went wrong in June FROM moments LIMIT 3",
            'SEARCH "what went wrong in June" FROM moments LIMIT 3',
        ),
        ("search what went wrong in june from moments", 'search "what went wrong in june" from moments'),
        ("SEARCH what went wrong IN users FROM moments", "SEARCH what went wrong IN users"),
        ('SEARCH "what" in users FROM moments', 'SEARCH "what" in users'),
    ],
)
def test_keyword_in_key_or_text_suggests_quotes(query: str, suggestion: str) -> None:
    error = catch_error(query)
    assert error.suggestion == suggestion
    parse_query(suggestion)


def test_suggestion_fixes_several_mistakes() -> None:
    assert catch_error("SERCH x LIMIT 0 MODE txt").suggestion == "SEARCH x LIMIT 1 MODE text"


def test_error_names_nearest_word_without_a_complete_fix() -> None:
    error = catch_error('SEARCH "x" LIMT 5 ) ) ) ) )')
    assert error.suggestion is None
    assert str(error).endswith("Did you mean: LIMIT")


def test_deeply_nested_query_is_an_error() -> None:
    parse_query("TRAVERSE WITH (" * 20 + "LOOKUP x" + ")" * 20)
    assert "more than 20 deep" in catch_error("TRAVERSE WITH (" * 21 + "LOOKUP x" + ")" * 21).reason
