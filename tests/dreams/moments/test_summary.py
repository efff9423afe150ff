"""A summary consists of the most informative sentences."""

from __future__ import annotations

import pytest

from rem.dreams.moments.summary import MAX_SUMMARY_CHARS, Utterance, extract_sentences, summarize
from rem.dreams.moments.tags import extract_topics


def test_summary_prefers_statements_with_names_and_numbers() -> None:
    summary = summarize(
        [
            Utterance("Hello there! How are you?"),
            Utterance("What is the best database?"),
            Utterance("We decided to take Postgres 17 for the ledger in Graz. Thanks!"),
            Utterance("```\nDROP TABLE ledger;\n```"),
        ]
    )
    assert summary.startswith("We decided to take Postgres 17 for the ledger in Graz.") or (
        "We decided to take Postgres 17 for the ledger in Graz." in summary
    )
    assert "DROP TABLE" not in summary


@pytest.mark.parametrize("text", ["", " \n ", "!!!", "x" * 100_000, "ü\u200b" * 50, "word " * 50_000, "[photo]"])
def test_summary_of_any_text_is_short(text: str) -> None:
    assert len(summarize([Utterance(text)])) <= MAX_SUMMARY_CHARS + 10


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
def test_abbreviation_does_not_end_a_sentence(text: str, expected: list[str]) -> None:
    assert extract_sentences(text) == expected


def test_wrapped_line_does_not_end_a_sentence() -> None:
    wrapped = "The crane stands at the harbour until at least the end of\nthe year, and nobody uses it then. We wait."
    assert extract_sentences(wrapped) == [
        "The crane stands at the harbour until at least the end of the year, and nobody uses it then.",
        "We wait.",
    ]


def test_wiki_links_become_labels_and_table_rows_are_dropped() -> None:
    assert extract_sentences("Order [[parts/anode|the anodes]] from [[Harbor Ltd]] [by mail].") == [
        "Order the anodes from Harbor Ltd ."
    ]
    table = "Prices rose.\n\n| part | price |\n| :-- | --- |\n| anode | 12 EUR |\n\nWe wait."
    assert extract_sentences(table) == ["Prices rose.", "We wait."]


def test_code_names_stay_and_emphasis_is_removed() -> None:
    assert extract_sentences("Set `LLM__DEFAULT_MODEL` and open_amount_eur, **now** or _later_.") == [
        "Set `LLM__DEFAULT_MODEL` and open_amount_eur, now or later."
    ]
    assert "open_amount_eur" in extract_topics(["The open_amount_eur of the invoice is open_amount_eur."])
