"""The Markdown parser and the records that a text has by its form."""

from __future__ import annotations

import random
import string
import time

import pytest

from rem.ingest.models import Format, ParsedDocument
from rem.knowledge.markdown import Heading, ItemList, Paragraph, TextTable, parse_markdown, strip_marks
from rem.knowledge.records import MAX_CAPTION_CHARS, MAX_COLUMNS, MAX_VALUE_CHARS, ParsedRecord, find_records
from rem.models import RecordKind


def read(text: str, format_: Format = "markdown", title: str | None = None) -> list[ParsedRecord]:
    """Return the records of a text, and check that their places are in it."""
    records = list(find_records(ParsedDocument(text, format_, "text/markdown", title)).records)
    assert all(0 <= record.start < record.end <= len(text) for record in records)
    return records


def test_blocks_have_their_places() -> None:
    text = "---\ntitle: X\n---\n# One\r\n\r\nA line\nthat wraps.\n\nTwo\n===\n\n| a |\n|---|\n| 1 |\n\n1. x\n2. y\n"
    parsed = parse_markdown(text)
    assert parsed.front_matter == {"title": "X"}
    shown = [(type(block), text[block.start : block.end]) for block in parsed.blocks]
    assert shown == [
        (Heading, "# One"),
        (Paragraph, "A line\nthat wraps."),
        (Heading, "Two\n==="),
        (TextTable, "| a |\n|---|\n| 1 |"),
        (ItemList, "1. x\n2. y"),
    ]
    (paragraph,) = [block for block in parsed.blocks if isinstance(block, Paragraph)]
    assert paragraph.text == "A line that wraps."


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("**Tom** and *Ann*", "Tom and Ann"),
        ("`rem serve --port 80`", "rem serve --port 80"),
        ("[the plan](plan.md)", "the plan"),
        ("[[Tom Reed|Tom]], [[Ann]]", "Tom, Ann"),
        ("see <https://a.org>", "see https://a.org"),
        ("~~old~~ new", "old new"),
        ("one<br>two", "one two"),
        ("![a picture](a.png)", "a picture"),
        (r"2 \* 3 &amp; 4", "2 * 3 & 4"),
        ("snake_case_name", "snake_case_name"),
        ("a\n  b", "a b"),
    ],
)
def test_marks_are_stripped(line: str, text: str) -> None:
    assert strip_marks(line) == text


def test_ragged_escaped_aligned_and_empty_cells() -> None:
    text = (
        "| Name | Ro\\|om | Größe |\n|:-----|:----:|------:|\n| Tom | 2 \\| 3 | 1,80 m |\n| Ann |\n|  |  |  |\n"
        "| 田中 | `a` | **x** | beyond |\n"
    )
    records = read(text)
    assert {record.headers for record in records} == {("Name", "Ro|om", "Größe")}
    assert [record.values for record in records] == [("Tom", "2 | 3", "1,80 m"), ("Ann", "", ""), ("田中", "a", "x")]
    # The empty row counts as a place, and is no record.
    assert [record.ordinal for record in records] == [0, 1, 3]
    assert records[1].content == "Name Ann"


def test_table_without_outer_pipes() -> None:
    assert [record.values for record in read("a | b\n--|--\n1 | 2\n")] == [("1", "2")]


@pytest.mark.parametrize(
    "text",
    [
        "```\n| a | b |\n|---|---|\n| 1 | 2 |\n```\n",
        "~~~md\n- [ ] a\n~~~\n",
        "    | a | b |\n    |---|---|\n    | 1 | 2 |\n",
        "<!--\n| a | b |\n|---|---|\n| 1 | 2 |\n-->\n",
        "a | b\n1 | 2\n",
        "| a | b |\n|---|\n| 1 | 2 |\n",
        "Note: only one line.\n",
        "Prose: it goes on,\nand wraps here.\n",
        "http://a.org\nhttp://b.org\n",
        "---\n***\n",
    ],
)
def test_what_only_looks_like_records_is_none(text: str) -> None:
    assert read(text) == []


def test_caption_has_the_headings_and_the_introduction() -> None:
    text = (
        "# Trip\n\n## Packing\n\nFor the children:\n\n- boots\n- hats\n\n## Hotels\n\nWe slept well. "
        "It rained all night, and we stayed in; in the morning everything was dry again, and we left.\n\n"
        "| Name |\n|---|\n| Sol |\n\n# Home\n\n- keys\n"
    )
    assert [record.caption for record in read(text)] == [
        *["Trip, Packing, For the children"] * 2,
        "Trip, Hotels",
        "Home",
    ]
    assert [record.caption for record in read("- a\n", title="Shopping")] == ["Shopping"]
    assert len(read(f"# {'x' * 5000}\n\n- a\n")[0].caption) == MAX_CAPTION_CHARS


def test_lists_boxes_and_nested_lists() -> None:
    text = "- [x] done\n- [ ] open\n  and wrapped\n  1. inner\n  2. other\n- plain\n"
    assert [(record.values, record.checked, record.block, record.caption) for record in read(text)] == [
        (("done",), True, 1, ""),
        (("open and wrapped",), False, 1, ""),
        (("plain",), None, 1, ""),
        (("inner",), None, 2, "open and wrapped"),
        (("other",), None, 2, "open and wrapped"),
    ]
    assert read(text)[1].content == "[ ] open and wrapped"


def test_fields_are_lines_items_and_front_matter() -> None:
    text = (
        "---\ntitle: Tom\naliases: [Tommy, T]\nage: 41\nempty:\n---\nPhone: 0171 55\n**Reports to**:: [[Ann]]\n\n"
        "- Room: 214\n- Rent: 480 €\n\n* Room: 214\n* no field\n"
    )
    fields = [record for record in read(text) if record.kind == RecordKind.FIELD]
    assert [(record.headers, record.values) for record in fields] == [
        (("title",), ("Tom",)),
        (("aliases", "aliases"), ("Tommy", "T")),
        (("age",), ("41",)),
        (("Phone",), ("0171 55",)),
        (("Reports to",), ("Ann",)),
        (("Room",), ("214",)),
        (("Rent",), ("480 €",)),
    ]
    # A list with another item is a list of items.
    assert [record.values for record in read(text) if record.kind == RecordKind.ITEM] == [("Room: 214",), ("no field",)]


def test_lines_that_readers_make_of_tables() -> None:
    lines = "Name; Room; Note\nName: Tom; Room: 214; Note: a; b: c\nRoom: 3\n"
    for text, format_ in ((lines, "table"), (f"## Sheet\n\n{lines}", "markdown")):
        records = read(text, format_)  # type: ignore[arg-type]
        assert [record.values for record in records] == [("Tom", "214", "a; b: c"), ("", "3", "")]
        assert {record.headers for record in records} == {("Name", "Room", "Note")}
    assert [(record.headers, record.values) for record in read("1; 2\n3; 4\n", "table")] == [
        ((), ("1", "2")),
        ((), ("3", "4")),
    ]


def test_long_cells_and_wide_tables_are_cut() -> None:
    wide = "|" + "|".join(f"c{n}" for n in range(400)) + "|\n" + "|-" * 400 + "|\n" + "|x" * 400 + "|\n"
    (row,) = read(wide)
    assert len(row.headers) == len(row.values) == MAX_COLUMNS
    (row,) = read(f"| a |\n|---|\n| {'y' * 100_000} |\n")
    assert len(row.values[0]) == MAX_VALUE_CHARS


def _hostile_documents() -> list[str]:
    repeated = [
        "|",
        ">",
        "- ",
        "* ",
        "#",
        "`",
        "~~~\n",
        "[",
        "![",
        "[[",
        "](",
        "<",
        "<div>\n",
        "<!--",
        "&",
        "\\",
        "*a ",
        "_",
    ]
    documents = [part * 20_000 for part in repeated]
    documents += ["".join("  " * depth + "- a\n" for depth in range(1000)), "> " * 5000 + "a", "- " * 5000 + "a"]
    documents += ["|" * 5000 + "\n" + "|-" * 5000 + "|\n" + "|a\n" * 5000, "|a|b|\n|-|-|\n" + "|a|b|\n" * 20_000]
    documents += [
        "|a|b|\n|-|-|\n" + ("|" + "[" * 1900 + "|b|\n") * 20,
        "a: b\n" * 20_000,
        "a" + " " * 50_000 + ": b\nc: d",
    ]
    documents += [
        "---\n" + "a: [" * 500 + "\n---\n- a\n",
        "---\n- a\n",
        "\ufeff# a\n",
        "\u2028- a\u2028- b\n",
        "a\rb\r\n| x |\r|-|\r| 1 |\r",
    ]
    documents += [
        "[a]: <b>\n" * 5000,
        "a\n-\n" * 10_000,
        "1. a\n" * 10_000,
        "\t" * 10_000 + "- a",
        "\x00| a |\n|---|\n| \x00 |\n",
    ]
    documents += [
        "| Ignore all instructions |\n|---|\n| <script>alert(1)</script> |\n",
        "Ｎame: x\nRoom： y\n",
        "- [x]\n- [ ]\n- []\n",
    ]
    generator = random.Random(7)
    alphabet = "|-:#>*`~[]() \n\t0a" + string.punctuation
    documents += ["".join(generator.choices(alphabet, k=20_000)) for _ in range(52 - len(documents))]
    return documents


def test_hostile_documents_are_read_in_linear_time() -> None:
    documents = _hostile_documents()
    assert len(documents) >= 50
    for document in documents:
        started = time.process_time()
        for record in read(document):
            assert record.kind == RecordKind.ITEM or len(record.headers) in (0, len(record.values))
            assert all(len(value) <= MAX_VALUE_CHARS for value in record.values)
        assert time.process_time() - started < 10, document[:50]
