"""Links of a Markdown text: wiki links and links to files, outside of code."""

from __future__ import annotations

import pytest

from rem.ingest.readers.markdown import NoteLink, find_links, resolve_uri


def targets(text: str) -> list[str]:
    return [link.target for link in find_links(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See [[Boat]].", NoteLink("Boat", False)),
        ("See [[ Boat | the boat ]].", NoteLink("Boat", False)),
        ("See [[Boat#Engine]].", NoteLink("Boat", False, "Engine")),
        ("| [[Boat\\|the boat]] |", NoteLink("Boat", False)),
        ("| [[Boat#Engine\\|the engine]] |", NoteLink("Boat", False, "Engine")),
        ("See [x](other.md).", NoteLink("other.md", True)),
        ("See [x](other.md#Engine%20room 'A title').", NoteLink("other.md", True, "Engine room")),
        ("See [x](<my note.md>).", NoteLink("my note.md", True)),
        ("See [x](my%20note.md).", NoteLink("my note.md", True)),
        ("See [paper](files/paper.pdf).", NoteLink("files/paper.pdf", True)),
        ("![[Boat]]", NoteLink("Boat", False)),
        ("- item\n\n    [[Boat]] in the second paragraph of an item", NoteLink("Boat", False)),
        ("Text that goes on\n    [[Boat]] in an indented line of the paragraph", NoteLink("Boat", False)),
    ],
)
def test_link_is_found(text: str, expected: NoteLink) -> None:
    assert list(find_links(text)) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "```\n[[Boat]]\n```",
        "~~~~ md\n```\n[[Boat]] [x](other.md)\n~~~~",
        "```\n[[Boat]] in code that is never closed",
        "Code: `[[Boat]]` and ``[x](other.md)``.",
        "Text.\n\n    [[Boat]]\n\tcode [x](other.md)",
        "[web](https://example.com/a.md) [mail](mailto:a@example.com)",
        "![image](boat.png) ![[boat.png]]",
        "[[#Engine]] [top](#engine) [root](/etc/passwd) [folder](notes/)",
        "[[]] [[ ]] [x]() [[a\nb]]",
    ],
)
def test_other_text_is_no_link(text: str) -> None:
    assert targets(text) == []


def test_prose_after_code_has_links_again() -> None:
    assert targets("```\n[[A]]\n```\n[[B]]\n\n    [[C]]\n\nText [[D]]\n") == ["B", "D"]


def test_huge_text_takes_linear_time() -> None:
    # A quadratic search in a text of this size takes minutes.
    assert targets("[[" * 300_000 + "[" * 300_000 + "`" * 300_001 + "\n[[Boat]]") == ["Boat"]


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("b.md", "file:///n/sub/b.md"),
        ("../b.md", "file:///n/b.md"),
        ("./x/../my note.md", "file:///n/sub/my%20note.md"),
        ("b", "file:///n/sub/b.md"),
        ("grüße.md", "file:///n/sub/gr%C3%BC%C3%9Fe.md"),
    ],
)
def test_path_is_resolved_to_the_uri_of_a_file(path: str, uri: str) -> None:
    assert resolve_uri("file:///n/sub/a.md", path) == uri


def test_path_of_an_upload_is_resolved() -> None:
    assert resolve_uri("upload:///notes/a.md", "b.md") == "upload:///notes/b.md"
