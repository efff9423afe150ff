"""Which documents a rule is for, and what a document states itself."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rem.dreaming.ontology.document_filter import find_pattern_error, matches_mime_type, matches_pattern, matches_tags
from rem.dreaming.ontology.extraction import format_as_text, split_into_portions
from rem.dreaming.ontology.schema import ExtractionSchema
from rem.dreaming.ontology.stated_fields import read_stated_fields
from rem.errors import InvalidAgentError


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
def test_a_pattern_is_a_glob_or_a_regular_expression_over_the_whole(
    pattern: str | None, text: str | None, expected: bool
) -> None:
    assert find_pattern_error(pattern) is None
    assert matches_pattern(pattern, text) == expected


def test_a_mime_type_is_compared_without_case_and_parameters() -> None:
    assert matches_mime_type("text/*", "Text/Markdown; charset=utf-8")
    assert matches_mime_type("APPLICATION/PDF", "application/pdf")
    assert matches_mime_type("image/svg+xml", "image/svg+xml")
    assert matches_mime_type("application/(pdf|msword)", "application/msword")
    assert not matches_mime_type("text/*", "application/pdf")
    assert not matches_mime_type("text/*", None)


def test_one_of_the_wanted_tags_has_to_be_there() -> None:
    assert matches_tags([], [])
    assert matches_tags(["CV", "resume"], ["cv"])
    assert not matches_tags(["cv"], ["contract"])


@pytest.mark.parametrize("pattern", ["(", "(?=a).*", r"(a)\1", "(a{1000}){1000}", "x" * 2000])
def test_a_pattern_that_could_not_be_matched_quickly_is_refused(pattern: str) -> None:
    assert find_pattern_error(pattern)


def test_no_pattern_keeps_the_matching_busy() -> None:
    begun = time.monotonic()
    assert not matches_pattern("(a+)+b", "a" * 5000)
    assert not matches_pattern("*a*a*a*a*a*a*a*b", "a" * 5000)
    assert time.monotonic() - begun < 2


_INVOICE = {
    "type": "object",
    "properties": {
        "number": {"type": "string", "title": "Invoice No"},
        "total": {"type": "number", "minimum": 0},
        "due_date": {"type": "string", "format": "date"},
        "is_paid": {"type": "boolean"},
        "status": {"type": "string", "enum": ["open", "closed"]},
        "items": {"type": "array", "items": {"type": "string"}},
        "customer": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
    "required": ["number", "total"],
    "additionalProperties": False,
}
_EXPECTED = {
    "number": "A-7",
    "total": 1200.5,
    "due_date": "2026-05-04",
    "is_paid": False,
    "status": "open",
    "items": ["rope", "sail"],
}


@pytest.mark.parametrize(
    ("text", "mime_type"),
    [
        (
            "Invoice No: A-7\n- **Total:** $1,200.50\nDue date: 2026-05-04\n__Is paid__: no\nSTATUS：Open\n"
            "Items: rope; sail\n",
            "text/plain",
        ),
        (
            "---\nnumber: A-7\ntotal: 1200.5\ndue_date: 2026-05-04\nis_paid: false\nstatus: open\n"
            "items: [rope, sail]\n---\nTotal: 9\n",
            "text/markdown",
        ),
        (
            "| Field | Value |\n|---|---|\n| Invoice no | A-7 |\n| **Total** | 1200.50 |\n| due-date | 2026-05-04 |\n"
            "| Is Paid | no |\n| Status | OPEN |\n\n## Items\n\n1. rope\n2. sail\n\nThanks.",
            "text/markdown",
        ),
        (
            '{"number": "A-7", "total": 1200.5, "dueDate": "2026-05-04", "is_paid": false, "status": "open",'
            ' "items": ["rope", "sail"]}',
            "application/json",
        ),
        (
            "number: A-7\ntotal: 1200.5\ndue_date: 2026-05-04\nis_paid: no\nstatus: open\nitems:\n- rope\n- sail\n",
            "application/yaml",
        ),
        (
            'number,A-7\ntotal,"1,200.50"\ndue date,2026-05-04\nis paid,no\nstatus,open\nitems,rope; sail\n',
            "text/csv",
        ),
    ],
    ids=["lines", "front-matter", "table", "json", "yaml", "csv"],
)
def test_fields_are_taken_as_the_document_states_them(text: str, mime_type: str) -> None:
    schema = ExtractionSchema("invoices", _INVOICE)
    found = read_stated_fields(text, mime_type, schema)
    assert found == _EXPECTED
    assert schema.find_errors(found) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Total: 5\nTotal: 6", {}),
        ("Total: 5\nTotal: 5.0", {"total": 5}),
        ("Total: much", {}),
        ("Total: -3", {}),
        ("Due date: tomorrow", {}),
        ("see http://total: 5", {}),
        ("Status: unknown", {}),
        ("Nothing here.", {}),
        ("", {}),
        ('{"total": ', {}),
        ('{"customer": {"name": "Zoë"}}', {"customer": {"name": "Zoë"}}),
        ("---\n[broken\n---\nTotal: 5", {"total": 5}),
        ("Total: 5\0", {}),
        ("Number: \ud800", {"number": "�"}),
    ],
)
def test_what_is_unclear_or_does_not_fit_is_not_taken(text: str, expected: dict[str, Any]) -> None:
    assert read_stated_fields(text, None, ExtractionSchema("invoices", _INVOICE)) == expected


def test_a_schema_that_cannot_be_used_says_so() -> None:
    with pytest.raises(InvalidAgentError, match="no properties"):
        ExtractionSchema("nothing", {"type": "object"})
    with pytest.raises(InvalidAgentError, match="cannot be used"):
        ExtractionSchema("odd", {"type": "object", "properties": {"a": {"type": "nonsense"}}})


def test_portions_are_the_text() -> None:
    text = "".join(f"Paragraph {number}, {'word ' * 40}\n\n" for number in range(400))
    portions = split_into_portions(text)
    assert len(portions) > 3
    assert "".join(portions) == text
    assert all(portion.endswith("\n\n") for portion in portions)
    assert split_into_portions("") == []
    assert "".join(split_into_portions("x" * 50_001)) == "x" * 50_001


def test_what_was_found_reads_as_text() -> None:
    data = {"full_name": "Zoë", "skills": ["Go", "SQL"], "empty": [], "is_new": True}
    jobs = [{"title": "Engineer", "years": 3}, {"title": "Lead"}]
    text = format_as_text("cv", {**data, "jobs": jobs, "address": {"city": "Ἀθῆναι"}})
    assert text == (
        "cv\nFull name: Zoë\nSkills: Go, SQL\nIs new: yes\nJobs:\n- Title: Engineer\n  Years: 3\n- Title: Lead\n"
        "Address:\n  City: Ἀθῆναι"
    )
