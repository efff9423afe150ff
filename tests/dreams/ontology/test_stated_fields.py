"""Values that a document states itself are read under the names of a schema."""

from __future__ import annotations

from typing import Any

import pytest

from rem.dreams.ontology.schema import ExtractionSchema
from rem.dreams.ontology.stated_fields import read_stated_fields
from rem.errors import InvalidAgentError

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
def test_stated_fields_are_read_from_all_formats(text: str, mime_type: str) -> None:
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
def test_ambiguous_or_unfit_values_are_left_out(text: str, expected: dict[str, Any]) -> None:
    assert read_stated_fields(text, None, ExtractionSchema("invoices", _INVOICE)) == expected


def test_unusable_schema_raises_invalid_agent_error() -> None:
    with pytest.raises(InvalidAgentError, match="no properties"):
        ExtractionSchema("nothing", {"type": "object"})
    with pytest.raises(InvalidAgentError, match="cannot be used"):
        ExtractionSchema("odd", {"type": "object", "properties": {"a": {"type": "nonsense"}}})
