"""Excerpts of search results: dates, speakers and superseded rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from rem.agents.local.excerpts import describe_date, parse_search_result, write_answer
from rem.query.natural import WEAK_NOTE
from rem.query.verbs.search import WAITING_NOTE


def write_lines(*rows: dict[str, Any], query_type: str = "SEARCH") -> list[str]:
    result = {"status": "success", "query_type": query_type, "results": list(rows), "count": len(rows)}
    return write_answer(parse_search_result(result, ["Where do I live?"])).split("\n")[2:-2]


@pytest.mark.parametrize(
    ("time", "words"),
    [
        ("2026-11-16T23:59", "today"),
        ("2026-11-15", "yesterday"),
        ("2026-11-14T00:00:00+00:00", "14 Nov 2026"),
        ("2026-11-17", "17 Nov 2026"),
        ("", ""),
        ("soon", ""),
    ],
)
def test_date_is_written_as_people_say_it(time: str, words: str) -> None:
    assert describe_date(time, date(2026, 11, 16)) == words


def test_every_excerpt_says_what_it_is_and_when() -> None:
    now = datetime.now(UTC).isoformat()
    lines = write_lines(
        {"table": "resources", "key": "home", "happened_at": "2026-03-05", "text": "I live in Aarhus."},
        {"table": "messages", "key": "m-1", "happened_at": now, "role": "user", "text": "We moved."},
        {"table": "messages", "key": "m-2", "happened_at": now, "speaker": "Caroline", "text": "I moved, too."},
        {"table": "users", "key": "sarah-chen", "role": "head of data", "text": "Lives in Odense."},
        {"table": "recipes", "key": "soup", "happened_at": "2025-01-31", "text": "Water and salt."},
    )
    assert lines == [
        "1. `home` (note, 5 Mar 2026): I live in Aarhus.",
        "2. `m-1` (you said, today): We moved.",
        "3. `m-2` (Caroline said, today): I moved, too.",
        "4. `sarah-chen` (person): head of data; Lives in Odense.",
        "5. `soup` (recipes, 31 Jan 2025): Water and salt.",
    ]


def test_title_of_a_note_is_shown() -> None:
    note = {"table": "resources", "key": "people/owner.md#1", "happened_at": "2026-01-02", "text": "She owns the flat."}
    file = {"table": "files", "key": "people/owner.md", "metadata": {"title": "Ms. Kuipers"}, "text": "She is in."}
    named = {"table": "files", "key": "a.md", "metadata": {"title": "Ms. Kuipers"}, "text": "Call Ms. Kuipers."}
    assert write_lines({**note, "title": "Ms. Kuipers"}, file, named) == [
        "1. `people/owner.md#1` (note “Ms. Kuipers”, 2 Jan 2026): She owns the flat.",
        "2. `people/owner.md` (file “Ms. Kuipers”): She is in.",
        "3. `a.md` (file): Call Ms. Kuipers.",
    ]


def test_note_is_shown_without_markdown_and_a_message_as_it_was_written() -> None:
    text = "# Plum cake\n\n- 1 kg **plums**\n- see [[streusel]]"
    lines = write_lines(
        {"table": "resources", "key": "cake.md#1", "happened_at": "2026-01-02", "text": text},
        {"table": "messages", "key": "m-1", "role": "user", "text": text},
    )
    assert lines == [
        "1. `cake.md#1` (note “Plum cake”, 2 Jan 2026): 1 kg plums; see streusel",
        "2. `m-1` (you said): # Plum cake - 1 kg **plums** - see [[streusel]]",
    ]


def test_superseded_excerpt_names_its_successor() -> None:
    old = {"table": "resources", "key": "old", "happened_at": "2026-01-02", "text": "I live in Svendborg."}
    (line,) = write_lines({**old, "superseded_by": "new", "superseded_at": "2026-02-14T10:00"})
    assert line == "1. `old` (note, 2 Jan 2026): I live in Svendborg. (superseded on 14 Feb 2026 by `new`)"
    (line,) = write_lines({**old, "superseded_by": "new"})
    assert line.endswith("(superseded by `new`)")


def test_best_match_has_more_room_than_the_others() -> None:
    text = f"{'I live in a house. ' * 25}It is in Aarhus."
    first, second = write_lines(*({"table": "messages", "key": key, "role": "user", "text": text} for key in "ab"))
    assert len(first) > 450
    assert len(second) < 400


def test_list_shows_more_rows_and_says_how_many_are_left_out() -> None:
    rows = [
        {"table": "messages", "key": f"m-{n}", "happened_at": "2026-03-05", "content": f"Day {n}."} for n in range(30)
    ]
    lines = write_lines(*rows, query_type="SQL")
    assert [line.split(". ")[0] for line in lines[:20]] == [str(number) for number in range(1, 21)]
    assert lines[-1].startswith("… and 10 more.")
    assert len(write_lines(*rows)) == 5


def test_weak_match_is_not_called_an_answer() -> None:
    result = {"query_type": "SEARCH", "results": [{"table": "resources", "key": "a", "text": "The cat."}]}
    assert write_answer(parse_search_result(result, ["Why?"])).startswith("Here is what memory holds")
    weak = write_answer(parse_search_result({**result, "notes": [WEAK_NOTE]}, ["Why?"]))
    assert weak.startswith("I found nothing that clearly answers this. The nearest texts in memory:")
    assert "The cat." in weak


def test_answer_says_that_not_everything_was_searched() -> None:
    rows = [{"table": "resources", "key": "a", "text": "The cat."}]
    for results in (rows, []):
        result = {"query_type": "SEARCH", "results": results}
        assert WAITING_NOTE not in write_answer(parse_search_result(result, ["Why?"]))
        assert write_answer(parse_search_result({**result, "notes": [WAITING_NOTE]}, ["Why?"])).endswith(WAITING_NOTE)


def test_edge_is_written_in_its_direction() -> None:
    row = {"table": "users", "key": "mike-ross", "depth": 1, "rel_type": "manages", "from": "sarah-chen"}
    lines = write_lines(
        {**row, "direction": "out", "name": "Mike Ross"},
        {**row, "direction": "in", "name": "Mike Ross"},
        query_type="TRAVERSE",
    )
    assert lines == [
        "1. `mike-ross` (person): sarah-chen manages; Mike Ross",
        "2. `mike-ross` (person): manages sarah-chen; Mike Ross",
    ]


def test_session_without_text_is_not_quoted() -> None:
    session = {"table": "sessions", "key": "boat", "name": "boat", "happened_at": "2026-01-02"}
    assert write_lines(session, {"table": "resources", "key": "n", "text": "A note."}) == ["1. `n` (note): A note."]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"notes": 10, "shared_notes": 0}, "1. 10 notes"),
        ({"notes": 1, "shared_notes": 2}, "1. 1 note and 2 shared notes"),
        ({"people": 0}, "1. 0 people"),
        ({"count": 3}, "1. count: 3"),
        ({"notes": "none"}, "1. notes: none"),
    ],
)
def test_counts_are_answered_in_words(row: dict[str, Any], words: str) -> None:
    answer = write_answer(parse_search_result({"query_type": "SQL", "results": [row]}, ["How many?"]))
    assert words in answer.splitlines()
