"""ORDER BY of TRAVERSE: fields, each ascending or descending."""

from __future__ import annotations

import re
from typing import NamedTuple

_TERM = re.compile(
    r"\s*(?P<sign>[-+]?)(?P<field>[^\W\d]\w*(?:\.[\w-]+)*)(?:\s+(?P<direction>ASC|DESC)\b)?", re.IGNORECASE
)
_COMMA = re.compile(r"\s*,")


class OrderTerm(NamedTuple):
    """A field to order by."""

    field: str
    descending: bool = False


def read_order(text: str, at: int, end: int) -> tuple[list[OrderTerm], int]:
    """The terms that stand at a place, and where they end; none if there are none, or one is missing behind a comma."""
    terms = []
    while term := _TERM.match(text, at, end):
        descending = term["sign"] == "-" or (term["direction"] or "").upper() == "DESC"
        terms.append(OrderTerm(term["field"], descending))
        comma = _COMMA.match(text, term.end(), end)
        if comma is None:
            return terms, term.end()
        at = comma.end()
    return [], at


def order_terms(order_by: str) -> list[OrderTerm]:
    """The terms of a tree's `order_by`; none if it is not one order from end to end."""
    terms, end = read_order(order_by, 0, len(order_by))
    return [] if order_by[end:].strip() else terms
