"""References are replaced by values in the tree, where no value can change the query."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rem.errors import InvalidInputError
from rem.query.language.parser import parse_query
from rem.query.language.printer import print_condition, print_query
from rem.query.language.where import parse_condition
from rem.query.plans.references import RowSelection
from rem.query.plans.template import MAX_VALUES, NoInputError, Template
from rem.query.syntax_tree import Lookup, Query, Search, Traverse
from tests.query.query_strategies import conditions, strings

_STAGES = ("a", "b")
_PERSON = {
    "table": "users",
    "key": "zoë",
    "record": {"name": "Zoë", "tags": ["x", "y"], "metadata": {"n": 3, "no": None}},
}


def fill(query: str, a: list[dict[str, Any]], b: list[dict[str, Any]] | None = None) -> tuple[Query, list[str]]:
    template = Template.parse(query, _STAGES)
    stages = {"a": a, "b": b or []}
    return template.bind({one.source: one.source.select(stages[one.source.stage]) for one in template.references})


def filled(query: str, *a: dict[str, Any], b: list[dict[str, Any]] | None = None) -> str:
    return print_query(fill(query, list(a), b)[0])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("LOOKUP {a}", 'LOOKUP "zoë"'),
        ("LOOKUP {a.key} IN users", 'LOOKUP "zoë" FROM users'),
        ('LOOKUP "{a.table}/{a.key}"', 'LOOKUP "users/zoë"'),
        ("LOOKUP [{a.key}, other]", 'LOOKUP "zoë", "other"'),
        ("LOOKUP {a.record.tags}", 'LOOKUP "x", "y"'),
        ("LOOKUP {a.record.tags.1}", 'LOOKUP "y"'),
        ("LOOKUP {a.record.metadata.n}", 'LOOKUP "3"'),
        ("FUZZY {a.record.name} LIMIT 2", 'FUZZY "Zoë" LIMIT 2'),
        ("SEARCH what {a.record.name} wrote FROM resources", 'SEARCH "what Zoë wrote" FROM resources'),
        ("SEARCH '{a.record.name}'", 'SEARCH "Zoë"'),
        ("SEARCH x WHERE name = '{a.record.name}'", "SEARCH \"x\" WHERE name = 'Zoë'"),
        ("SEARCH x WHERE ordinal > '{a.record.metadata.n}'", 'SEARCH "x" WHERE ordinal > 3'),
        ("SEARCH x WHERE NOT tags IN ('{a.record.tags}', 'z')", "SEARCH \"x\" WHERE NOT (tags IN ('x', 'y', 'z'))"),
        (
            "SEARCH x WHERE n BETWEEN '{a.key}' AND 'zz' AND b = 1",
            "SEARCH \"x\" WHERE n BETWEEN 'zoë' AND 'zz' AND b = 1",
        ),
        ("TRAVERSE FROM {a.key} TYPE {a.record.tags}", 'TRAVERSE FROM "zoë" TYPE "x", "y"'),
        ("TRAVERSE {a.record.name} WITH (SEARCH {a.key} LIMIT 1)", 'TRAVERSE WITH (SEARCH "zoë" LIMIT 1) TYPE "Zoë"'),
        ('SEARCH {{a.key}} and {"n": 1}', r'SEARCH "{a.key} and {\"n\": 1}"'),
        ("SEARCH {not a reference}", 'SEARCH "{not a reference}"'),
        ("SELECT '{x,y}'::text[], '{{1}}'", "SELECT '{x,y}'::text[], '{{1}}'"),
    ],
)
def test_reference_is_replaced_by_the_values_at_its_path(query: str, expected: str) -> None:
    assert filled(query, _PERSON) == expected


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("LOOKUP {a.key}", "0123"),
        ("LOOKUP {a[0].key}", "0"),
        ("LOOKUP {a[:2].key}", "01"),
        ("LOOKUP {a[2:].key}", "23"),
        ("LOOKUP {a[1:3].key}", "12"),
    ],
)
def test_reference_can_select_rows(query: str, keys: str) -> None:
    assert fill(query, [{"key": str(n)} for n in range(4)])[0] == Lookup(tuple(keys))


def test_references_combine_by_row_or_as_product() -> None:
    rows: list[dict[str, Any]] = [{"key": "1", "to": ["x", "y"]}, {"key": "2"}, {"key": "3", "to": "z"}]
    assert fill('LOOKUP "{a.key}{a.to}"', rows)[0] == Lookup(("1x", "1y", "3z"))
    assert fill('LOOKUP "{b.key}{a.key}"', rows, [{"key": "p"}, {"key": "q"}])[0] == Lookup(
        ("p1", "p2", "p3", "q1", "q2", "q3")
    )


def test_values_are_unique_and_limited() -> None:
    assert fill("LOOKUP {a.key}", [{"key": "x"}] * 3)[0] == Lookup(("x",))
    query, notes = fill("LOOKUP {a.key}", [{"key": str(n)} for n in range(5_000)])
    assert isinstance(query, Lookup)
    assert len(query.keys) == MAX_VALUES
    assert notes == ["{a.key} stands for the first 1,000 values of more."]
    many = [{"key": str(n)} for n in range(10_000)]
    query, _ = fill('LOOKUP "{a.key}-{b.key}"', many, many)
    assert isinstance(query, Lookup)
    assert len(query.keys) == MAX_VALUES


def test_single_value_operand_takes_first_value_and_adds_a_note() -> None:
    query, notes = fill("SEARCH {a.key}", [{"key": "x"}, {"key": "y"}])
    assert query == Search("x")
    assert notes == ["{a.key} stands for 2 values, and only the first was used: `for_each` runs the stage for each."]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("LOOKUP {b.key}", "b gave no rows for {b.key}."),
        ("LOOKUP {a[5].key}", r"^a gave no rows for {a\[5\].key}.$"),
        ("LOOKUP {a.record}", r"The rows of a \(table, key, record\) have no value for {a.record}."),
        ("LOOKUP {a.record.metadata.no}", "have no value for {a.record.metadata.no}."),
        ("LOOKUP {a.name}", r"\(`record` does: name it first\)"),
        ("LOOKUP {a.record.blank}", "no value"),
        ("FUZZY {a.record.tags.7}", "no value"),
        ("FUZZY {a.key.deeper}", "no value"),
        ("TRAVERSE FROM x TYPE {b.key}", "b gave no rows"),
        ("SEARCH x WHERE a IN ('{b.key}')", "b gave no rows"),
        ("SEARCH x WHERE a = '{b.key}'", "b gave no rows"),
        ("SEARCH {a.key} {b.key}", "^b gave no rows for {b.key}.$"),
        ("SEARCH {a.record.metadata.no} {a.key}", "^The rows of a"),
        ("SEARCH {a.record.one} {a.record.other}", "^No row has all of {a.record.one}, {a.record.other}.$"),
    ],
)
def test_missing_value_raises_no_input_error_with_reason(query: str, reason: str) -> None:
    with pytest.raises(NoInputError, match=reason):
        fill(query, [_PERSON, {"record": {"one": 1, "blank": ["", " "]}}, {"record": {"other": 1}}])


def test_list_operand_leaves_out_missing_values() -> None:
    query, notes = fill("LOOKUP {a.key}, {b.key}", [_PERSON])
    assert query == Lookup(("zoë",))
    assert notes == ["b gave no rows for {b.key}."]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("LOOKUP {c.key}", r"\{c\.key\} refers to no stage\. The stages are a, b; .* doubled: \{\{c\.key\}\}\."),
        ("LOOKUP {a.}", r"\{a\.\} is no reference: write \{a\.key\}"),
        ("LOOKUP {a[-1].key}", "is no reference"),
        ("LOOKUP {a key}", "is no reference"),
        ("SEARCH x FROM {a.table}", r"\{a\.table\} cannot stand here"),
        ("SEARCH x FIELD {a.key}", "cannot stand here"),
        ("SEARCH x WHERE {a.key} = 1", "cannot stand here"),
        ("TRAVERSE x ORDER BY {a.key}", "cannot stand here"),
        (
            "SEARCH x LIMIT {a.key}",
            r"LIMIT takes a whole number from 1 to 10,000, not '\{a\.key\}' \(line 1, column 16\)",
        ),
        ("SEARCH x WHERE a = {a.key}", r"text stands in quotes(?s:.*)Did you mean: SEARCH x WHERE a = '\{a\.key\}'"),
        ("SELECT * FROM users WHERE name = '{a.key}'", r"\{a\.key\} stands in SQL, which takes no references"),
        ("SQL users WHERE name = '{b.key}'", "stands in SQL"),
        ("TRAVERSE WITH (SELECT key FROM users WHERE name = '{a.key}')", "stands in SQL"),
        ("{a.key}", r"Unknown verb '\{a\.key\}'"),
        ("LOOKUP " + ", ".join(["{a.key}"] * 700), "too many references"),
    ],
)
def test_invalid_reference_is_an_error(query: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Template.parse(query, _STAGES)


@settings(deadline=None)
@given(st.lists(strings, min_size=1, max_size=3))
def test_no_value_can_change_the_query(values: list[str]) -> None:
    rows = [{"key": value} for value in values]
    once = tuple(dict.fromkeys(values))
    assert fill("LOOKUP {a.key} IN users", rows)[0] == Lookup(once, "users")
    assert fill("TRAVERSE FROM {a.key} TYPE '{a.key}' LIMIT 3", rows)[0] == Traverse(Lookup(once), once, limit=3)
    query, _ = fill("SEARCH 'about {a.key}' WHERE name = '{a.key}' OR name IN ('{a.key}') LIMIT 3", rows)
    assert isinstance(query, Search)
    assert (query.text, query.limit) == (f"about {values[0]}", 3)
    for tree in (query, fill("LOOKUP {a.key} IN users", rows)[0]):
        assert parse_query(print_query(tree)) == tree
    assert query.where is not None
    assert parse_condition(query.where.text) == query.where.condition


def test_mark_letters_in_the_query_are_ordinary_text() -> None:
    mark = "\u1401"
    assert filled(f'LOOKUP "{mark}", {{a.key}}', {"key": mark}) == f'LOOKUP "{mark}"'
    assert filled(f"LOOKUP {mark * 7}, {{a.key}}", {"key": "\u1402"}) == f'LOOKUP "{mark * 7}", "\u1402"'


@settings(deadline=None)
@given(conditions)
def test_printed_condition_parses_to_the_same_condition(text: str) -> None:
    condition = parse_condition(text)
    assert parse_condition(print_condition(condition)) == condition


def test_selections_are_compared_by_notation() -> None:
    sources = [one.source for one in Template.parse("LOOKUP {a.key}, {a[0:].key}, {a[0].key}", _STAGES).references]
    assert sources == [RowSelection("a"), RowSelection("a", (0, None)), RowSelection("a", (0, 1))]
