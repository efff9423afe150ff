"""Mails and data files are read for their moments."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from rem.dreams.claims import ClaimSource, RowRef
from rem.dreams.moments.draft import MomentDraft, draft_file
from rem.dreams.moments.files import MailText, parse_mail
from rem.dreams.moments.people import KnownPeople
from rem.dreams.moments.tags import extract_topics
from rem.dreams.text.masking import mask_front_matter
from tests.dreams.sample_sessions import (
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


def test_front_matter_is_no_part_of_a_moment() -> None:
    note = "---\naliases: [Lucía, Luci]\ntags: [people, paragliding]\n---\n# Lucía\n\nShe draws all our frames.\n"
    source = ClaimSource(RowRef("resources", UUID(int=1)), "lucia.md#1")
    draft = draft_file("lucia.md", datetime(2026, 5, 4, tzinfo=UTC), source, [(source, note)], KnownPeople([]))
    assert draft is not None
    assert draft.summary == "Read lucia.md: Lucía. She draws all our frames."
    assert not {"luci", "aliases", "tags", "paragliding"} & set(draft.topics)


def test_rules_between_paragraphs_are_no_front_matter() -> None:
    text = "---\nThe harbour was closed on Monday.\n---\nRain."
    assert mask_front_matter(text) == text
    assert mask_front_matter("---\ntitle: A\n---\nText") == "   \n        \n   \nText"


def test_contractions_and_currencies_are_no_topics() -> None:
    assert extract_topics(["He'll bring the boiler, and she'll pay 300 euros for it."]) == ["boiler", "pay"]
