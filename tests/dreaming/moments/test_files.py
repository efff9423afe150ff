"""Mails and data files are read for their moments."""

from __future__ import annotations

from datetime import UTC, datetime

from rem.dreaming.claims import ClaimSource, RowRef
from rem.dreaming.moments.draft import MomentDraft, draft_file
from rem.dreaming.moments.files import MailText, parse_mail
from rem.dreaming.moments.people import KnownPeople
from tests.dreaming.sample_sessions import (
    make_session_id,
)


def _draft_file(name: str, text: str) -> MomentDraft | None:
    source = ClaimSource(RowRef("resources", make_session_id(name)), name)
    return draft_file(name, datetime(2026, 3, 1, tzinfo=UTC), source, [(source, text)], KnownPeople([]))


def test_summary_of_data_files_lists_only_keys() -> None:
    budget = _draft_file("budget.json", '{\n  "customer": "Harbor Ltd",\n  "open_amount_eur": 1200\n}')
    assert budget is not None
    assert budget.summary == "Read budget.json, which has customer, open_amount_eur."
    table = _draft_file("crew.csv", "name,watch\nTom,1\nAda,2")
    assert table is not None
    assert table.summary == "Read crew.csv, which has name, watch."
    program = _draft_file("sail.py", "def hoist(sail):\n    return sail.up()\n")
    assert program is not None
    assert program.summary == "Read sail.py."
    prices = _draft_file("prices.md", "| part | price |\n| --- | --- |\n| anode | 12 EUR |")
    assert prices is not None
    assert prices.summary == "Read prices.md."
    assert _draft_file("empty.md", "\n\n") is None
    letter = _draft_file("letter.md", "The sailmaker in Cowes repairs the mainsail in April.")
    assert letter is not None
    assert letter.summary == "Read letter.md: The sailmaker in Cowes repairs the mainsail in April."


def test_outlook_mail_has_each_header_field_in_a_paragraph() -> None:
    text = "**Subject**: Lunch\n\n**From**: Tom <tom@harbor.example>\n\n**To**: Ada\n\n"
    assert parse_mail([text, "To: be eaten on Friday.\n\nAttachments:\n\n a.txt (3B)"]) == MailText(
        "Lunch", ["", "To: be eaten on Friday."]
    )
    assert parse_mail([f"{text}## plan.docx\n\nThe plan."]) == MailText("Lunch", ["## plan.docx\n\nThe plan."])
