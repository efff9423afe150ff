"""Check a SELECT before it goes to the sandbox, and explain what is not allowed and what to do instead.

The check only looks at words, in one pass, and accepts what it does not understand. The database enforces the limits
(`db/functions/sandbox.sql`), and PostgreSQL explains its own syntax best.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rem.errors import QueryLimitError
from rem.query.language.sql_lexer import SqlWord, split_sql_words
from rem.query.language.syntax_errors import ParseError, to_syntax_error

if TYPE_CHECKING:
    from rem.db.sandbox import ReadableSchema

MAX_BRACKET_DEPTH = 200
MAX_CTE_COLUMNS = 200
_FIRST_WORDS = frozenset({"select", "with", "values", "table"})
_ADVICE = {
    **dict.fromkeys(
        ("insert", "update", "merge", "copy", "into"), "Rows are written by `rem db load` or `store.upsert`"
    ),
    **dict.fromkeys(("delete", "truncate"), "Rows are deleted by `rem delete`"),
    **dict.fromkeys(("create", "alter", "drop"), "Tables of your own are made by `rem db register`"),
    **dict.fromkeys(("set", "reset", "show", "discard"), "Settings are made in the environment"),
    **dict.fromkeys(("explain", "analyze"), "Leave the word out to run the SELECT itself"),
    **dict.fromkeys(("do", "call", "execute", "prepare", "declare", "fetch"), "Write the SELECT itself"),
    "for": "Leave out FOR UPDATE and FOR SHARE, which lock rows",
}
_WRITES = frozenset({"insert", "update", "delete", "merge"})
_END_OF_FROM = frozenset(
    {"where", "group", "having", "window", "order", "limit", "offset", "fetch", "for", "union", "intersect", "except"}
)
_NO_TABLE = frozenset({"lateral", "only", "rows", "select", "values", "with"})
_SYNTAX = """
    all and any array as at between bernoulli bit both by case cast char character coalesce columns cross cube
    current_time current_timestamp decimal default distinct else empty end error escape except exists extract fetch
    filter first float for from full greatest group grouping halfvec having ilike in inner intersect interval is join
    json json_array json_arrayagg json_exists json_object json_objectagg json_query json_scalar json_serialize
    json_table json_value lateral least left like limit localtime localtimestamp materialized natural nested next
    normalize not nullif numeric offset on only operator or order ordinality outer over overlay partition path placing
    preceding range recursive repeatable returning right rollup row rows select sets similar some sparsevec
    substring symmetric system table tablesample then time timestamp timestamptz to trim union using values varchar
    variadic varying vector when where window with within zone
"""
_BEFORE_BRACKET = frozenset(_SYNTAX.split())
_SEARCHES = "LIKE, ~ or regexp_instr(text, pattern)"
_UNSTOPPABLE = {
    "translate": "replace(text, from, to) or regexp_replace(text, pattern, to, 'g')",
    "format": "|| or concat(…), and to_char(…) for numbers and dates",
    "strpos": _SEARCHES,
    "position": _SEARCHES,
}
"""Functions that no timeout can stop, with the alternatives."""
_TRIMS = frozenset({"trim", "btrim", "ltrim", "rtrim"})
_TRIMS_INSTEAD = "trim(text), or regexp_replace(text, '^x+|x+$', '', 'g')"
_TRIM_SIDES = frozenset({"(", "both", "leading", "trailing"})
_NEVER_AN_ALIAS = (
    *_UNSTOPPABLE,
    "repeat",
    "lpad",
    "rpad",
    "array_fill",
    'u&"',
    'U&"',
    "pg_",
    "lo_",
    "txid_",
    "set_",
    "current_",
    "query_",
    "table_",
    "cursor_",
    "dblink",
    "nextval",
    "setval",
)


def check_select(statement: str, readable: ReadableSchema) -> None:
    """Raise QuerySyntaxError, with advice, if the statement is not one SELECT over readable tables and functions."""
    try:
        words = list(split_sql_words(statement))
        _check_kind(words)
        cte_names = {name.text for name in _find_cte_names(words)}
        for at, word in enumerate(words):
            if word.text == "(" and at and words[at - 1].is_name:
                _check_call(words, at, readable.functions)
        for table in _find_tables(words):
            _check_table(table, cte_names, readable.tables)
    except ParseError as problem:
        raise to_syntax_error(statement, problem, None) from None


def _check_kind(words: Sequence[SqlWord]) -> None:
    """Raise ParseError if it is not one statement, or if it writes or locks rows."""
    first = next((word for word in words if word.text != "("), None)
    if first is None:
        raise ParseError(0, "There is no SELECT here: write one, such as SELECT name FROM users LIMIT 3")
    if first.kind != "word" or first.text not in _FIRST_WORDS:
        raise _read_only_error(first)
    previous = first
    for at, word in enumerate(words):
        if previous.kind == "mark" and previous.text == ";" and word.text != ";":
            raise ParseError(word.start, "Only one statement at a time: leave out what follows the ';'")
        before, previous = previous, word
        if word.kind != "word":
            continue
        if word.text == "into" or (word.text in _WRITES and _opens_cte(words, at)):
            raise _read_only_error(word)
        if word.text in ("update", "share", "key", "no") and before.text == "for" and before.kind == "word":
            raise _read_only_error(before)


def _opens_cte(words: Sequence[SqlWord], at: int) -> bool:
    """Return whether a CTE begins here: `AS (DELETE …`, `AS MATERIALIZED (DELETE …`."""
    return at >= 2 and words[at - 1].text == "(" and words[at - 2].text in ("as", "materialized")


def _check_call(words: Sequence[SqlWord], at: int, functions: frozenset[str]) -> None:
    """Check `name (`: it must be an allowed function, a word of SQL, or an alias with column names."""
    name = words[at - 1]
    if name.text in _TRIMS and _lists_characters(words, at):
        raise _unstoppable_error(name, f"{name.text} of chosen characters", _TRIMS_INSTEAD)
    if name.text in functions or (name.kind == "word" and name.text in _BEFORE_BRACKET):
        return
    if at >= 2 and words[at - 2].text in ("as", "::", "with", "recursive"):
        return
    if not _is_alias(words, at):
        if name.text in _UNSTOPPABLE:
            raise _unstoppable_error(name, name.text, _UNSTOPPABLE[name.text])
        message = f"SQL reads rows and computes: there is no function {name.text} that it may call"
        raise ParseError(name.start, message, nearest=_find_nearest(name.text, functions))


def _lists_characters(words: Sequence[SqlWord], at: int) -> bool:
    """Return whether a trim lists characters: `trim(text, 'x')`, `trim(both 'x' FROM text)`."""
    depth = 0
    for n in range(at + 1, len(words)):
        word = words[n]
        if word.kind == "mark" and word.text in "([":
            depth += 1
        elif word.kind == "mark" and word.text in ")]":
            depth -= 1
        elif depth == 0 and _starts_character_list(words[n - 1], word):
            return True
        if not 0 <= depth <= MAX_BRACKET_DEPTH:
            return False
    return False


def _starts_character_list(before: SqlWord, word: SqlWord) -> bool:
    if word.kind == "mark":
        return word.text == ","
    is_side = before.kind in ("mark", "word") and before.text in _TRIM_SIDES
    return word.kind == "word" and word.text == "from" and not is_side


def _unstoppable_error(name: SqlWord, function: str, alternative: str) -> ParseError:
    return ParseError(name.start, f"There is no {function}, because no timeout stops it: use {alternative}")


def _is_alias(words: Sequence[SqlWord], at: int) -> bool:
    """Return whether `name (` is an alias: `, t (a, b) AS (…)` of a WITH, `unnest(x) t (a, b)`, `users u (a, b)`."""
    end = next((n for n in range(at + 1, len(words)) if words[n].text == ")"), len(words))
    columns = words[at + 1 : end]
    if at < 2 or not columns or words[at - 1].text.startswith(_NEVER_AN_ALIAS):
        return False
    if not all(word.is_name or word.text == "," for word in columns):
        return False
    before = words[at - 2]
    if before.text == ",":
        follows = [word.text for word in words[end + 1 : end + 3]]
        return follows[:1] == ["as"] and follows[1:] in (["("], ["not"], ["materialized"])
    return before.text == ")" or before.kind == "quoted" or (before.is_name and before.text not in _BEFORE_BRACKET)


def _find_cte_names(words: Sequence[SqlWord]) -> Iterable[SqlWord]:
    """Yield the names of CTEs: `name AS (`, `name (columns) AS (`."""
    for at, word in enumerate(words):
        if word.kind == "word" and word.text == "as" and at:
            opened = at - 1
            if words[opened].text == ")":
                columns = range(opened, max(opened - MAX_CTE_COLUMNS, 0), -1)
                opened = next((n for n in columns if words[n].text == "("), 1) - 1
            if words[opened].is_name:
                yield words[opened]


@dataclass(slots=True)
class _Level:
    """The text between two brackets: whether it has a SELECT, and whether we are in its FROM."""

    has_select: bool = False
    in_from: bool = False


def _find_tables(words: Sequence[SqlWord]) -> Iterable[tuple[str, SqlWord]]:
    """Yield the schema and name of every table in a FROM or JOIN, or after TABLE."""
    levels = [_Level()]
    for at, word in enumerate(words):
        if word.kind == "mark":
            _track_bracket(levels, word)
            if word.text != "," or not levels[-1].in_from:
                continue
        elif word.kind != "word" or not _leads_to_table(levels[-1], words, at):
            continue
        table = _table_at(words, at + 1)
        if table is not None:
            yield table


def _track_bracket(levels: list[_Level], word: SqlWord) -> None:
    if word.text in ("(", "["):
        if len(levels) > MAX_BRACKET_DEPTH:
            raise QueryLimitError(f"The SQL is nested more than {MAX_BRACKET_DEPTH} brackets deep: simplify it.")
        levels.append(_Level())
    elif word.text in (")", "]") and len(levels) > 1:
        levels.pop()


def _leads_to_table(level: _Level, words: Sequence[SqlWord], at: int) -> bool:
    word = words[at].text
    if word == "select":
        level.has_select, level.in_from = True, False
    elif word in _END_OF_FROM:
        level.in_from = False
    elif word == "from":
        # Not `extract(year FROM …)`, nor `IS DISTINCT FROM`.
        level.in_from = level.has_select and words[at - 1].text != "distinct"
        return level.in_from
    return word == "join" or (word == "table" and (at == 0 or words[at - 1].text in ("(", "union", "all", "except")))


def _table_at(words: Sequence[SqlWord], at: int) -> tuple[str, SqlWord] | None:
    """Return the schema and name of the table at an index; None if it is a function or a subquery."""
    while at < len(words) and words[at].kind == "word" and words[at].text == "only":
        at += 1
    schema = ""
    if at + 2 < len(words) and words[at].is_name and words[at + 1].text == ".":
        schema, at = words[at].text, at + 2
    if at >= len(words) or not words[at].is_name or (words[at].kind == "word" and words[at].text in _NO_TABLE):
        return None
    if at + 1 < len(words) and words[at + 1].text == "(":
        return None
    return schema, words[at]


def _check_table(table: tuple[str, SqlWord], cte_names: Iterable[str], tables: Iterable[str]) -> None:
    schema, name = table
    if (schema in ("", "rem") and name.text in tables) or (not schema and name.text in cte_names):
        return
    listed = f"the tables are {', '.join(sorted(tables))}"
    if schema in ("pg_catalog", "information_schema") or name.text.startswith("pg_"):
        raise ParseError(name.start, f"SQL does not read PostgreSQL's own tables: {listed}")
    full = f"{schema}.{name.text}" if schema else name.text
    raise ParseError(name.start, f"There is no table {full}: {listed}", nearest=_find_nearest(name.text, tables))


def _find_nearest(name: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.82)), None)


def _read_only_error(word: SqlWord) -> ParseError:
    advice = _ADVICE.get(word.text, "Write a SELECT, a WITH … SELECT, VALUES or TABLE")
    return ParseError(word.start, f"SQL only reads: {word.text.upper()[:40] or 'this'} is not allowed. {advice}")
