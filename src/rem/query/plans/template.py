"""Parse the query of a stage with its references, and bind values of rows to them."""

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
from rem.query.syntax_tree import Filter, Fuzzy, Lookup, Query, Search, Sql, Traverse

MAX_VALUES = 1000
"""One string of a query can stand for at most this many values. A note tells when there were more."""
RowsBySelection: TypeAlias = Mapping[RowSelection, Sequence[Row]]
MAX_SHOWN_FIELDS = 12


class NoInputError(Exception):
    """A reference has no value, so the query cannot run. The message gives the reason."""


@dataclass(slots=True)
class ReferenceBinder:
    """Replaces the references in the tree of a query by values of rows, and collects notes for the caller."""

    marked: MarkedText
    stages: Sequence[str]
    rows: RowsBySelection
    notes: list[str] = field(default_factory=list)

    def bind(self, query: Query) -> Query:
        """Return the query with values in place of its references. Raise NoInputError if one has no value."""
        match query:
            case Lookup(keys):
                return replace(query, keys=tuple(self._bind_strings(keys)))
            case Fuzzy(text):
                return replace(query, text=str(self._bind_single(text)))
            case Search(text, where=where):
                return replace(query, text=str(self._bind_single(text)), where=where and self._bind_filter(where))
            case Traverse(start, edge_types):
                types = tuple(self._bind_strings(edge_types)) if edge_types else ()
                return replace(query, start=self.bind(start), edge_types=types)
            case Sql(statement):
                return Sql(self.marked.restore(statement))

    def _bind_filter(self, where: Filter) -> Filter:
        if not self.marked.has_marks(where.text):
            return where
        condition = self._bind_condition(where.condition)
        return Filter(print_condition(condition), condition)

    def _bind_condition(self, condition: Condition) -> Condition:
        match condition:
            case And(conditions):
                return And(tuple(map(self._bind_condition, conditions)))
            case Or(conditions):
                return Or(tuple(map(self._bind_condition, conditions)))
            case Not(inner):
                return Not(self._bind_condition(inner))
            case In(_, values):
                return replace(condition, values=tuple(self._bind_list(values)))
            case Between(_, low, high):
                return replace(condition, low=self._bind_single(low), high=self._bind_single(high))
            case Compare(value=list(values)):
                return replace(condition, value=self._bind_list(values))
            case Compare(value=value):
                return replace(condition, value=self._bind_single(value))
            case IsNull():
                return condition

    def _bind_strings(self, items: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(map(_to_text, self._bind_list(items))))

    def _bind_list(self, items: Sequence[Any]) -> list[Any]:
        """Return the values of all items. Leave out items without a value, but raise NoInputError if none has one."""
        values: list[Any] = []
        missing: list[str] = []
        for item in items:
            try:
                values += self._find_values(item)
            except NoInputError as error:
                missing.append(str(error))
        if not values:
            raise NoInputError(" ".join(missing))
        self.notes += missing
        return values

    def _bind_single(self, item: Any) -> Any:
        """Return the first value of an item, where the query takes only one. Add a note if there are more."""
        values = self._find_values(item)
        if len(values) > 1:
            self.notes.append(
                f"{self.marked.restore(item)} stands for {len(values)} values, and only the first was used: "
                "`for_each` runs the stage for each."
            )
        return values[0]

    def _find_values(self, item: Any) -> list[Any]:
        """Return all values of an item: for a string with references, one for each combination of their values."""
        if not isinstance(item, str) or not self.marked.has_marks(item):
            return [item]
        pieces = self.marked.split(item, self.stages)
        references = [piece for piece in pieces if isinstance(piece, Reference)]
        if not references:
            return ["".join(map(str, pieces))]
        combinations = list(islice(self._combine_values(references), MAX_VALUES + 1))
        if not combinations:
            raise NoInputError(self._explain_empty(references))
        if len(combinations) > MAX_VALUES:
            del combinations[MAX_VALUES:]
            self.notes.append(f"{self.marked.restore(item)} stands for the first {MAX_VALUES:,} values of more.")
        if len(pieces) == 1:
            return [value for (value,) in combinations]
        return [_join_pieces(pieces, combination) for combination in combinations]

    def _combine_values(self, references: Sequence[Reference]) -> Iterator[tuple[Any, ...]]:
        """Yield combinations of the references' values, in the order of the references.

        References to the same rows are combined row by row, others each with each.
        """
        sources = list(dict.fromkeys(reference.source for reference in references))
        positions = [
            [position for position, reference in enumerate(references) if reference.source == source]
            for source in sources
        ]
        by_source = [self._combine_row_values(source, references) for source in sources]
        for combination in product(*by_source):
            values = dict(zip(chain(*positions), chain(*combination), strict=True))
            yield tuple(values[position] for position in range(len(references)))

    def _combine_row_values(self, source: RowSelection, references: Sequence[Reference]) -> list[tuple[Any, ...]]:
        own = [reference for reference in references if reference.source == source]
        values = (product(*(reference.values(row) for reference in own)) for row in self.rows[source])
        return list(islice(chain.from_iterable(values), MAX_VALUES + 1))

    def _explain_empty(self, references: Sequence[Reference]) -> str:
        reasons = dict.fromkeys(filter(None, map(self._explain_no_value, references)))
        return " ".join(reasons) or f"No row has all of {', '.join(reference.written for reference in references)}."

    def _explain_no_value(self, reference: Reference) -> str | None:
        rows = self.rows[reference.source]
        if not rows:
            return f"{reference.source.stage} gave no rows for {reference.written}."
        if any(reference.values(row) for row in rows):
            return None
        hint = " (`record` does: name it first)" if reference.path[0] in (rows[0].get("record") or ()) else ""
        fields = ", ".join(list(rows[0])[:MAX_SHOWN_FIELDS])
        return f"The rows of {reference.source.stage} ({fields}) have no value for {reference.written}{hint}."


def _join_pieces(pieces: Sequence[str | Reference], values: Sequence[Any]) -> str:
    remaining = iter(values)
    return "".join(_to_text(next(remaining)) if isinstance(piece, Reference) else piece for piece in pieces)


def _to_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Template:
    """A query with references."""

    _query: Query
    _marked: MarkedText
    _stages: Sequence[str]

    @classmethod
    def parse(cls, text: str, stages: Sequence[str]) -> Template:
        """Parse a query that may refer to the given stages. Raise InvalidInputError if it is not valid."""
        marked = mark_references(text)
        try:
            query = parse_query(marked.text)
        except QuerySyntaxError as error:
            raise InvalidInputError(marked.restore(str(error))) from error
        template = cls(query, marked, stages)
        template._check_placement(query)
        return template

    @property
    def query_type(self) -> str:
        """The verb."""
        return type(self._query).__name__.upper()

    @property
    def references(self) -> list[Reference]:
        """The references of the query, in their order."""
        strings = (string for part in _list_queries(self._query) for string in _list_bindable_strings(part))
        pieces = (piece for string in strings for piece in self._marked.split(string, self._stages))
        return [piece for piece in pieces if isinstance(piece, Reference)]

    def bind(self, rows: RowsBySelection) -> tuple[Query, list[str]]:
        """Return the query with values of rows, and notes for the caller. Raise NoInputError if a value is missing."""
        binder = ReferenceBinder(self._marked, self._stages, rows)
        query = binder.bind(self._query)
        return query, list(dict.fromkeys(binder.notes))

    def _check_placement(self, query: Query) -> None:
        """Raise InvalidInputError if a reference stands for a table, a field or an order, or in SQL."""
        for part in _list_queries(query):
            if isinstance(part, Sql):
                self._check_sql(part.statement)
            for name in _list_names(part):
                if self._marked.has_marks(name):
                    raise InvalidInputError(
                        f"{self._marked.restore(name)} cannot stand here: a reference takes the place of a key, "
                        "a text, an edge type or a value in WHERE."
                    )
        _ = self.references

    def _check_sql(self, statement: str) -> None:
        for written in self._marked.find_stage_references(statement, self._stages):
            raise InvalidInputError(
                f"{written} stands in SQL, which takes no references: use LOOKUP, SEARCH or TRAVERSE for this stage, "
                "join the tables in the SELECT, or give the stage another name."
            )


def _list_queries(query: Query) -> Iterator[Query]:
    """Yield a query and the queries that it starts from."""
    yield query
    if isinstance(query, Traverse):
        yield from _list_queries(query.start)


def _list_bindable_strings(query: Query) -> list[str]:
    """Return the strings of a query that may contain references."""
    match query:
        case Lookup(keys):
            return list(keys)
        case Fuzzy(text):
            return [text]
        case Search(text, where=where):
            values = [value for part in _list_comparisons(where) for value in _list_values(part)]
            return [text, *(value for value in values if isinstance(value, str))]
        case Traverse(edge_types=types):
            return list(types)
        case Sql():
            return []


def _list_names(query: Query) -> list[str]:
    """Return the strings of a query that must not contain references: tables, fields and orders."""
    match query:
        case Lookup(table=table) | Fuzzy(table=table):
            names = [table]
        case Search(table=table, field=name, where=where):
            names = [table, name, *(part.field for part in _list_comparisons(where))]
        case Traverse(order_by=order):
            names = [order]
        case Sql():
            names = []
    return [name for name in names if name is not None]


_Comparison: TypeAlias = Compare | In | Between | IsNull


def _list_comparisons(where: Filter | None) -> list[_Comparison]:
    return [] if where is None else list(_iterate_comparisons(where.condition))


def _iterate_comparisons(condition: Condition) -> Iterator[_Comparison]:
    match condition:
        case And(conditions) | Or(conditions):
            for part in conditions:
                yield from _iterate_comparisons(part)
        case Not(inner):
            yield from _iterate_comparisons(inner)
        case _:
            yield condition


def _list_values(comparison: _Comparison) -> list[Any]:
    match comparison:
        case Compare(value=list(values)) | In(values=values):
            return list(values)
        case Compare(value=value):
            return [value]
        case Between(low=low, high=high):
            return [low, high]
        case IsNull():
            return []
