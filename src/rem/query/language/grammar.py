"""The grammar as data: the verbs, their clauses and what each takes. The parser, errors and docs all read it."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import Any, get_args

from rem.query.tree import Direction, Fuzzy, Lookup, Mode, Search, Sql, Traverse

MAX_LIMIT = 10_000
MAX_DEPTH = 100
MAX_NESTED_QUERIES = 20
MODES: tuple[str, ...] = get_args(Mode)
DIRECTIONS: tuple[str, ...] = get_args(Direction)


@dataclass(frozen=True, slots=True, eq=False)
class Clause:
    """A part of a query that a keyword opens: the field of the tree that it fills, and the value that it takes."""

    field: str
    words: tuple[str, ...]
    symbol: str
    expected: str
    second: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The clause as errors call it."""
        return f"{self.words[0]} {self.second}".rstrip()


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A kind of query: what its text is, and which clauses it takes."""

    name: str
    tree: type
    lead: str
    missing: str
    example: str
    clauses: tuple[Clause, ...]
    in_lead: tuple[Clause, ...] = ()
    takes_keys: bool = False
    by_word: dict[str, Clause] = field(init=False)

    def __post_init__(self) -> None:
        words = {word: clause for clause in self.clauses for word in (*clause.words, *clause.aliases)}
        object.__setattr__(self, "by_word", words)


_LIMIT_RANGE = f"a whole number from 1 to {MAX_LIMIT:,}"
_ORDER_EXAMPLE = "what to order by, such as weight DESC"

TABLE = Clause("table", ("FROM", "IN", "TABLE"), "table", "a table, such as resources")
THRESHOLD = Clause("threshold", ("THRESHOLD",), "f", "a number from 0 to 1")
LIMIT = Clause("limit", ("LIMIT",), "n", _LIMIT_RANGE)
WHERE = Clause("where", ("WHERE",), "condition", "a condition, such as category = 'docs'")
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
            (TABLE, WHERE, FIELD, MIN_SIMILARITY, MODE, LIMIT),
        ),
        Verb(
            "TRAVERSE",
            Traverse,
            "[types] [FROM key | WITH query | key]",
            "a key or a query to start from",
            '"a-key"',
            (START_KEY, START_QUERY, TYPE, DIRECTION, DEPTH, ORDER, LIMIT),
            in_lead=(START_KEY, START_QUERY),
            takes_keys=True,
        ),
        Verb(
            "SQL",
            Sql,
            "select | table",
            "a SELECT, or a table",
            "resources",
            (TABLE, SQL_WHERE, SQL_ORDER, LIMIT),
            in_lead=(TABLE,),
            takes_keys=True,
        ),
    )
}
CLAUSE_WORDS = frozenset(word for verb in VERBS.values() for word in verb.by_word)
CONDITION_ENDS = frozenset({"LIMIT", "FIELD", "MIN_SIMILARITY", "MODE", "TABLE", "ORDER", "ORDER_BY"})
"""The keywords that end an unquoted WHERE; FROM and IN do not, as they are operators in it."""


def grammar() -> str:
    """The grammar as the docs show it."""
    width = max(map(len, VERBS)) + 1
    return "\n".join(f"{verb.name:{width}}{verb.lead} {_shown_clauses(verb)}" for verb in VERBS.values())


def _shown_clauses(verb: Verb) -> str:
    defaults: dict[str, Any] = {entry.name: entry.default for entry in fields(verb.tree)}
    shown = []
    for clause in verb.clauses:
        default = defaults.get(clause.field)
        assigned = "" if default in (None, MISSING, (), *MODES, *DIRECTIONS) else f"={default}"
        name = " ".join(filter(None, ("|".join(clause.words), clause.second)))
        shown += [] if clause in verb.in_lead else [f"[{name} {clause.symbol}{assigned}]"]
    return " ".join(shown)
