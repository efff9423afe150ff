"""Template: the query of a stage, parsed with its references, which rows of other stages then fill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, product
from typing import Any, TypeAlias

from rem.db.conditions import And, Between, Compare, Condition, In, IsNull, Not, Or
from rem.errors import InvalidInputError, QuerySyntaxError
from rem.query.language.parser import parse_query
from rem.query.language.printer import print_condition
from rem.query.plans.references import MarkedText, Reference, Row, RowSelection, mark_references
from rem.query.tree import Filter, Fuzzy, Lookup, Query, Search, Sql, Traverse

MAX_VALUES = 1000
"""So many values one string of a query can stand for."""
RowsBySelection: TypeAlias = Mapping[RowSelection, Sequence[Row]]
_SHOWN_FIELDS = 12


class NoInputError(Exception):
    """A query cannot be filled, because what it refers to is empty; the message says why."""


@dataclass(slots=True)
class ReferenceBinder:
    """Puts values of rows into the tree of a query, and notes what the caller should know."""

    marked: MarkedText
    stages: Sequence[str]
    rows: RowsBySelection
    notes: list[str] = field(default_factory=list)

    def bind(self, query: Query) -> Query:
        """The query with values where it had references; a NoInputError if there are none."""
        match query:
            case Lookup(keys):
                return replace(query, keys=tuple(self._texts(keys)))
            case Fuzzy(text):
                return replace(query, text=str(self._one(text)))
            case Search(text, where=where):
                return replace(query, text=str(self._one(text)), where=where and self._filter(where))
            case Traverse(start, edge_types):
                types = tuple(self._texts(edge_types)) if edge_types else ()
                return replace(query, start=self.bind(start), edge_types=types)
            case Sql(statement):
                return Sql(self.marked.restore(statement))

    def _filter(self, where: Filter) -> Filter:
        if not self.marked.has_marks(where.text):
            return where
        condition = self._condition(where.condition)
        return Filter(print_condition(condition), condition)

    def _condition(self, condition: Condition) -> Condition:
        match condition:
            case And(conditions):
                return And(tuple(map(self._condition, conditions)))
            case Or(conditions):
                return Or(tuple(map(self._condition, conditions)))
            case Not(inner):
                return Not(self._condition(inner))
            case In(_, values):
                return replace(condition, values=tuple(self._all(values)))
            case Between(_, low, high):
                return replace(condition, low=self._one(low), high=self._one(high))
            case Compare(value=list(values)):
                return replace(condition, value=self._all(values))
            case Compare(value=value):
                return replace(condition, value=self._one(value))
            case IsNull():
                return condition

    def _texts(self, items: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(map(_as_text, self._all(items))))

    def _all(self, items: Sequence[Any]) -> list[Any]:
        """What some places stand for together; those that are empty are left out unless all are."""
        found: list[Any] = []
        missing: list[str] = []
        for item in items:
            try:
                found += self._values(item)
            except NoInputError as error:
                missing.append(str(error))
        if not found:
            raise NoInputError(" ".join(missing))
        self.notes += missing
        return found

    def _one(self, item: Any) -> Any:
        """What a place stands for that takes one value."""
        values = self._values(item)
        if len(values) > 1:
            self.notes.append(
                f"{self.marked.restore(item)} stands for {len(values)} values, and only the first was used: "
                "`for_each` runs the stage for each."
            )
        return values[0]

    def _values(self, item: Any) -> list[Any]:
        """All that a place stands for: a string for every combination of its references' values, row by row."""
        if not isinstance(item, str) or not self.marked.has_marks(item):
            return [item]
        pieces = self.marked.split(item, self.stages)
        references = [piece for piece in pieces if isinstance(piece, Reference)]
        if not references:
            return ["".join(map(str, pieces))]
        combinations = list(islice(self._combinations(references), MAX_VALUES + 1))
        if not combinations:
            raise NoInputError(self._why_empty(references))
        if len(combinations) > MAX_VALUES:
            del combinations[MAX_VALUES:]
            self.notes.append(f"{self.marked.restore(item)} stands for the first {MAX_VALUES:,} values of more.")
        if len(pieces) == 1:
            return [value for (value,) in combinations]
        return [_joined(pieces, combination) for combination in combinations]

    def _combinations(self, references: Sequence[Reference]) -> Iterator[tuple[Any, ...]]:
        """The references' values together: those of the same rows row by row, those of different ones all with all."""
        sources = list(dict.fromkeys(reference.source for reference in references))
        order = [
            [place for place, reference in enumerate(references) if reference.source == source] for source in sources
        ]
        by_source = [self._row_by_row(source, references) for source in sources]
        for parts in product(*by_source):
            values = dict(zip(chain(*order), chain(*parts), strict=True))
            yield tuple(values[place] for place in range(len(references)))

    def _row_by_row(self, source: RowSelection, references: Sequence[Reference]) -> list[tuple[Any, ...]]:
        own = [reference for reference in references if reference.source == source]
        values = (product(*(reference.values(row) for reference in own)) for row in self.rows[source])
        return list(islice(chain.from_iterable(values), MAX_VALUES + 1))

    def _why_empty(self, references: Sequence[Reference]) -> str:
        reasons = dict.fromkeys(filter(None, map(self._why_no_value, references)))
        return " ".join(reasons) or f"No row has all of {', '.join(reference.written for reference in references)}."

    def _why_no_value(self, reference: Reference) -> str | None:
        rows = self.rows[reference.source]
        if not rows:
            return f"{reference.source.stage} gave no rows for {reference.written}."
        if any(reference.values(row) for row in rows):
            return None
        within = " (`record` does: name it first)" if reference.path[0] in (rows[0].get("record") or ()) else ""
        fields = ", ".join(list(rows[0])[:_SHOWN_FIELDS])
        return f"The rows of {reference.source.stage} ({fields}) have no value for {reference.written}{within}."


def _joined(pieces: Sequence[str | Reference], values: Sequence[Any]) -> str:
    left = iter(values)
    return "".join(_as_text(next(left)) if isinstance(piece, Reference) else piece for piece in pieces)


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Template:
    """A query with references."""

    _query: Query
    _marked: MarkedText
    _stages: Sequence[str]

    @classmethod
    def parse(cls, text: str, stages: Sequence[str]) -> Template:
        """Parse a query that may refer to some stages. An InvalidInputError says what is wrong with it."""
        marked = mark_references(text)
        try:
            query = parse_query(marked.text)
        except QuerySyntaxError as error:
            raise InvalidInputError(marked.restore(str(error))) from error
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
        pieces = (piece for string in strings for piece in self._marked.split(string, self._stages))
        return [piece for piece in pieces if isinstance(piece, Reference)]

    def bind(self, rows: RowsBySelection) -> tuple[Query, list[str]]:
        """The query with values of rows in it, and what the caller should know. A NoInputError if there are none."""
        filling = ReferenceBinder(self._marked, self._stages, rows)
        query = filling.bind(self._query)
        return query, list(dict.fromkeys(filling.notes))

    def _refuse_misplaced(self, query: Query) -> None:
        """A reference is a value: it cannot choose a table, a field or an order, and SQL has none at all."""
        for part in _parts(query):
            if isinstance(part, Sql):
                self._refuse_in_sql(part.statement)
            for name in _names(part):
                if self._marked.has_marks(name):
                    raise InvalidInputError(
                        f"{self._marked.restore(name)} cannot stand here: a reference takes the place of a key, "
                        "a text, an edge type or a value in WHERE."
                    )
        _ = self.references

    def _refuse_in_sql(self, statement: str) -> None:
        for written in self._marked.find_stage_references(statement, self._stages):
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
