"""The parser accepts all notations: keys, clauses in any order, inner queries, SQL."""

from __future__ import annotations

import pytest

from rem.query.operands import OrderTerm, parse_order_by
from rem.query.parser import parse_query, suggest_clause
from rem.query.printer import print_query
from rem.query.tree import Fuzzy, Lookup, Query, Search, Sql, Traverse, to_json


def _start(query: str) -> Query:
    tree = parse_query(query)
    assert isinstance(tree, Traverse)
    return tree.start


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("LOOKUP 'Sarah Chen'", ["Sarah Chen"]),
        ("LOOKUP Sarah   Chen , Mike", ["Sarah Chen", "Mike"]),
        ("lookup\n  sarah-chen\n", ["sarah-chen"]),
        ('LOOKUP [a, "b, c", Sarah Chen]', ["a", "b, c", "Sarah Chen"]),
        ('LOOKUP["a"]', ["a"]),
        ('LOOKUP"a"', ["a"]),
        (r'LOOKUP "say \"hi\" \\ it\'s \n"', ['say "hi" \\ it\'s \\n']),
        (r"LOOKUP 'O\'Brien'", ["O'Brien"]),
        ("LOOKUP f(x), Smith (2020)", ["f(x)", "Smith (2020)"]),
        ('LOOKUP 5" pipe', ['5" pipe']),
        ("LOOKUP limits-of-growth", ["limits-of-growth"]),
        ("LOOKUP search engine", ["search engine"]),
        ("LOOKUP where's waldo", ["where's waldo"]),
        ("LOOKUP a=b", ["a=b"]),
        ("LOOKUP sarah-chen;", ["sarah-chen"]),
        ("LOOKUP 北京, Zoë", ["北京", "Zoë"]),
        ('LOOKUP "from", "limit"', ["from", "limit"]),
    ],
)
def test_keys_parse_in_all_notations(query: str, keys: list[str]) -> None:
    assert parse_query(query) == Lookup(tuple(keys))


@pytest.mark.parametrize(
    "query",
    [
        "LOOKUP sarah IN users",
        "LOOKUP sarah from users",
        "LOOKUP sarah TABLE users",
        "LOOKUP sarah table=users",
        "LOOKUP sarah from = 'users'",
        "LOOKUP IN users sarah",
        "LOOKUP table=users [sarah]",
        'LOOKUP FROM"users" sarah',
    ],
)
def test_table_parses_in_all_notations(query: str) -> None:
    assert parse_query(query) == Lookup(("sarah",), "users")


@pytest.mark.parametrize(
    "query",
    [
        'FUZZY "sara c" THRESHOLD 0.7 LIMIT 3 FROM users',
        "FUZZY limit=3 in=users sara c threshold=.7",
        "FUZZY TABLE users THRESHOLD = 7e-1 sara c LIMIT 3",
        "fuzzy sara c limit = 3 threshold= 0.70 from users",
    ],
)
def test_clauses_parse_in_any_order(query: str) -> None:
    assert parse_query(query) == Fuzzy("sara c", 0.7, 3, "users")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SEARCH red, green and blue", "red, green and blue"),
        ("SEARCH meeting with sarah about type theory", "meeting with sarah about type theory"),
        ("SEARCH notes (from last week)", "notes (from last week)"),
        ("SEARCH a=b c=d", "a=b c=d"),
        ("SEARCH foo; bar", "foo; bar"),
        ("SEARCH [draft] notes", "[draft] notes"),
        ("SEARCH 'mode'", "mode"),
    ],
)
def test_text_parses_without_quotes(query: str, text: str) -> None:
    assert parse_query(query) == Search(text)


def test_smallest_and_largest_numbers_are_valid() -> None:
    assert parse_query("FUZZY x THRESHOLD 0 LIMIT 1") == Fuzzy("x", 0, 1)
    assert parse_query("FUZZY x THRESHOLD 1 LIMIT 10000") == Fuzzy("x", 1, 10_000)
    assert parse_query("TRAVERSE x DEPTH 100") == Traverse(Lookup(("x",)), depth=100)


def test_modes_and_directions_ignore_case() -> None:
    assert parse_query("SEARCH x MODE Vector") == Search("x", mode="vector")
    assert parse_query("TRAVERSE x DIRECTION IN") == Traverse(Lookup(("x",)), direction="in")
    assert parse_query("SEARCH x mode='text'") == Search("x", mode="text")


@pytest.mark.parametrize(
    "query",
    [
        "TRAVERSE manages, mentors FROM Sarah Chen",
        "TRAVERSE FROM Sarah Chen TYPE manages, mentors",
        "TRAVERSE TYPE manages,mentors Sarah Chen",
        'TRAVERSE "Sarah Chen" type=["manages", mentors]',
        "TRAVERSE Sarah Chen rel_type=manages,mentors",
        'TRAVERSE [manages, mentors] WITH LOOKUP "Sarah Chen"',
        'TRAVERSE "manages", mentors WITH (LOOKUP "Sarah Chen")',
        "TRAVERSE from='Sarah Chen' REL_TYPE manages, mentors",
        "TRAVERSE with=(LOOKUP Sarah Chen) TYPE manages, mentors",
    ],
)
def test_edge_types_and_start_parse_in_all_notations(query: str) -> None:
    assert parse_query(query) == Traverse(Lookup(("Sarah Chen",)), ("manages", "mentors"))


def test_word_is_an_edge_type_only_before_from_or_with() -> None:
    assert parse_query("TRAVERSE manages") == Traverse(Lookup(("manages",)))
    assert parse_query("TRAVERSE manages DEPTH 2 FROM x") == Traverse(Lookup(("x",)), ("manages",), 2)
    assert parse_query("TRAVERSE TYPE manages x") == Traverse(Lookup(("x",)), ("manages",))


def test_inner_query_takes_the_clauses_it_supports() -> None:
    query = "TRAVERSE WITH SEARCH Sally FROM users MODE text WHERE a = 1 DEPTH 2 TYPE manages ORDER BY weight"
    tree = parse_query(query)
    assert isinstance(tree, Traverse)
    assert (tree.depth, tree.edge_types, tree.order_by) == (2, ("manages",), "weight")
    assert isinstance(tree.start, Search)
    assert (tree.start.text, tree.start.table, tree.start.mode) == ("Sally", "users", "text")
    assert tree.start.where is not None
    assert tree.start.where.text == "a = 1"


def test_limit_belongs_to_traverse_unless_inner_query_is_in_parentheses() -> None:
    assert parse_query("TRAVERSE WITH FUZZY x LIMIT 3") == Traverse(Fuzzy("x"), limit=3)
    assert parse_query("TRAVERSE WITH (FUZZY x LIMIT 3)") == Traverse(Fuzzy("x", limit=3))
    assert parse_query("TRAVERSE WITH (FUZZY x LIMIT 3) LIMIT 4") == Traverse(Fuzzy("x", limit=3), limit=4)
    assert parse_query("TRAVERSE LIMIT 4 WITH FUZZY x THRESHOLD 0.1") == Traverse(Fuzzy("x", 0.1), limit=4)


def test_traversals_can_be_nested() -> None:
    inner = Traverse(Lookup(("x",)), depth=2)
    assert parse_query("TRAVERSE WITH (TRAVERSE x DEPTH 2) DEPTH 3") == Traverse(inner, depth=3)
    assert parse_query("TRAVERSE WITH TRAVERSE x DEPTH 2 LIMIT 9") == Traverse(inner, limit=9)
    assert _start("TRAVERSE WITH ((LOOKUP x))") == Lookup(("x",))


@pytest.mark.parametrize(
    ("query", "statement"),
    [
        ("TRAVERSE WITH (SELECT key FROM t WHERE a = ')') DEPTH 1", "SELECT key FROM t WHERE a = ')'"),
        ("TRAVERSE WITH (SELECT 1 -- )\n) DEPTH 1", "SELECT 1 -- )"),
        ("TRAVERSE WITH (WITH x AS (SELECT 1) SELECT * FROM x)", "WITH x AS (SELECT 1) SELECT * FROM x"),
        ("TRAVERSE WITH (SQL users WHERE a = 1 LIMIT 5)", "SELECT * FROM users WHERE a = 1 LIMIT 5"),
        ("TRAVERSE WITH (SQL SELECT 1)", "SELECT 1"),
        ("TRAVERSE WITH ((SELECT 1) UNION (SELECT 2))", "(SELECT 1) UNION (SELECT 2)"),
    ],
)
def test_inner_sql_parses_in_parentheses(query: str, statement: str) -> None:
    assert _start(query) == Sql(statement)


@pytest.mark.parametrize(
    ("order_by", "terms"),
    [
        ("weight", [OrderTerm("weight")]),
        ("weight DESC, depth asc", [OrderTerm("weight", True), OrderTerm("depth")]),
        ("-weight, metadata.rank", [OrderTerm("weight", True), OrderTerm("metadata.rank")]),
    ],
)
def test_order_by_of_traverse_parses_into_terms(order_by: str, terms: list[OrderTerm]) -> None:
    assert parse_query(f"TRAVERSE x ORDER BY {order_by} LIMIT 3") == Traverse(
        Lookup(("x",)), limit=3, order_by=order_by
    )
    assert parse_query(f"TRAVERSE order_by='{order_by}' x") == Traverse(Lookup(("x",)), order_by=order_by)
    assert parse_order_by(order_by) == terms


@pytest.mark.parametrize(
    ("query", "statement"),
    [
        ("SQL resources", "SELECT * FROM resources"),
        ("SQL resources LIMIT 5 WHERE a = 1", "SELECT * FROM resources WHERE a = 1 LIMIT 5"),
        ("sql sessions where mode = 'chat' order by name", "SELECT * FROM sessions WHERE mode = 'chat' ORDER BY name"),
        ("SQL table=resources limit=5", "SELECT * FROM resources LIMIT 5"),
        ("SQL t WHERE (a IN (SELECT b FROM c LIMIT 1))", "SELECT * FROM t WHERE (a IN (SELECT b FROM c LIMIT 1))"),
        ("SQL t WHERE \"a = 'x'\"", "SELECT * FROM t WHERE a = 'x'"),
        ("SQL t WHERE 'a' = b", "SELECT * FROM t WHERE 'a' = b"),
        ("SQL select 1 ;", "select 1"),
        ("SELECT 1; ", "SELECT 1"),
        ("SELECT 1; -- done\n/* ; */;", "SELECT 1"),
        ("SELECT ';', \"a;\", $$;$$, $x$;$$;$x$, E'\\';' -- ;", "SELECT ';', \"a;\", $$;$$, $x$;$$;$x$, E'\\';' -- ;"),
        ("/* ; */ SELECT 1 /* /* ) */ ; */", "/* ; */ SELECT 1 /* /* ) */ ; */"),
        ("(SELECT 1) UNION (SELECT 2)", "(SELECT 1) UNION (SELECT 2)"),
        ("SELECT a$b$c, d", "SELECT a$b$c, d"),
    ],
)
def test_sql_statement_is_unchanged(query: str, statement: str) -> None:
    assert parse_query(query) == Sql(statement)


@pytest.mark.parametrize(
    ("query", "since", "until"),
    [
        ('SEARCH "x" SINCE 2026-07-01 UNTIL 2026-08-01', "2026-07-01", "2026-08-01"),
        ('SEARCH UNTIL 2026-08-01 "x" SINCE 2026-07-01', "2026-07-01", "2026-08-01"),
        ("SEARCH x since yesterday", "yesterday", None),
        ("SEARCH x SINCE last week LIMIT 3", "last week", None),
        ('SEARCH x SINCE "last   week"', "last week", None),
        ("SEARCH x SINCE two weeks ago UNTIL 7d", "two weeks ago", "7d"),
        ("SEARCH x since=7d until='3 May 2026'", "7d", "3 May 2026"),
        ("SEARCH x SINCE 2026-07-01T10:00:00+02:00", "2026-07-01T10:00:00+02:00", None),
        ("SEARCH x SINCE 2026-07-01 10:00", "2026-07-01 10:00", None),
        ("SEARCH x WHERE category = 'docs' SINCE July 2026 MODE text", "July 2026", None),
        ("SEARCH x UNTIL gestern", None, "gestern"),
        ("SEARCH x SINCE letzte Woche", "letzte Woche", None),
    ],
)
def test_time_range_parses_and_prints(query: str, since: str | None, until: str | None) -> None:
    tree = parse_query(query)
    assert isinstance(tree, Search)
    assert (tree.text, tree.since, tree.until) == ("x", since, until)
    assert parse_query(print_query(tree)) == tree
    json = to_json(tree)
    assert (json.get("since"), json.get("until")) == (since, until)


def test_time_range_is_absent_from_other_trees() -> None:
    assert not {"since", "until"} & set(to_json(parse_query("SEARCH x")))


@pytest.mark.parametrize(
    "text", ["since we moved to Aarhus", "what changed since the move", "until dawn", "nothing until", "ever since"]
)
def test_since_without_a_time_is_a_word(text: str) -> None:
    assert parse_query(f"SEARCH {text}") == Search(text)
    assert parse_query(f"FUZZY {text}") == Fuzzy(text)
    assert parse_query(f"LOOKUP {text}") == Lookup((text,))


@pytest.mark.parametrize(
    ("query", "without"),
    [
        ("REM LOOKUP x", "LOOKUP x"),
        ("rem search boats limit 3", "SEARCH boats LIMIT 3"),
        ("REM SELECT 1", "SELECT 1"),
        ("REM SQL users", "SQL users"),
        ("REM   TRAVERSE WITH (REM LOOKUP x) DEPTH 2", "TRAVERSE x DEPTH 2"),
        ("TRAVERSE WITH REM LOOKUP x DEPTH 2", "TRAVERSE x DEPTH 2"),
    ],
)
def test_prefix_rem_is_ignored(query: str, without: str) -> None:
    assert parse_query(query) == parse_query(without)
    assert parse_query("LOOKUP rem") == Lookup(("rem",))


@pytest.mark.parametrize(
    ("query", "suggestion"),
    [
        ("SEARCH migration LIMT 3", "SEARCH migration LIMIT 3"),
        ("search migration limti 3;", "search migration LIMIT 3;"),
        ("FUZZY sara treshold 0.7", "FUZZY sara THRESHOLD 0.7"),
        ("SEARCH x MOD text", "SEARCH x MODE text"),
        ("SEARCH x untill friday", "SEARCH x UNTIL friday"),
        ("LOOKUP sarah FORM users", "LOOKUP sarah FROM users"),
        ("TRAVERSE sara DEPT 2", "TRAVERSE sara DEPTH 2"),
        ("SEARCH migration LIMIT 3", None),
        ('SEARCH "migration LIMT 3"', None),
        ("SEARCH speed limits 3 countries", None),
        ("SEARCH a letter form users", None),
        ("SEARCH a model text", None),
        ("SEARCH LIMT", None),
        ("SEARCH x LIMIT", None),
        (f"SEARCH {'x ' * 5000} LIMT 3", None),
    ],
)
def test_misspelt_clause_is_found(query: str, suggestion: str | None) -> None:
    assert suggest_clause(query) == suggestion
