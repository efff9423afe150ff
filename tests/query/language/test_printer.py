"""A printed tree parses to the same tree."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from rem.query.parser import parse_query
from rem.query.printer import print_query
from rem.query.tree import Query
from tests.query.conformance_cases import CASES
from tests.query.query_strategies import queries


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(queries)
def test_printed_tree_parses_to_the_same_tree(tree: Query) -> None:
    printed = print_query(tree)
    assert parse_query(printed) == tree
    assert print_query(parse_query(printed)) == printed


@pytest.mark.parametrize("query", [query for query, _ in CASES])
def test_printed_conformance_case_parses_to_the_same_tree(query: str) -> None:
    assert parse_query(print_query(parse_query(query))) == parse_query(query)


@pytest.mark.parametrize(
    ("query", "printed"),
    [
        ("lookup a, 'b c' in users", 'LOOKUP "a", "b c" FROM users'),
        ("FUZZY limit=5 threshold=0.5 x", 'FUZZY "x"'),
        ("FUZZY x threshold=1e-5", 'FUZZY "x" THRESHOLD 1e-05'),
        ("SEARCH x FROM 'limit'", 'SEARCH "x" FROM "limit"'),
        ("SEARCH x mode=text WHERE \"a = 'b'\" in t", "SEARCH \"x\" FROM t WHERE a = 'b' MODE text"),
        ("SEARCH x WHERE \"mode = 'a'\"", 'SEARCH "x" WHERE "mode = \'a\'"'),
        ('SEARCH x WHERE " a = 1"', 'SEARCH "x" WHERE " a = 1"'),
        (r'SEARCH x WHERE "\"a = 1\" = 2"', r'SEARCH "x" WHERE "\"a = 1\" = 2"'),
        ("TRAVERSE a WITH LOOKUP x LIMIT 3", 'TRAVERSE FROM "x" TYPE "a" LIMIT 3'),
        ("TRAVERSE WITH LOOKUP x IN users", 'TRAVERSE WITH (LOOKUP "x" FROM users)'),
        ("TRAVERSE WITH (SELECT 1 -- x\n)", "TRAVERSE WITH (SELECT 1 -- x\n)"),
        ("SQL resources LIMIT 3", "SELECT * FROM resources LIMIT 3"),
    ],
)
def test_printed_query_omits_defaults_and_quotes_text(query: str, printed: str) -> None:
    assert print_query(parse_query(query)) == printed
