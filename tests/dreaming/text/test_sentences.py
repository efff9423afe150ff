"""Sentences and names: what dreams write reads as it was said."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rem.dreaming.claims import ClaimSource, RowRef
from rem.dreaming.moments.draft import MomentDraft, draft_file
from rem.dreaming.moments.people import KnownPeople
from rem.dreaming.moments.summary import extract_sentences
from rem.dreaming.moments.tags import extract_topics
from tests.dreaming.sample_sessions import session_id


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I met S. Chen today. She sails.", ["I met S. Chen today.", "She sails."]),
        ("Dr. Lee came. It rained.", ["Dr. Lee came.", "It rained."]),
        ("Take a knot, e.g. a bowline. Then pull.", ["Take a knot, e.g. a bowline.", "Then pull."]),
        ("We take plan B. The rest waits.", ["We take plan B.", "The rest waits."]),
        ("Acme Inc. pays. Acme Inc. We sign.", ["Acme Inc. pays.", "Acme Inc.", "We sign."]),
        ("Das gilt z.B. für uns. Gut so.", ["Das gilt z.B. für uns.", "Gut so."]),
        ("No. I do not. See no. 7 of it.", ["No.", "I do not.", "See no. 7 of it."]),
    ],
)
def test_an_abbreviation_ends_no_sentence(text: str, expected: list[str]) -> None:
    assert extract_sentences(text) == expected


def test_links_of_a_wiki_are_read_as_their_labels_and_rows_of_tables_not_at_all() -> None:
    assert extract_sentences("Order [[parts/anode|the anodes]] from [[Harbor Ltd]] [by mail].") == [
        "Order the anodes from Harbor Ltd ."
    ]
    table = "Prices rose.\n\n| part | price |\n| :-- | --- |\n| anode | 12 EUR |\n\nWe wait."
    assert extract_sentences(table) == ["Prices rose.", "We wait."]


def test_names_of_code_stay_as_they_are_and_emphasis_goes() -> None:
    assert extract_sentences("Set `LLM__DEFAULT_MODEL` and open_amount_eur, **now** or _later_.") == [
        "Set `LLM__DEFAULT_MODEL` and open_amount_eur, now or later."
    ]
    assert "open_amount_eur" in extract_topics([("The open_amount_eur of the invoice is open_amount_eur.", 1.0)])


def test_hosts_companies_and_people_are_no_topics() -> None:
    text = "Sarah Chen <sarah@harbor.example> of Harbor Ltd sent the mainsail from northwind.example to the sailmaker."
    topics = extract_topics([(text, 1.0)], ["Sarah Chen"])
    assert set(topics) >= {"mainsail", "sailmaker"}
    assert not {"northwind.example", "northwind", "ltd", "harbor", "sarah", "chen"} & set(topics)


def test_what_only_an_assistant_says_is_no_topic() -> None:
    answer = "Kubernetes is a platform. Kubernetes runs pods. Kubernetes has a scheduler for Kubernetes pods."
    assert extract_topics([("The mainsail of the Albatross is torn.", 1.0), (answer, 0.15)]) == [
        "albatross",
        "mainsail",
        "torn",
    ]


def _file(name: str, text: str) -> MomentDraft | None:
    source = ClaimSource(RowRef("resources", session_id(name)), name)
    return draft_file(name, datetime(2026, 3, 1, tzinfo=UTC), source, [(source, text)], KnownPeople([]))


def test_of_data_and_programs_only_what_they_call_things_is_said() -> None:
    budget = _file("budget.json", '{\n  "customer": "Harbor Ltd",\n  "open_amount_eur": 1200\n}')
    assert budget is not None
    assert budget.summary == "Read budget.json, which has customer, open_amount_eur."
    table = _file("crew.csv", "name,watch\nTom,1\nAda,2")
    assert table is not None
    assert table.summary == "Read crew.csv, which has name, watch."
    program = _file("sail.py", "def hoist(sail):\n    return sail.up()\n")
    assert program is not None
    assert program.summary == "Read sail.py."
    prices = _file("prices.md", "| part | price |\n| --- | --- |\n| anode | 12 EUR |")
    assert prices is not None
    assert prices.summary == "Read prices.md."
    assert _file("empty.md", "\n\n") is None
    letter = _file("letter.md", "The sailmaker in Cowes repairs the mainsail in April.")
    assert letter is not None
    assert letter.summary == "Read letter.md: The sailmaker in Cowes repairs the mainsail in April."
