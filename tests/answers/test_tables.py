"""A table answers with a cell, the matching rows, their number, a sum or an extreme, or not at all."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from rem.answers.tables import AskedRow, AskedTable, TableReading, answer_from_table
from rem.search.reader import MessageType, RowReading

ROOMS = ("Guest", "Room", "Food", "Nights", "Price")
GUESTS = AskedTable(
    "Guests of the wedding",
    [
        AskedRow(ROOMS, ("Tom", "214", "vegetarian", "2", "€120.50")),
        AskedRow(ROOMS, ("Anna Berg", "215", "fish", "3", "€180")),
        AskedRow(ROOMS, ("Ivo", "301", "vegetarian", "1", "€60")),
    ],
)
KIT = AskedTable("Kit to buy", [AskedRow((), (item,), checked=False) for item in ("gloves size 9", "smoker")])
HOUSE = AskedTable("House facts", [AskedRow((key,), (value,)) for key, value in (("rent", "1150 EUR"), ("cat", "Mo"))])


def read(table: AskedTable, rows: Collection[int], column: int = 0, *, unclear: Collection[int] = ()) -> TableReading:
    """Return what a reader says that finds the answer in this column of these rows, and is not sure of others."""
    readings = [RowReading(0.0, 0.5, (0, 0), row.write()[1][column], 0.0) for row in table.rows]
    sure = 0.55 if unclear else 0.95
    shares = [0.38 if place in unclear else sure if place in rows else 0.02 for place in range(len(table.rows))]
    return TableReading(table, readings, shares, 0.9 if rows else 0.1)


def test_reader_reads_each_cell_with_its_header() -> None:
    text, places = GUESTS.rows[1].write()
    assert text == "Guest: Anna Berg; Room: 215; Food: fish; Nights: 3; Price: €180"
    assert [text[start:end] for start, end in places] == list(GUESTS.rows[1].values)
    assert KIT.rows[0].write()[0] == "gloves size 9 (not done)"


def test_question_about_a_row_gets_its_cell_in_words() -> None:
    assert answer_from_table(MessageType.FACT, read(GUESTS, [0], 1)) == "Tom's room is 214"
    assert answer_from_table(MessageType.YES_NO, read(GUESTS, [1], 2)) == "Anna Berg's food is fish"
    assert answer_from_table(MessageType.FACT, read(HOUSE, [0])) == "rent: 1150 EUR"
    # "Which room is Tom in?" reads like a list, and is about one row.
    assert answer_from_table(MessageType.LIST, read(GUESTS, [0], 1)) == "Tom's room is 214"


def test_list_has_the_matching_rows_and_only_those() -> None:
    assert answer_from_table(MessageType.LIST, read(GUESTS, [0, 2])) == "Tom, Ivo"
    assert answer_from_table(MessageType.LIST, read(KIT, [0, 1])) == "gloves size 9, smoker"


def test_count_says_what_it_counted() -> None:
    assert answer_from_table(MessageType.COUNT, read(GUESTS, [0, 2])) == "2 of 3: Tom, Ivo"
    assert answer_from_table(MessageType.COUNT, read(GUESTS, [0, 1, 2])) == "3: Tom, Anna Berg, Ivo"
    # Lines `key: value` are different things.
    assert answer_from_table(MessageType.COUNT, read(HOUSE, [0])) == "rent: 1150 EUR"


@pytest.mark.parametrize(
    ("kind", "rows", "column", "expected"),
    [
        (MessageType.SUM, [0, 1, 2], 4, "360.50 EUR together: Tom €120.50, Anna Berg €180, Ivo €60"),
        (MessageType.SUM, [0, 2], 3, "3 together: Tom 2, Ivo 1"),
        (MessageType.MAXIMUM, [0, 1, 2], 4, "Anna Berg: €180 is the highest price of 3"),
        (MessageType.MINIMUM, [0, 1, 2], 4, "Ivo: €60 is the lowest price of 3"),
        (MessageType.SUM, [0, 1], 2, None),
    ],
)
def test_sum_and_extremes_are_over_one_column_of_the_rows(
    kind: MessageType, rows: list[int], column: int, expected: str | None
) -> None:
    assert answer_from_table(kind, read(GUESTS, rows, column)) == expected


@pytest.mark.parametrize("kind", [MessageType.COUNT, MessageType.SUM, MessageType.MAXIMUM, MessageType.MINIMUM])
def test_nothing_is_computed_if_a_row_is_unclear_or_unread(kind: MessageType) -> None:
    assert answer_from_table(kind, read(GUESTS, [0, 2], 3)) is not None
    assert answer_from_table(kind, read(GUESTS, [0, 2], 3, unclear=[1])) is None
    part = AskedTable(GUESTS.caption, GUESTS.rows, is_complete=False)
    assert answer_from_table(kind, read(part, [0, 2], 3)) is None


@pytest.mark.parametrize("costs", [("100", "250", "350"), ("3", "2", "5")])
def test_sum_is_not_claimed_if_one_row_may_be_the_total(costs: tuple[str, ...]) -> None:
    headers = ("Item", "Cost")
    rows = [AskedRow(headers, cells) for cells in zip(("Tent", "Band", "Sum"), costs, strict=True)]
    assert answer_from_table(MessageType.SUM, read(AskedTable("Costs", rows), [0, 1, 2], 1)) is None


def test_column_with_different_units_is_not_added() -> None:
    headers = ("Item", "Amount")
    rows = [AskedRow(headers, ("flour", "500 g")), AskedRow(headers, ("milk", "2 l"))]
    assert answer_from_table(MessageType.SUM, read(AskedTable("Bread", rows), [0, 1], 1)) is None
