"""A table answers with a cell, the matching rows, their number, a sum or an extreme, or not at all."""

from __future__ import annotations

import pytest

from rem.answers.tables import AskedRow, AskedTable, answer_from_table, describe_row, match_rows
from rem.search.reader import MessageType

ROOMS = ("Guest", "Room", "Food", "Nights", "Price")
GUESTS = AskedTable(
    "Guests of the wedding",
    [
        AskedRow(ROOMS, ("Tom", "214", "vegetarian", "2", "€120.50")),
        AskedRow(ROOMS, ("Anna Berg", "215", "fish", "3", "€180")),
        AskedRow(ROOMS, ("Ivo", "301", "vegetarian", "1", "€60")),
    ],
)
KIT = AskedTable(
    "Kit to buy", [AskedRow((), ("gloves size 9",)), AskedRow((), ("10 brood frames",)), AskedRow((), ("smoker",))]
)


def ask(question: str, kind: MessageType, table: AskedTable = GUESTS) -> str:
    return answer_from_table(question, kind, table) or ""


def test_question_about_a_row_gets_its_cell_in_words() -> None:
    assert ask("What is Tom's room?", MessageType.FACT) == "Tom's room is 214"
    assert ask("which room has anna", MessageType.FACT) == "Anna Berg's room is 215"
    assert not ask("What is the room of Tom's sister?", MessageType.FACT)


def test_line_of_a_table_is_told_in_words() -> None:
    line = "| Anna Berg | 215 | fish | 3 | €180 |"
    assert describe_row("which room has anna got", GUESTS, line) == "Anna Berg's room is 215"
    assert describe_row("and anna", GUESTS, line) == (
        "Anna Berg's room is 215; Anna Berg's food is fish; Anna Berg's nights is 3; Anna Berg's price is €180"
    )
    assert describe_row("and anna", GUESTS, "Anna is here.") is None


HOUSE = AskedTable(
    "House facts",
    [
        AskedRow((key,), (value,))
        for key, value in (("landlord", "Mr. Okafor"), ("rent", "1150 EUR"), ("boiler serviced", "12 March 2026"))
    ],
)


HEADER = "| Guest | Room | Food | Nights | Price |"


@pytest.mark.parametrize("line", [HEADER, "|---|---:|---|---|---|", "| Ivo | 301 |"])
def test_row_that_a_question_singles_out_stands_for_any_line_of_its_table(line: str) -> None:
    assert describe_row("which room has anna got", GUESTS, line) == "Anna Berg's room is 215"
    assert describe_row("who is not anna", GUESTS, line) is None


def test_line_with_a_key_is_found_by_its_key() -> None:
    assert describe_row("is the landlord Mr. Okafor", HOUSE, "boiler serviced: 12 March 2026") == "landlord: Mr. Okafor"
    assert describe_row("how much rent do we pay", HOUSE, "landlord: Mr. Okafor") == "rent: 1150 EUR"
    assert describe_row("how much rent do we pay", HOUSE, "The rent is due.") is None
    assert not ask("how many serviced", MessageType.COUNT, HOUSE)


def test_question_that_names_a_row_asks_for_its_cell_even_if_it_reads_like_a_list() -> None:
    assert ask("Which room is Tom in?", MessageType.LIST) == "Tom's room is 214"
    assert ask("Which guest is in room 214?", MessageType.LIST) == "Tom"


def test_list_has_the_matching_rows_and_only_those() -> None:
    assert ask("Which guests are vegetarian?", MessageType.LIST) == "Tom, Ivo"
    assert ask("who are the guests of the wedding", MessageType.LIST) == "Tom, Anna Berg, Ivo"
    assert ask("what kit do I have to buy?", MessageType.LIST, KIT) == "gloves size 9, 10 brood frames, smoker"


def test_count_says_what_it_counted() -> None:
    assert ask("How many guests are vegetarian?", MessageType.COUNT) == "2 of 3: Tom, Ivo"
    assert ask("how many guests", MessageType.COUNT).startswith("3: ")


@pytest.mark.parametrize(
    ("question", "kind", "start"),
    [
        ("What is the price of all guests?", MessageType.SUM, "360.50 EUR together"),
        ("How many nights do the vegetarian guests stay?", MessageType.SUM, "3 together"),
        ("How much do the vegetarian guests pay?", MessageType.SUM, ""),
        ("nights of the vegetarian guests", MessageType.SUM, "3 together: Tom 2, Ivo 1"),
        ("which guest has the price", MessageType.MAXIMUM, "Anna Berg: €180 is the highest price of 3"),
        ("which guest has the price", MessageType.MINIMUM, "Ivo: €60 is the lowest price of 3"),
    ],
)
def test_sum_and_extremes_are_over_one_column_of_the_matching_rows(
    question: str, kind: MessageType, start: str
) -> None:
    answer = ask(question, kind)
    assert answer.startswith(start) if start else not answer


def test_total_of_the_table_is_not_added_to_itself() -> None:
    headers = ("Item", "Cost")
    rows = [AskedRow(headers, cells) for cells in (("Tent", "100"), ("Band", "250"), ("Sum", "350"))]
    assert ask("cost of the items", MessageType.SUM, AskedTable("Costs", rows)).startswith(
        "350 together: Tent 100, Band 250"
    )


@pytest.mark.parametrize("question", ["How many guests are not vegetarian?", "How many guests come from Oslo?"])
def test_what_the_table_does_not_say_is_not_counted(question: str) -> None:
    assert not ask(question, MessageType.COUNT)
    assert not match_rows(question, GUESTS).is_certain


def test_column_with_different_units_is_not_added() -> None:
    headers = ("Item", "Amount")
    rows = [AskedRow(headers, ("flour", "500 g")), AskedRow(headers, ("milk", "2 l"))]
    assert not ask("amount of the items", MessageType.SUM, AskedTable("Bread", rows))
