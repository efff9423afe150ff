"""Rows of tool results are flat, and ten hits take about 2,000 tokens."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest

from rem import Rem
from rem.db.store import Store
from rem.models import Edge, Moment, Resource, Role, User
from rem.models.results import Hit, Ref, Result
from rem.sessions.message import NewMessage
from rem.sessions.tokens import count_tokens
from rem.tools.rows import to_flat_rows
from rem.tools.search import lookup, search_rem
from tests.tools.tool_env import env_for

ALICE = "alice@example.com"
MAX_TOKENS = 2_250
_LINE = (
    "The harbour ferry to island {0} leaves at {1}:15 every day, and the crossing takes {1} minutes in calm weather. "
    "Tickets cost {0} crowns, and children travel free. "
)
_JAPANESE = "港のフェリーは毎日{0}時に島へ出発し、穏やかな天気では{1}分で到着します。切符は{0}クローネです。"


def make_long_text(line: str, number: int) -> str:
    return "".join(line.format(number, other) for other in range(20))


def count_result_tokens(answer: dict[str, Any]) -> int:
    return count_tokens(orjson.dumps(answer).decode())


@pytest.mark.parametrize("line", [_LINE, _JAPANESE], ids=["English", "Japanese"])
async def test_ten_notes_take_about_2000_tokens(rem: Rem, alice: Store, line: str) -> None:
    notes = [Resource(name=f"Timetable {number}", content=make_long_text(line, number)) for number in range(12)]
    await alice.upsert_many(notes)
    await rem.for_user(ALICE).index()
    answer = await search_rem(env_for(rem, ALICE), 'SEARCH "港のフェリー harbour ferry tickets" LIMIT 10')
    assert answer["count"] == len(answer["results"]) == 10
    assert 700 < count_result_tokens(answer) < MAX_TOKENS
    select = await search_rem(env_for(rem, ALICE), "SELECT key, content FROM resources LIMIT 10")
    assert len(select["results"]) == 10
    assert line != _LINE or count_result_tokens(select) < MAX_TOKENS + 500


async def test_hit_has_the_title_of_its_note(rem: Rem, tmp_path: Path) -> None:
    texts = {
        "owner.md": "---\ntitle: Ms. Kuipers\n---\nShe owns the harbour.",
        "ferry.md": "---\ntitle: Ferry\n---\nIt crosses the harbour.",
        "b.md": "# Boats\n\nThey lie in the harbour.",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    await rem.for_user(ALICE).ingest(tmp_path)
    answer = await search_rem(env_for(rem, ALICE), 'SEARCH "harbour"')
    # The key or the text has the other titles.
    assert {row["title"] for row in answer["results"] if "title" in row} == {"Ms. Kuipers"}
    assert len(answer["results"]) == 3


async def test_ten_messages_take_about_2000_tokens(rem: Rem) -> None:
    session = uuid4()
    for number in range(12):
        message = NewMessage(role=Role.USER, content=make_long_text(_LINE, number))
        await rem.for_user(ALICE).sessions.begin_turn(session, message)
    # A search indexes for a limited time only.
    await rem.for_user(ALICE).index()
    answer = await search_rem(env_for(rem, ALICE), 'SEARCH "harbour ferry tickets" LIMIT 10')
    assert len(answer["results"]) == 10
    assert count_result_tokens(answer) < MAX_TOKENS
    text = orjson.dumps(answer).decode()
    assert text.count(answer["results"][0]["text"][:200]) == 1
    assert "null" not in text


async def test_hit_has_its_text_once_its_date_key_table_and_score(rem: Rem, alice: Store) -> None:
    said_at = datetime(2026, 3, 5, 17, 30, tzinfo=UTC)
    await alice.upsert(Resource(name="Launch plan", content="We launch in May.", timestamp=said_at))
    await alice.upsert(Moment(name="Kick-off", summary="We planned the launch.", starts_timestamp=said_at))
    rows = (await search_rem(env_for(rem, ALICE), "SEARCH launch"))["results"]
    assert [{**row, "score": 0} for row in sorted(rows, key=lambda row: row["table"])] == [
        {
            "table": "moments",
            "key": "kick-off",
            "score": 0,
            "happened_at": "2026-03-05",
            "text": "We planned the launch.",
        },
        {
            "table": "resources",
            "key": "launch-plan",
            "score": 0,
            "happened_at": "2026-03-05",
            "text": "We launch in May.",
        },
    ]


async def test_message_has_its_speaker_and_the_time(rem: Rem) -> None:
    session = uuid4()
    message = NewMessage(role=Role.USER, content="The boat is green.", metadata={"speaker": "Caroline"})
    await rem.for_user(ALICE).sessions.begin_turn(session, message)
    (row,) = (await search_rem(env_for(rem, ALICE), "SEARCH boat"))["results"]
    assert (row["role"], row["speaker"], row["text"]) == ("user", "Caroline", "The boat is green.")
    assert row["happened_at"] == f"{datetime.now(UTC):%Y-%m-%dT%H:%M}"
    assert "session" not in row
    (row,) = (await search_rem(env_for(rem, ALICE, session_id=str(session)), "SEARCH boat"))["results"]
    assert row["session"] == "current"


async def test_excerpt_of_a_long_text_is_marked_and_lookup_returns_it_all(rem: Rem, alice: Store) -> None:
    text = "Nothing of interest here at all. " * 60 + "The engine weaves algebraical patterns. " + "And so on. " * 60
    await alice.upsert(Resource(name="On engines", content=text))
    answer = await search_rem(env_for(rem, ALICE), 'SEARCH "engine patterns"')
    (row,) = answer["results"]
    assert "The engine weaves algebraical patterns." in row["text"]
    assert row["chars"] == len(text)
    assert [note["code"] for note in answer["notes"]] == ["excerpts"]
    (whole,) = (await lookup(env_for(rem, ALICE), "on-engines"))["results"]
    assert whole["text"] == text
    assert "chars" not in whole


async def test_lookup_groups_edges_and_keeps_the_fields_that_are_set(rem: Rem, alice: Store) -> None:
    edges = [Edge(dst="mike-ross", rel_type="manages"), Edge(dst="ann", rel_type="manages"), Edge(dst="atlas")]
    await alice.upsert(User(name="Sarah Chen", role="head of data", interests=["sailing"], graph_edges=edges))
    (row,) = (await lookup(env_for(rem, ALICE), "Sarah Chen"))["results"]
    assert row == {
        "table": "users",
        "key": "sarah-chen",
        "asked": "Sarah Chen",
        "role": "head of data",
        "name": "Sarah Chen",
        "interests": ["sailing"],
        "edges": {"manages": ["mike-ross", "ann"], "related_to": ["atlas"]},
    }


async def test_traverse_names_the_edge_and_where_it_comes_from(rem: Rem, alice: Store) -> None:
    await alice.upsert(User(name="Mike Ross", graph_edges=[Edge(dst="atlas", rel_type="works_on")]))
    await alice.upsert(User(name="Sarah Chen", graph_edges=[Edge(dst="mike-ross", rel_type="manages")]))
    await alice.upsert(Resource(name="Atlas", content="A project."))
    rows = (await search_rem(env_for(rem, ALICE), 'TRAVERSE FROM "sarah-chen" DEPTH 2'))["results"]
    assert [(row["key"], row["depth"], row["rel_type"], row["from"]) for row in rows] == [
        ("mike-ross", 1, "manages", "sarah-chen"),
        ("atlas", 2, "works_on", "mike-ross"),
    ]
    assert rows[1]["path"] == "sarah-chen > mike-ross > atlas"
    assert rows[1]["text"] == "A project."
    assert "path" not in rows[0]


async def test_whole_entity_of_a_select_has_no_empty_or_internal_columns(rem: Rem, alice: Store) -> None:
    await alice.upsert(Resource(name="Note", content="Words.", graph_edges=[Edge(dst="ann", rel_type="by")]))
    (row,) = (await search_rem(env_for(rem, ALICE), "SELECT * FROM resources"))["results"]
    assert row.pop("created_at")
    assert row == {"key": "note", "name": "Note", "content": "Words.", "edges": {"by": ["ann"]}}


def test_superseded_row_names_the_row_that_replaced_it() -> None:
    hit = Hit(
        "resources",
        "old",
        {"content": "I live in Svendborg.", "created_at": "2026-11-01T10:00:00+00:00"},
        0.51234,
        replaced_by=Ref("resources", "new", datetime(2026, 11, 14, 10, tzinfo=UTC)),
    )
    (row,) = to_flat_rows(Result("SEARCH", [hit]), "where do I live")
    assert row == {
        "table": "resources",
        "key": "old",
        "score": 0.51,
        "happened_at": "2026-11-01",
        "superseded_by": "new",
        "superseded_at": "2026-11-14",
        "text": "I live in Svendborg.",
    }
