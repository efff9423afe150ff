"""Only statements become memories: questions, commands, small talk, quotations and answers give nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

import asyncpg
import pytest

from rem.app import Rem
from rem.db.store import Store
from rem.models import Moment, Ontology, Role, User
from rem.sessions.message import NewMessage
from tests.dreams.sample_sessions import MARCH, list_moments, make_session_id, run_dreams, store_session

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_STATEMENTS = (
    "Yusuf is allergic to peanuts.",
    "My colleague Marta Kowalczyk <marta.kowalczyk@fjordline.com> keeps the harbour ledger.",
    "The spare key of the boat hangs behind the barometer.",
)
_QUESTIONS = (
    "What caused the outage of the cached gateway?",
    "Which call did my colleague Bogdan Ilie make about the zeppelin?",
    "Did my sister Leokadia tell me about the zeppelin?",
    "Can you call the zeppelin museum?",
    "Who is Dr. Imogen Brightwater <imogen@kestrel.com>?",
    "Where do I find the zeppelin that was cached?",
)


def _make_week_of_questions() -> list[str]:
    """Return the lines of a session with thirty questions, their answers and three statements."""
    lines: list[str] = []
    for number in range(30):
        lines.append(f"user: {_QUESTIONS[number % len(_QUESTIONS)]}")
        lines.append("assistant: The zeppelin of Bogdan Ilie was cached by my colleague Imogen Brightwater.")
        if number % 10 == 4:
            lines.append(f"user: {_STATEMENTS[number // 10]}")
            lines.append("assistant: Noted.")
    return lines


async def _list_texts(sql: Sql) -> str:
    """Return everything that dreams have derived as one text in lower case."""
    rows = await sql.fetch(
        "SELECT to_jsonb(s) - '{source_keys}'::text[] AS row FROM statements s WHERE s.state <> 'refused' "
        "UNION ALL SELECT to_jsonb(m) FROM moments m UNION ALL SELECT to_jsonb(o) FROM ontologies o "
        "UNION ALL SELECT to_jsonb(u) FROM users u"
    )
    return "\n".join(str(row["row"]) for row in rows).lower()


@pytest.mark.parametrize("has_kinds", [True, False])
async def test_week_of_questions_gives_memories_of_its_statements_alone(
    rem: Rem, alice: Store, sql: Sql, has_kinds: bool
) -> None:
    lines = _make_week_of_questions()
    if has_kinds:
        memory = rem.for_user(alice.scope).sessions
        for line in lines:
            author, _, text = line.partition(": ")
            await memory.append(
                make_session_id("week"), [NewMessage(role=Role(author), content=text)], create_session=True
            )
    else:
        await store_session(alice, "week", *lines)
    await rem.dreamer().dream(alice.scope)
    (moment,) = await list_moments(alice)
    sentences = [sentence for sentence in _STATEMENTS if sentence in moment.summary]
    assert len(sentences) == 3, moment.summary
    texts = await _list_texts(sql)
    for word in ("zeppelin", "bogdan", "leokadia", "imogen", "cached", "caused", "kestrel", "?"):
        assert word not in texts
    names = {entity.name for entity in await alice.find(Ontology)}
    assert names == {"Marta Kowalczyk"}
    sources = await sql.fetch(
        "SELECT DISTINCT m.content FROM statement_sources x JOIN messages m ON m.id = x.source_id ORDER BY 1"
    )
    assert {row["content"] for row in sources} == set(_STATEMENTS)


async def test_questions_alone_give_nothing(rem: Rem, alice: Store) -> None:
    await store_session(alice, "questions", *(f"user: {question}" for question in _QUESTIONS * 5))
    await rem.dreamer().dream(alice.scope)
    assert await alice.find(Moment) == []
    assert await alice.find(Ontology) == []
    for user in await alice.find(User):
        assert (user.interests, user.preferred_topics, user.summary) == ([], [], "")


@pytest.mark.parametrize(
    "line",
    [
        "assistant: The sourdough starter of Pia Lindqvist lives in the cellar in Malmö.",
        "user: Search my notes for the sourdough starter in the cellar of Malmö.",
        "user: Tell me about the sourdough starter in the cellar of Malmö.",
        "user: > The sourdough starter lives in the cellar in Malmö.",
        'user: "The sourdough starter lives in the cellar in Malmö."',
        "user: Thanks so much, good morning!",
        "Pia Lindqvist: Where is the sourdough starter of the cellar in Malmö?",
    ],
)
async def test_messages_without_statement_give_no_rows(rem: Rem, alice: Store, line: str) -> None:
    await store_session(alice, "no statement", line)
    await run_dreams(rem, alice, "entities", "moments")
    assert await alice.find(Moment) == []
    assert await alice.find(Ontology) == []


async def test_only_statement_sentences_of_mixed_messages_count(rem: Rem, alice: Store) -> None:
    await store_session(
        alice,
        "mixed",
        "user: Hi there! Could you book the zeppelin for me? The regatta in Kiel starts on the ninth of June.",
        "user: My sister Ewa Nowak <ewa@nowak.pl> comes to the regatta, what does Bogdan Ilie <bogdan@ilie.ro> bring?",
    )
    await run_dreams(rem, alice, "entities", "moments")
    (moment,) = await list_moments(alice)
    assert moment.summary == (
        "The regatta in Kiel starts on the ninth of June. My sister Ewa Nowak <ewa@nowak.pl> comes to the regatta."
    )
    assert {entity.name for entity in await alice.find(Ontology)} == {"Ewa Nowak"}


async def test_transcript_questions_are_no_evidence_but_statements_are(rem: Rem, alice: Store) -> None:
    await store_session(
        alice,
        "transcript",
        "Caroline: How was the pottery workshop with Jonas Ekström?",
        "Melanie: The pottery workshop was wonderful, I made a blue teapot with a bamboo handle.",
    )
    await run_dreams(rem, alice, "entities", "moments")
    (moment,) = await list_moments(alice)
    assert moment.summary.startswith("Melanie: The pottery workshop was wonderful")
    assert "Jonas" not in moment.summary
    assert {entity.name for entity in await alice.find(Ontology)} == {"Melanie"}


async def test_rows_of_questions_disappear_when_the_rules_change(rem: Rem, alice: Store, sql: Sql) -> None:
    """Messages get another kind here, as if earlier rules had taken them for statements."""
    for number, text in enumerate(("The outage was caused by a cached token.", "The regatta in Kiel is in June.")):
        await store_session(alice, f"old {number}", f"user: {text}", at=MARCH + timedelta(days=number))
    await store_session(
        alice, "both", "user: The barometer fell to 980.", "user: The mainsail of the Albatross is torn."
    )
    await run_dreams(rem, alice, "moments")
    before = {moment.summary: moment for moment in await list_moments(alice)}
    assert len(before) == 3
    await sql.execute("UPDATE messages SET kind = 'command' WHERE content ~ '^The (outage|barometer)'")
    assert (await run_dreams(rem, alice, "moments")).run_id is None
    await sql.execute(
        "UPDATE dream_progress p SET seen_index = 0 WHERE NOT EXISTS (SELECT FROM sessions s WHERE s.id = p.source_id)"
    )
    await run_dreams(rem, alice, "moments")
    after = {moment.summary: moment for moment in await list_moments(alice)}
    assert set(after) == {"The regatta in Kiel is in June.", "The mainsail of the Albatross is torn."}
    kept = after["The regatta in Kiel is in June."]
    assert (kept.id, kept.key) == (before["The regatta in Kiel is in June."].id, before[kept.summary].key)
    assert "barometer" not in str(after["The mainsail of the Albatross is torn."].key)
    assert (await run_dreams(rem, alice, "moments")).run_id is None
