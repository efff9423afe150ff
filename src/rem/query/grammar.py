"""The grammar as data: the verbs and their clauses. The parser, the error messages and the docs use it."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import Any, get_args

from rem.query.tree import Direction, Fuzzy, Lookup, Mode, Search, Sql, Traverse

MAX_QUERY_CHARS = 100_000
"""The parser takes well under a second for this many. A longer query would stop other requests meanwhile."""
MAX_KEYS = 1_000
MAX_CONDITION_TOKENS = 5_000
"""Words, values and signs in one condition."""
MAX_LIMIT = 10_000
MAX_DEPTH = 100
MAX_NESTED_QUERIES = 20
"""No useful query nests deeper, and the recursive parser stays far from Python's stack limit."""
_NON_SELECT = """
    ALTER ANALYZE BEGIN CALL CHECKPOINT CLUSTER COMMENT COMMIT COPY CREATE DEALLOCATE DECLARE DELETE DISCARD DO DROP
    EXECUTE EXPLAIN GRANT IMPORT INSERT LISTEN LOAD LOCK MERGE MOVE NOTIFY PREPARE REASSIGN REFRESH REINDEX RELEASE
    RESET REVOKE ROLLBACK SAVEPOINT SECURITY SET SHOW START TRUNCATE UNLISTEN UPDATE VACUUM VALUES
"""
NON_SELECT_KEYWORDS = frozenset(_NON_SELECT.split())
"""The first words of SQL statements that are not a SELECT."""
MODES: tuple[str, ...] = get_args(Mode)
DIRECTIONS: tuple[str, ...] = get_args(Direction)


@dataclass(frozen=True, slots=True, eq=False)
class Clause:
    """A part of a query that starts with a keyword, such as LIMIT 5."""

    field: str
    """The field of the tree that holds the value."""
    words: tuple[str, ...]
    """The keywords. The first is the main one."""
    placeholder: str
    """The value as the grammar in the docs shows it."""
    expected: str
    """The value in words, for error messages."""
    second_word: str = ""
    aliases: tuple[str, ...] = ()
    """Keywords that the docs and errors do not show."""

    @property
    def name(self) -> str:
        """The keyword in error messages."""
        return f"{self.words[0]} {self.second_word}".rstrip()


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A kind of query: its operand and its clauses."""

    name: str
    tree: type
    """The class of its tree."""
    operand: str
    """The operand as the grammar in the docs shows it."""
    missing: str
    """The operand in words, for error messages."""
    example: str
    """An operand that fixes a query without one."""
    clauses: tuple[Clause, ...]
    operand_clauses: tuple[Clause, ...] = ()
    """Clauses that are part of the operand in the docs and in printed queries."""
    takes_keys: bool = False
    """Whether the operand is a list of keys, and not a text."""
    by_word: dict[str, Clause] = field(init=False)
    """The clauses by their keywords."""

    def __post_init__(self) -> None:
        words = {word: clause for clause in self.clauses for word in (*clause.words, *clause.aliases)}
        object.__setattr__(self, "by_word", words)


_LIMIT_RANGE = f"a whole number from 1 to {MAX_LIMIT:,}"
_ORDER_EXAMPLE = "what to order by, such as weight DESC"

TABLE = Clause("table", ("FROM", "IN", "TABLE"), "table", "a table, such as resources")
THRESHOLD = Clause("threshold", ("THRESHOLD",), "f", "a number from 0 to 1")
LIMIT = Clause("limit", ("LIMIT",), "n", _LIMIT_RANGE)
WHERE = Clause("where", ("WHERE",), "condition", "a condition, such as category = 'docs'")
SINCE = Clause("since", ("SINCE",), "time", "a time, such as 2026-07-01, yesterday or 'last week'")
UNTIL = Clause("until", ("UNTIL",), "time", SINCE.expected)
FIELD = Clause("field", ("FIELD",), "f", "a field, such as content")
MIN_SIMILARITY = Clause("min_similarity", ("MIN_SIMILARITY",), "f", "a number from 0 to 1")
MODE = Clause("mode", ("MODE",), "|".join(MODES), " or ".join((", ".join(MODES[:-1]), MODES[-1])))
START_KEY = Clause("start", ("FROM",), "key", "the key to start from")
START_QUERY = Clause("start", ("WITH",), "query", 'a query to start from, such as LOOKUP "sarah-chen"')
TYPE = Clause("edge_types", ("TYPE",), "types", "one or more edge types, such as manages, mentors", "", ("REL_TYPE",))
DIRECTION = Clause(
    "direction", ("DIRECTION",), "|".join(DIRECTIONS), " or ".join((", ".join(DIRECTIONS[:-1]), DIRECTIONS[-1]))
)
DEPTH = Clause("depth", ("DEPTH",), "n", f"a whole number from 0 to {MAX_DEPTH}")
ORDER = Clause("order_by", ("ORDER",), "o", _ORDER_EXAMPLE, "BY", ("ORDER_BY",))
SQL_WHERE = Clause("where", ("WHERE",), "condition", "a condition in SQL")
SQL_ORDER = Clause("order_by", ("ORDER",), "o", "what to order by, in SQL", "BY", ("ORDER_BY",))

VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb("LOOKUP", Lookup, "key (, key)* | [key, …]", "at least one key", '"a-key"', (TABLE,), takes_keys=True),
        Verb("FUZZY", Fuzzy, "text", "a text to compare with", '"a text"', (THRESHOLD, LIMIT, TABLE)),
        Verb(
            "SEARCH",
            Search,
            "text",
            "a text to search for",
            '"a text"',
            (TABLE, WHERE, SINCE, UNTIL, FIELD, MIN_SIMILARITY, MODE, LIMIT),
        ),
        Verb(
            "TRAVERSE",
            Traverse,
            "[types] [FROM key | WITH query | key]",
            "a key or a query to start from",
            '"a-key"',
            (START_KEY, START_QUERY, TYPE, DIRECTION, DEPTH, ORDER, LIMIT),
            operand_clauses=(START_KEY, START_QUERY),
            takes_keys=True,
        ),
        Verb(
            "SQL",
            Sql,
            "select | table",
            "a SELECT, or a table",
            "resources",
            (TABLE, SQL_WHERE, SQL_ORDER, LIMIT),
            operand_clauses=(TABLE,),
            takes_keys=True,
        ),
    )
}
FIRST_WORDS = (*VERBS, "SELECT", "WITH")
"""The words that a query can begin with. The word REM may stand before them."""
CLAUSE_WORDS = frozenset(word for verb in VERBS.values() for word in verb.by_word)
TIME_WORDS = frozenset({"SINCE", "UNTIL"})
"""Keywords that are frequent words of texts. In lower case they are keywords only before a time."""
CONDITION_ENDS = frozenset({"SINCE", "UNTIL", "LIMIT", "FIELD", "MIN_SIMILARITY", "MODE", "TABLE", "ORDER", "ORDER_BY"})
"""The keywords that end an unquoted WHERE. FROM and IN do not: they are operators in it."""


def describe_grammar() -> str:
    """Return the grammar as the docs show it, one line for each verb."""
    width = max(map(len, VERBS)) + 1
    return "\n".join(f"{verb.name:{width}}{verb.operand} {_describe_clauses(verb)}" for verb in VERBS.values())


def _describe_clauses(verb: Verb) -> str:
    defaults: dict[str, Any] = {field.name: field.default for field in fields(verb.tree)}
    descriptions = []
    for clause in verb.clauses:
        if clause in verb.operand_clauses:
            continue
        default = defaults.get(clause.field)
        assignment = "" if default in (None, MISSING, (), *MODES, *DIRECTIONS) else f"={default}"
        name = " ".join(filter(None, ("|".join(clause.words), clause.second_word)))
        descriptions.append(f"[{name} {clause.placeholder}{assignment}]")
    return " ".join(descriptions)
