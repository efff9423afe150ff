"""Topics and emotions are extracted from texts."""

from __future__ import annotations

from rem.dreams.moments.tags import extract_emotions, extract_topics, to_tag


def test_topics_are_kebab_case_with_phrases_first_and_plurals_merged() -> None:
    text = "The Postgres migration is hard. Our Postgres migration needs the ledgers. The ledger is big, ledgers are."
    topics = extract_topics([text])
    assert topics[0] == "postgres-migration"
    assert "ledger" in topics
    assert "ledgers" not in topics
    assert len(topics) <= 5
    assert extract_topics([""]) == []
    assert to_tag("  C++ / Rust & Co. ") == "c-rust-co"


def test_negated_emotions_and_questions_do_not_count() -> None:
    assert extract_emotions(["I am so worried and a bit sad. Very worried!"]) == ["worry", "sadness"]
    assert extract_emotions(["I'm not worried at all.", "Are you sad?", "It was sad-looking? no"]) == []
    assert extract_emotions(["とても不安です"]) == ["worry"]


def test_hosts_companies_and_people_are_no_topics() -> None:
    text = "Sarah Chen <sarah@harbor.example> of Harbor Ltd sent the mainsail from northwind.example to the sailmaker."
    topics = extract_topics([text], ["Sarah Chen"])
    assert set(topics) >= {"mainsail", "sailmaker"}
    assert not {"northwind.example", "northwind", "ltd", "harbor", "sarah", "chen"} & set(topics)
