"""Chunker: no text is lost, every chunk is within the limit and has its heading path."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rem.ingest.chunks import Chunk, chunk_document
from rem.ingest.models import Format, ParsedDocument
from rem.sessions.tokens import count_tokens

pytestmark = pytest.mark.slow

FORMATS: list[Format] = ["text", "markdown", "code", "table", "data"]
_LINES = st.one_of(
    st.text(max_size=80),
    st.sampled_from(["# One", "## Two", "### Three ###", "Title", "=====", "---", "```", "~~~py", "    code", ""]),
    st.sampled_from(
        ["def f():", "class A:", "  def g(self):", "@decorated", "a,b,c", '"open', '"x","y"', "key: value"]
    ),
    st.sampled_from(
        ["  - item", '{"a": [', "]}", "\t", "\r", "\x0b", " ", "İ", "👩‍👩‍👧", "漢字漢字漢字", "word " * 60]
    ),
)
TEXTS = st.lists(_LINES, max_size=40).map("\n".join)


def cut(text: str, format_: Format = "markdown", most: int = 64) -> list[Chunk]:
    return chunk_document(ParsedDocument(text, format_, "text/x"), most)


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.sampled_from(FORMATS), st.sampled_from([32, 64, 256]))
@example("", "markdown", 32)
@example(" \n\t\n", "text", 32)
@example("# A\n\n## B\n\n### C", "markdown", 32)
def test_no_text_is_lost_and_every_offset_is_exact(text: str, format_: Format, most: int) -> None:
    end = 0
    for number, chunk in enumerate(cut(text, format_, most), 1):
        assert chunk.text == text[chunk.start : chunk.end] == chunk.text.strip() != ""
        assert text[end : chunk.start].strip() == ""
        assert chunk.ordinal == number
        assert count_tokens(chunk.text) <= most
        end = chunk.end
    assert text[end:].strip() == ""


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(
    "text",
    ["x" * 500_000, "word and " * 50_000, "漢字" * 75_000, "a,b\n" * 50_000, " " * 999 + "k: v\n" * 50_000],
)
def test_half_a_megabyte_of_any_text_takes_seconds(format_: Format, text: str) -> None:
    began = time.process_time()
    chunks = cut(text, format_, 192)
    assert time.process_time() - began < 2.5
    assert sum(len(chunk.text) for chunk in chunks) >= len("".join(text.split()))


def test_deep_nesting_takes_seconds() -> None:
    text = "\n".join(" " * depth + "key: value" for depth in range(1500))
    began = time.process_time()
    assert cut(text, "data")
    assert time.process_time() - began < 5


def test_markdown_is_cut_at_headings() -> None:
    front = "---\ntitle: T\ntags: [a]\n---\n"
    text = f"{front}Hello\n\n# Guide #\n\n## Set up\n\nRun it.\n\nUse\n---\n\nType.\n\n# End\n\nBye.\n"
    assert [(chunk.heading_path, chunk.text.splitlines()[0]) for chunk in cut(text)] == [
        ((), "---"),
        (("Guide", "Set up"), "# Guide #"),
        (("Guide", "Use"), "Use"),
        (("End",), "# End"),
    ]


def test_number_sign_in_code_is_not_a_heading() -> None:
    text = "# Shell\n\n```sh\n# a comment\nls\n```\n\n    # indented\n"
    assert [chunk.heading_path for chunk in cut(text)] == [("Shell",)]


def test_long_section_is_cut_at_paragraphs() -> None:
    paragraphs = [f"{word} " * 40 for word in ("river", "garden", "harbour", "violin")]
    chunks = cut("# All\n\n" + "\n\n".join(paragraphs))
    assert {chunk.heading_path for chunk in chunks} == {("All",)}
    assert [set(chunk.text.replace("# All", "").split()) for chunk in chunks if chunk.text != "# All"] == [
        {"river"},
        {"garden"},
        {"harbour"},
        {"violin"},
    ]


def test_code_is_cut_at_definitions() -> None:
    method = "    def {0}(self) -> int:\n        return " + " + ".join(map(str, range(18))) + "\n"
    methods = "\n".join(map(method.format, ("read", "write", "close")))
    text = f"import os\n\n\n@final\nclass Store:\n{methods}\n\n# The start.\ndef main():\n    pass\n"
    chunks = cut(text, "code", 66)
    assert [chunk.heading_path for chunk in chunks] == [
        (),
        ("class Store", "def read"),
        ("class Store", "def write"),
        ("class Store", "def close"),
        ("def main",),
    ]
    assert chunks[0].text.endswith("@final\nclass Store:")
    assert chunks[-1].text.startswith("# The start.")


def test_table_is_cut_between_rows_and_chunks_have_the_header() -> None:
    rows = [f"{number},Person {number},Town of {number}" for number in range(60)]
    chunks = cut("id,name,town\n" + "\n".join(rows), "table")
    assert len(chunks) > 3
    assert [line for chunk in chunks for line in chunk.text.splitlines()] == ["id,name,town", *rows]
    assert "header" not in chunks[0].metadata
    assert {chunk.metadata["header"] for chunk in chunks[1:]} == {"id,name,town"}


def test_row_with_quoted_line_break_is_one_row() -> None:
    rows = [f'{number},"first line\nsecond line of {number}"' for number in range(40)]
    assert all(chunk.text.count('"') % 2 == 0 for chunk in cut("id,text\n" + "\n".join(rows), "table"))


def test_data_entries_that_fit_are_not_cut() -> None:
    entry = "item{0}:\n  name: Thing {0}\n  parts:\n    - first\n    - second\n"
    chunks = cut("".join(map(entry.format, range(20))), "data")
    assert len(chunks) > 3
    assert all(chunk.text.startswith("item") and chunk.text.endswith("second") for chunk in chunks)


def test_shortest_text_is_a_chunk() -> None:
    assert [chunk.text for chunk in cut("\n x \n", "text")] == ["x"]
    assert [chunk.text for chunk in cut("# x")] == ["# x"]
