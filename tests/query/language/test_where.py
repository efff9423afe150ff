"""WHERE parses into a condition, and its text stays in the tree."""

from __future__ import annotations

from typing import Any

import pytest

from rem.db.conditions import And, Between, Compare, Condition, ConditionCompiler, In, IsNull, Not, Or
from rem.db.table import get_table
from rem.errors import QuerySyntaxError
from rem.models import Resource
from rem.query.parser import parse_query
from rem.query.tree import Search


def parse_where(where: str) -> Condition:
    """Parse a WHERE. Check that it gives the same condition in quotes and in parentheses."""
    tree = parse_query(f"SEARCH x WHERE {where} LIMIT 3")
    assert isinstance(tree, Search)
    assert tree.where is not None
    assert tree.where.text == where
    assert tree.limit == 3
    escaped = where.replace("\\", "\\\\").replace('"', '\\"')
    for variant in (f'SEARCH where="{escaped}" x', f"SEARCH x WHERE ({where}) MODE text", f"SEARCH x WHERE\n{where}"):
        other = parse_query(variant)
        assert isinstance(other, Search)
        assert other.where is not None
        assert other.where.condition == tree.where.condition
    return tree.where.condition


@pytest.mark.parametrize(
    ("where", "condition"),
    [
        ("category = 'docs'", Compare("category", "=", "docs")),
        ("category='docs'", Compare("category", "=", "docs")),
        ('category = "docs"', Compare("category", "=", "docs")),
        ("Category != 'docs'", Compare("category", "<>", "docs")),
        ("ordinal <> 3", Compare("ordinal", "<>", 3)),
        ("ordinal<-3", Compare("ordinal", "<", -3)),
        ("ordinal <= 1.5e2", Compare("ordinal", "<=", 150.0)),
        ("ordinal > .5", Compare("ordinal", ">", 0.5)),
        ("ordinal >= 0", Compare("ordinal", ">=", 0)),
        ("metadata.done = TRUE", Compare("metadata.done", "=", True)),
        ("metadata.Deep.path-to.0 = false", Compare("metadata.Deep.path-to.0", "=", False)),
        ('"metadata.a key" = 1', Compare("metadata.a key", "=", 1)),
        ("name = 'O''Brien'", Compare("name", "=", "O'Brien")),
        (r"name = 'O\'Brien'", Compare("name", "=", "O'Brien")),
        ("name = '\"\"'", Compare("name", "=", '""')),
        (r"name LIKE '50\%'", Compare("name", "LIKE", r"50\%")),
        ("name = 'LIMIT 5 ('", Compare("name", "=", "LIMIT 5 (")),
        ("name ilike '%a%'", Compare("name", "ILIKE", "%a%")),
        ("name NOT LIKE 'a'", Not(Compare("name", "LIKE", "a"))),
        ("category IN ('a', 'b')", In("category", ("a", "b"))),
        ("category NOT IN ['a', NULL]", Not(In("category", ("a", None)))),
        (
            "created_at BETWEEN '2026-01-01' AND '2026-02-01'",
            Between("created_at", "2026-01-01", "2026-02-01"),
        ),
        ("ordinal not between 1 and 2", Not(Between("ordinal", 1, 2))),
        ("uri IS NULL", IsNull("uri")),
        ("uri IS NOT NULL", Not(IsNull("uri"))),
        ("uri = NULL", IsNull("uri")),
        ("uri <> null", Not(IsNull("uri"))),
        ("tags CONTAINS 'a'", Compare("tags", "CONTAINS", "a")),
        ("tags CONTAINS ('a', 'b')", Compare("tags", "CONTAINS", ["a", "b"])),
        ("tags NOT CONTAINS 'a'", Not(Compare("tags", "CONTAINS", "a"))),
        ("tags IN ('a', 'b')", In("tags", ("a", "b"))),
        ("'a' IN tags", Compare("tags", "CONTAINS", "a")),
        ("'a' NOT IN tags", Not(Compare("tags", "CONTAINS", "a"))),
        ("NOT a = 1", Not(Compare("a", "=", 1))),
        ("a = 1 AND b = 2 AND c = 3", And((Compare("a", "=", 1), Compare("b", "=", 2), Compare("c", "=", 3)))),
        (
            "a = 1 OR b = 2 AND NOT c = 3",
            Or((Compare("a", "=", 1), And((Compare("b", "=", 2), Not(Compare("c", "=", 3)))))),
        ),
        (
            "(a = 1 OR b = 2) AND c = 3",
            And((Or((Compare("a", "=", 1), Compare("b", "=", 2))), Compare("c", "=", 3))),
        ),
        ("(mode = 'chat')", Compare("mode", "=", "chat")),
    ],
)
def test_condition_parses(where: str, condition: Condition) -> None:
    assert parse_where(where) == condition


def test_condition_compiles_to_sql_with_bound_values() -> None:
    condition = parse_where("category = 'x'' OR true' AND created_at > '2026-01-01' AND tags CONTAINS 'a'")
    parameters: list[Any] = []
    statement = ConditionCompiler(get_table(Resource), parameters).compile(condition)
    assert "x'" not in statement
    assert parameters[0] == "x' OR true"
    assert parameters[1].year == 2026
    assert parameters[2] == ["a"]


def test_any_clause_may_follow_quoted_condition() -> None:
    tree = parse_query("SEARCH x WHERE \"mode = 'chat'\" IN sessions")
    assert isinstance(tree, Search)
    assert tree.table == "sessions"
    assert tree.where is not None
    assert tree.where.text == "mode = 'chat'"


@pytest.mark.parametrize(
    ("where", "at", "reason", "suggestion"),
    [
        ("", 0, "WHERE needs a condition", None),
        ("a", 1, "Expected an operator after 'a'", None),
        ("a == 1", 2, "Expected an operator", "a = 1"),
        ("a LIK 'x'", 2, "not 'LIK'", "a LIKE 'x'"),
        ("a = docs", 4, "text stands in quotes", "a = 'docs'"),
        ("a = ", 3, "Expected a value", None),
        ("a < NULL", 2, "IS NULL", None),
        ("tags = 'a'", 5, "CONTAINS", "tags CONTAINS 'a'"),
        ("a = 1 b = 2", 6, "Expected AND, OR or the end", None),
        ("a = 1 ADN b = 2", 6, "Expected AND, OR or the end", "a = 1 AND b = 2"),
        ("a = 1 LIMT 5", 6, "not 'LIMT'", "a = 1 LIMIT 5"),
        ("a = 1 AND", 9, "Expected a field", None),
        ("AND a = 1", 0, "Expected a field", None),
        ("a IN 5", 5, "list of values", "a IN (5)"),
        ("a IN ()", 6, "Expected a value", None),
        ("a IN (1 2)", 8, "Expected ',' or ')'", None),
        ("a BETWEEN 1", 11, "BETWEEN needs AND", None),
        ("a LIKE 5", 7, "a pattern in quotes", "a LIKE '5%'"),
        ("a IS TRUE", 5, "IS takes NULL", "a = TRUE"),
        ("(a = 1", 0, "Unclosed '('", "(a = 1)"),
        ("(a = 1]", 6, "does not close", None),
        ("a = 'x", 4, "Unclosed string", "a = 'x'"),
        ("lower(a) = 'x'", 0, "no functions", None),
        ("metadata->>'a' = 'x'", 8, "metadata.source", None),
        ("a = 1 FROM t", 6, "not 'FROM'", '"a = 1" FROM t'),
        ("mode = 'chat'", 0, "WHERE needs a condition", "\"mode = 'chat'\""),
        ("a = 1e999", 4, "too large", None),
        ("a = " + "9" * 400, 4, "300 digits", None),
        ("NOT " * 60 + "a = 1", 204, "50 levels", None),
        ("(" * 60 + "a = 1" + ")" * 60, 50, "50 levels", None),
    ],
)
def test_error_in_condition_has_its_position_in_the_query(
    where: str, at: int, reason: str, suggestion: str | None
) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(f"SEARCH x WHERE {where}")
    assert reason in caught.value.reason
    assert caught.value.column == len("SEARCH x WHERE ") + 1 + at - (1 if where == "" else 0)
    assert caught.value.suggestion == (None if suggestion is None else f"SEARCH x WHERE {suggestion}")


def test_error_position_in_quoted_condition_counts_backslashes() -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(r'SEARCH x WHERE "a = \"docs\" AND b = docs"')
    assert caught.value.column == len(r'SEARCH x WHERE "a = \"docs\" AND b = ') + 1
    assert caught.value.suggestion == r"""SEARCH x WHERE "a = \"docs\" AND b = 'docs'" """.strip()
