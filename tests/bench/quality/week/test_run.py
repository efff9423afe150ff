"""A small week, lived through on a real database: messages, notes, nights, and the days they belong to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from bench.quality.week.data import Week, WeekMessage, WeekSession
from bench.quality.week.derived import MisreadMessage, count_derived_from_questions, list_misread_messages
from bench.quality.week.run import OTHER_SESSION, REPEATED, SAME_SESSION, WeekOutcome, WeekRun, split_extracts
from bench.quality.week.tickets import find_tickets

from rem.app import Rem
from rem.context import Scope
from rem.models import Moment
from rem.models.message import MessageKind, Role
from rem.sessions.message import NewMessage
from rem.settings import Settings

_TENANT = "bench-week-test"
SMALL_WEEK: dict[str, Any] = {
    "name": "small",
    "user": "sam@example.com",
    "notes": [
        {"file": "recipes/bread.md", "text": "# Rye bread\n\nBake the rye bread for fifty minutes at 220 degrees."},
        {"file": "garden.md", "text": "# Garden\n\nThe quince tree is ten years old.", "day": 2},
    ],
    "sessions": [
        {
            "id": "monday",
            "day": 1,
            "at": "08:30",
            "messages": [
                "The code for the boat shed is larch-12.",
                {"question": "What is rye?"},
                {"small_talk": "thanks!"},
            ],
        },
        {
            "id": "tuesday",
            "day": 2,
            "at": "19:00",
            "messages": [
                "Ada Lund starts as our new beekeeper, she comes from Umeå.",
                {"command": "Remind me to buy honey."},
            ],
        },
    ],
    "questions": [
        {
            "ask": "How long do I bake rye bread?",
            "group": "notes",
            "source": "recipes/bread.md",
            "answer": ["fifty minutes"],
        },
        {"ask": "How old is the quince tree?", "group": "notes", "source": "garden.md", "answer": ["ten years"]},
        {
            "ask": "What's the code for the boat shed?",
            "group": "identifiers",
            "source": "monday",
            "answer": ["larch-12"],
        },
        {
            "ask": "Which code opens the boat shed?",
            "group": "just_said",
            "source": "monday",
            "answer": ["larch-12"],
            "until": "tuesday",
        },
        {"ask": "Where is Ada Lund from?", "group": "other_session", "source": "tuesday", "answer": ["Umeå"]},
    ],
    "people": [{"name": "Ada Lund", "source": "tuesday"}, {"name": "Nobody Known", "source": "monday"}],
}


@pytest.fixture
def week() -> Week:
    return Week.model_validate(SMALL_WEEK)


async def test_week_is_lived_day_by_day(
    rem: Rem, settings: Settings, week: Week, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    stages: list[tuple[str, int]] = []

    def on_stage(stage: str, outcomes: list[WeekOutcome]) -> None:
        stages.append((stage, len(outcomes)))

    result = await WeekRun(rem, week, tenant=_TENANT, on_stage=on_stage).run()
    assert stages == [
        (SAME_SESSION, 2),
        (OTHER_SESSION, 3),
        ("night 1", 3),
        (SAME_SESSION, 0),
        (OTHER_SESSION, 2),
        ("night 2", 4),
        (REPEATED, 4),
    ]
    by_stage = {
        (outcome.stage, outcome.question.ask): outcome for outcome in result.outcomes if outcome.stage == OTHER_SESSION
    }
    assert all(outcome.is_first and outcome.is_among for outcome in by_stage.values())
    assert [(item.stage, item.people) for item in result.lookups] == [("night 1", 1), ("night 2", 2)]
    assert "Nobody Known" in result.lookups[-1].missing
    assert await list_misread_messages(rem, Scope.for_user(week.user, _TENANT), week) == result.misread
    await _check_days(sql)


async def _check_days(sql: asyncpg.Connection[asyncpg.Record]) -> None:
    """Check that the sessions of the week and their messages have the dates of their days, in order."""
    today = datetime.now(UTC).date()
    monday = today - timedelta(days=today.weekday() + 7)
    starts = {}
    for name, day, text in (("monday", 0, "boat shed is larch-12"), ("tuesday", 1, "new beekeeper")):
        row = await sql.fetchrow(
            "SELECT m.created_at, m.session_id, s.created_at AS began FROM messages m JOIN sessions s "
            "ON (s.tenant_id, s.id) = (m.tenant_id, m.session_id) WHERE strpos(m.content, $1) > 0 AND m.role = 'user'",
            text,
        )
        assert row is not None
        assert row["created_at"].date() == row["began"].date() == monday + timedelta(days=day), name
        starts[name] = row["created_at"]
        times = await sql.fetch(
            "SELECT created_at FROM messages WHERE session_id = $1 ORDER BY message_index", row["session_id"]
        )
        assert [time["created_at"] for time in times] == sorted(time["created_at"] for time in times)
    assert starts["monday"].strftime("%H:%M") == "08:30"
    moved = "SELECT bool_and(p.happened_at = m.created_at) FROM passages p JOIN messages m ON m.id = p.entity_id"
    assert await sql.fetchval(moved)
    written = await sql.fetchval("SELECT timestamp FROM resources WHERE strpos(content, 'quince') > 0")
    assert written.date() == monday + timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "summary", "is_from_question"),
    [
        ("Where is Ada Lund from?", "About Ada Lund.", True),
        ("The quince tree blooms.", "Where is Ada Lund from? And the quince tree.", True),
        ("The quince tree blooms.", "The quince tree blooms.", False),
    ],
)
async def test_moments_that_come_from_questions_are_counted(
    rem: Rem, week: Week, sql: asyncpg.Connection[asyncpg.Record], text: str, summary: str, is_from_question: bool
) -> None:
    scope = Scope.for_user(week.user, _TENANT)
    memory = rem.for_user(scope).sessions
    session = await memory.create_session()
    (message,) = await memory.append(session.id, [NewMessage(role=Role.USER, content=text)])
    moment = Moment(name="a moment", summary=summary, topic_tags=["zeppelin", "rye"])
    await rem.for_user(scope).store.upsert(moment)
    assert (await count_derived_from_questions(rem, scope, week)).moments == 0, "the user wrote it"
    await _mark_as_derived(sql, scope, moment.id, message.id)
    counts = await count_derived_from_questions(rem, scope, week)
    assert counts.moments == 1
    assert counts.moments_of_questions == ((summary,) if is_from_question else ())
    assert (counts.topics, counts.topics_of_questions) == (2, ("zeppelin",))


async def test_messages_of_a_wrong_kind_are_listed(rem: Rem, week: Week) -> None:
    scope = Scope.for_user(week.user, _TENANT)
    session = await rem.for_user(scope).sessions.create_session()
    asked = "How old is the quince tree?"
    await rem.for_user(scope).sessions.append(session.id, [NewMessage(role=Role.USER, content=asked)])
    assert await list_misread_messages(rem, scope, week) == []
    other = week.model_copy(update={"questions": [], "sessions": [_say_as_statement(week, asked)]})
    assert await list_misread_messages(rem, scope, other) == [
        MisreadMessage(asked, MessageKind.STATEMENT, MessageKind.QUESTION)
    ]


def _say_as_statement(week: Week, text: str) -> WeekSession:
    message = WeekMessage(kind=MessageKind.STATEMENT, text=text)
    return week.sessions[0].model_copy(update={"messages": [message]})


async def _mark_as_derived(
    sql: asyncpg.Connection[asyncpg.Record], scope: Scope, moment_id: UUID, message_id: UUID
) -> None:
    """Store that a dream derived the moment from the message."""
    run_id = await sql.fetchval(
        "INSERT INTO dream_runs (tenant_id, user_id, dreams) VALUES ($1, $2, '{moments}') RETURNING id",
        *(scope.tenant_id, scope.user_id),
    )
    statement_id = await sql.fetchval(
        "INSERT INTO statements (tenant_id, user_id, run_id, dream, subject_type, subject_id, kind, entity_type, "
        "entity_id, name, value) "
        "VALUES ($1, $2, $3, 'moments', 'messages', $4, 'row', 'moments', $5, 'a-moment', '{}') RETURNING id",
        *(scope.tenant_id, scope.user_id, run_id, message_id, moment_id),
    )
    await sql.execute(
        "INSERT INTO statement_sources (tenant_id, statement_id, source_type, source_id) "
        "VALUES ($1, $2, 'messages', $3)",
        *(scope.tenant_id, statement_id, message_id),
    )


@pytest.mark.parametrize(
    ("answer", "extracts"),
    [
        ("One. (you, 2 Jan 2026)\n- Two. (Cake, 2 Jan 2026)", ("One. (you, 2 Jan 2026)", "Two. (Cake, 2 Jan 2026)")),
        ("The closest is:\n- One.", ("One.",)),
        ("I found nothing.", ("I found nothing.",)),
    ],
)
def test_lines_of_an_answer_are_its_extracts(answer: str, extracts: tuple[str, ...]) -> None:
    assert split_extracts(answer) == extracts


async def test_tickets_are_searched(rem: Rem) -> None:
    result = await find_tickets(rem, _TENANT, notes=6, searches=3)
    assert result.searches == 3
    assert set(result.missed) <= {1601, 1603, 1605}
