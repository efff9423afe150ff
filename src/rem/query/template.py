"""Template: the query of a stage, parsed with its references, which rows of other stages then fill."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rem.db.conditions import And, Between, Compare, Condition, In, IsNull, Not, Or
from rem.errors import InvalidInputError, QuerySyntaxError
from rem.query.filling import Filling, Rows
from rem.query.parser import parse
from rem.query.references import MarkedText, Reference, mark
from rem.query.tree import Filter, Fuzzy, Lookup, Query, Search, Sql, Traverse


@dataclass(frozen=True, slots=True)
class Template:
    """A query with references."""

    _query: Query
    _marked: MarkedText
    _stages: Sequence[str]

    @classmethod
    def read(cls, text: str, stages: Sequence[str]) -> Template:
        """Parse a query that may refer to some stages. An InvalidInputError says what is wrong with it."""
        marked = mark(text)
        try:
            query = parse(marked.text)
        except QuerySyntaxError as error:
            raise InvalidInputError(marked.restored(str(error))) from error
        template = cls(query, marked, stages)
        template._refuse_misplaced(query)
        return template

    @property
    def query_type(self) -> str:
        """The verb."""
        return type(self._query).__name__.upper()

    @property
    def references(self) -> list[Reference]:
        """What the query refers to, in the order in which it does."""
        strings = (string for part in _parts(self._query) for string in _strings(part))
        pieces = (piece for string in strings for piece in self._marked.pieces(string, self._stages))
        return [piece for piece in pieces if isinstance(piece, Reference)]

    def fill(self, rows: Rows) -> tuple[Query, list[str]]:
        """The query with values of rows in it, and what the caller should know. A NoInputError if there are none."""
        filling = Filling(self._marked, self._stages, rows)
        query = filling.query(self._query)
        return query, list(dict.fromkeys(filling.notes))

    def _refuse_misplaced(self, query: Query) -> None:
        """A reference is a value: it cannot choose a table, a field or an order, and SQL has none at all."""
        for part in _parts(query):
            if isinstance(part, Sql):
                self._refuse_in_sql(part.statement)
            for name in _names(part):
                if self._marked.has_marks(name):
                    raise InvalidInputError(
                        f"{self._marked.restored(name)} cannot stand here: a reference takes the place of a key, "
                        "a text, an edge type or a value in WHERE."
                    )
        _ = self.references

    def _refuse_in_sql(self, statement: str) -> None:
        for written in self._marked.stage_names(statement, self._stages):
            raise InvalidInputError(
                f"{written} stands in SQL, which takes no references: use LOOKUP, SEARCH or TRAVERSE for this stage, "
                "join the tables in the SELECT, or give the stage another name."
            )


def _parts(query: Query) -> Iterator[Query]:
    """A query and those that it starts from."""
    yield query
    if isinstance(query, Traverse):
        yield from _parts(query.start)


def _strings(query: Query) -> list[str]:
    """The strings of a query that references can stand in."""
    match query:
        case Lookup(keys):
            return list(keys)
        case Fuzzy(text):
            return [text]
        case Search(text, where=where):
            values = [value for part in _comparisons(where) for value in _operands(part)]
            return [text, *(value for value in values if isinstance(value, str))]
        case Traverse(edge_types=types):
            return list(types)
        case Sql():
            return []


def _names(query: Query) -> list[str]:
    """The strings of a query that references cannot stand in."""
    match query:
        case Lookup(table=table) | Fuzzy(table=table):
            names = [table]
        case Search(table=table, field=name, where=where):
            names = [table, name, *(part.field for part in _comparisons(where))]
        case Traverse(order_by=order):
            names = [order]
        case Sql():
            names = []
    return [name for name in names if name is not None]


_Comparison: TypeAlias = Compare | In | Between | IsNull


def _comparisons(where: Filter | None) -> list[_Comparison]:
    return [] if where is None else list(_leaves(where.condition))


def _leaves(condition: Condition) -> Iterator[_Comparison]:
    match condition:
        case And(conditions) | Or(conditions):
            for part in conditions:
                yield from _leaves(part)
        case Not(inner):
            yield from _leaves(inner)
        case _:
            yield condition


def _operands(comparison: _Comparison) -> list[Any]:
    match comparison:
        case Compare(value=list(values)) | In(values=values):
            return list(values)
        case Compare(value=value):
            return [value]
        case Between(low=low, high=high):
            return [low, high]
        case IsNull():
            return []
