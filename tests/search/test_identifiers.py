"""Identifiers and quoted phrases are recognised in queries and texts, whatever their separators."""

from __future__ import annotations

import pytest

from rem.search.identifiers import find_exact_items, find_identifier_words


def _items(query: str) -> list[str]:
    return [item["words"][0] for item in find_exact_items(query)]


@pytest.mark.parametrize(
    ("query", "items"),
    [
        ("What was in ticket 1721?", ["1721"]),
        ("Where is order AB-2291?", ["ab2291"]),
        ("my code word heliotrope-91", ["heliotrope91"]),
        ("what changed in v2.14.3?", ["2143"]),
        ("call (555) 123-4567", ["5551234567"]),
        ("call +45 20 30 40 50", ["4520304050", "20304050"]),
        ("When does SK 1427 leave?", ["sk1427", "1427"]),
        ("mail anna.berg@example.com", ["annabergexamplecom"]),
        ("open report-2024_final.pdf", ["report2024finalpdf"]),
        ("who changed src/rem/app.py", ["srcremapppy"]),
        ("is REM_HOME set?", ["remhome"]),
        ("go to gate 22", ["gate 22"]),
        ("ticket 2021", ["2021"]),
        ('who said "blue hour"?', ["blue hour"]),
        ("who said “blue hour”?", ["blue hour"]),
        ("who said 'blue hour'?", ["blue hour"]),
    ],
)
def test_exact_items_of_query(query: str, items: list[str]) -> None:
    assert _items(query) == items


@pytest.mark.parametrize(
    "query",
    [
        "What did we do in 2022?",
        "What happened on May 8, 2023?",
        "What happened on 8 May 2023?",
        "the last 3 weeks",
        "10 years ago",
        "3rd place in the 5k run at 7pm",
        "and/or well-known e.g. the U.S.",
        "Anna's dog's tail and the Joneses' car",
        '"..."',
        "",
    ],
)
def test_everyday_words_are_no_exact_items(query: str) -> None:
    assert _items(query) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("AB-2291", "ab2291 2291"),
        ("SK1427", "sk 1427"),
        ("SK 1427", "sk1427"),
        ("v2.14.3", "2143 14"),
        ("app.py", "apppy app py"),
        ("+45 20 30 40 50", "4520304050 20304050"),
        ("a well-known ticket 1721", ""),
    ],
)
def test_words_that_are_indexed_for_identifiers(text: str, words: str) -> None:
    assert find_identifier_words(text) == words


def test_query_has_limited_number_of_exact_items() -> None:
    assert len(find_exact_items(" ".join(f"ticket {number}" for number in range(1000, 1100)))) == 8
