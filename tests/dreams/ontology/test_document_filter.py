"""A rule applies to documents by MIME type, address and tags."""

from __future__ import annotations

import time

import pytest

from rem.dreams.ontology.document import find_pattern_error, matches_mime_type, matches_pattern, matches_tags


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (None, "anything", True),
        ("", "anything", True),
        ("*.pdf", "file:///cvs/ana.pdf", True),
        ("*.pdf", "file:///cvs/ana.pdf.txt", False),
        ("*.pdf", "file:///cvs/anaxpdf", False),
        ("s3://cvs/*", "s3://cvs/2026/ana.pdf", True),
        ("s3://cvs/.*", "s3://cvs/2026/ana.pdf", True),
        ("s3://cvs/.*", "s3://contracts/a.pdf", False),
        (r".*\.(md|txt)", "notes/a.txt", True),
        (r".*\.(md|txt)", "notes/a.pdf", False),
        ("cv-??.md", "cv-01.md", True),
        ("cv-??.md", "cv-1.md", False),
        ("a+b.[md]", "a+b.[md]", True),
        ("*航海*", "file:///航海.md", True),
        ("*", None, False),
    ],
)
def test_pattern_is_glob_or_regular_expression_for_the_whole_text(
    pattern: str | None, text: str | None, expected: bool
) -> None:
    assert find_pattern_error(pattern) is None
    assert matches_pattern(pattern, text) == expected


def test_mime_type_is_compared_without_case_and_parameters() -> None:
    assert matches_mime_type("text/*", "Text/Markdown; charset=utf-8")
    assert matches_mime_type("APPLICATION/PDF", "application/pdf")
    assert matches_mime_type("image/svg+xml", "image/svg+xml")
    assert matches_mime_type("application/(pdf|msword)", "application/msword")
    assert not matches_mime_type("text/*", "application/pdf")
    assert not matches_mime_type("text/*", None)


def test_document_needs_one_of_the_wanted_tags() -> None:
    assert matches_tags([], [])
    assert matches_tags(["CV", "resume"], ["cv"])
    assert not matches_tags(["cv"], ["contract"])


@pytest.mark.parametrize("pattern", ["(", "(?=a).*", r"(a)\1", "(a{1000}){1000}", "x" * 2000])
def test_slow_pattern_is_refused(pattern: str) -> None:
    assert find_pattern_error(pattern)


def test_no_pattern_is_slow() -> None:
    begun = time.process_time()
    assert not matches_pattern("(a+)+b", "a" * 5000)
    assert not matches_pattern("*a*a*a*a*a*a*a*b", "a" * 5000)
    assert time.process_time() - begun < 2
