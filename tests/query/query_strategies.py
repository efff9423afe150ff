"""Hypothesis strategies for query trees: every verb, nested, with difficult strings."""

from __future__ import annotations

from hypothesis import strategies as st

from rem.query.parser import parse_query
from rem.query.syntax_errors import quote
from rem.query.tree import Filter, Fuzzy, Lookup, Query, Search, Sql, Traverse

_DIFFICULT = [
    '"',
    "'",
    "\\",
    '\\"',
    "a\\",
    "--",
    "; LOOKUP x",
    ")",
    "(",
    "[x]",
    "LIMIT 5",
    "from",
    "a, b",
    "a=b",
    "\n",
    "é日",
]
_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
strings = st.one_of(
    st.text(_CHARACTERS, min_size=1, max_size=20),
    st.lists(st.sampled_from(_DIFFICULT), min_size=1).map(" ".join),
).filter(lambda text: bool(text.strip()))
names = st.one_of(st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True), st.sampled_from(["limit", "Mode", "type"]))
_limits = st.integers(1, 10_000)
_times = st.sampled_from(["2026-07-01", "2026-07-01T10:00+02:00", "2026-07-01 10:00", "yesterday", "last week", "7d"])
_fractions = st.floats(0, 1)
_values = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(str),
    strings.map(quote),
    strings.map(lambda text: "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"),
    st.sampled_from(["TRUE", "false"]),
)
_fields = st.one_of(names, st.just("metadata.Some.path-0"), strings.map(quote)).filter(
    lambda name: (
        name.upper() not in {"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "CONTAINS", "IS", "NULL"}
        and name.upper() not in {"TRUE", "FALSE"}
        and name != "tags"
    )
)
_comparisons = st.one_of(
    st.builds("{} {} {}".format, _fields, st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="]), _values),
    st.builds("{} NOT IN ({}, {})".format, _fields, _values, _values),
    st.builds("{} BETWEEN {} AND {}".format, _fields, _values, _values),
    st.builds("{} LIKE {}".format, _fields, strings.map(quote)),
    st.builds("{} IS NOT NULL".format, _fields),
    st.builds("tags CONTAINS ({})".format, _values),
)
conditions = st.recursive(
    _comparisons,
    lambda inner: st.one_of(
        st.builds("{} AND {}".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT {}".format, inner),
    ),
    max_leaves=5,
)


def _filter(text: str) -> Filter:
    tree = parse_query(f"SEARCH x WHERE {quote(text)}")
    assert isinstance(tree, Search)
    assert tree.where is not None
    return tree.where


_filters = st.one_of(conditions, conditions.map(lambda text: f" {text}\n")).map(_filter)
_statements = st.sampled_from(
    [
        "SELECT 1 -- it's",
        "SELECT ';)', $$ ' ; ) $$ /* ) ; */",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "(SELECT 1) UNION (SELECT 2)",
        'select E\'\\\'\' || "a""b;" FROM t',
    ]
)
_orders = st.sampled_from(["weight", "weight DESC, depth", "-metadata.rank", "depth ASC", "Type desc, x"])
lookups = st.builds(Lookup, st.lists(strings, min_size=1, max_size=4).map(tuple), st.none() | names)
fuzzies = st.builds(Fuzzy, strings, _fractions, _limits, st.none() | names)
searches = st.builds(
    Search,
    strings,
    st.none() | names,
    _limits,
    st.none() | _filters,
    st.none() | names | st.just("metadata.summary"),
    _fractions,
    st.sampled_from(["hybrid", "vector", "text"]),
    st.none() | _times,
    st.none() | _times,
)
sqls = st.builds(Sql, _statements)
queries: st.SearchStrategy[Query] = st.recursive(
    st.one_of(lookups, fuzzies, searches, sqls),
    lambda inner: st.builds(
        Traverse,
        inner,
        st.lists(strings, max_size=3).map(tuple),
        st.integers(0, 100),
        st.none() | _limits,
        st.sampled_from(["out", "in", "both"]),
        st.none() | _orders,
    ),
    max_leaves=4,
)
