"""Mask secrets in rows that are older than the policy, with everything derived from them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg
import pytest

from rem.app import Rem
from rem.errors import InvalidInputError
from rem.forgetting.masking import BATCH_ROWS
from rem.memory.message import NewMessage
from rem.models import Document, Moment, Ontology, Resource, Role, Session, User
from rem.settings import PrivacySettings, Settings
from tests.forgetting.text_traces import find_in_planner_stats, find_traces
from tests.privacy.sample_secrets import CARD, GITHUB_TOKEN
from tests.rem_command import output
from tests.rem_command import rem as rem_command

ALICE, BOB = "alice@example.com", "bob@example.com"
TEXT = f"Use {GITHUB_TOKEN} for the build."
MASKED = "Use [masked: token] for the build."
LENIENT = PrivacySettings(credentials="keep", card_numbers="keep")
Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@pytest.fixture
async def lenient(settings: Settings) -> AsyncIterator[Rem]:
    """Open REM with a policy that keeps everything, as it was before."""
    async with Rem.open(settings.model_copy(update={"privacy": LENIENT})) as rem:
        yield rem


async def store_secrets(rem: Rem, sql: Sql, user: str = ALICE) -> UUID:
    """Store a secret in texts of every kind, and return the session."""
    store, memory = rem.store(user), rem.memory(user)
    session = (await store.upsert(Session(description=TEXT, system_prompt=TEXT))).id
    await memory.save_message(session, NewMessage(role=Role.USER, content=TEXT, metadata={"note": [TEXT]}))
    await memory.append(session, [NewMessage(role=Role.ASSISTANT, tool_calls=[{"arguments": {"text": TEXT}}])])
    for entity in (
        Resource(name="note", content=TEXT, metadata={"a": {TEXT: 1}}, tags=[TEXT], uri=f"https://x/{GITHUB_TOKEN}"),
        Moment(name="moment", summary=TEXT, topic_tags=[TEXT]),
        Ontology(name="entry", content=TEXT, extracted_data={"token": GITHUB_TOKEN}),
        User(name="person", summary=TEXT, interests=[TEXT]),
        Document(content=f"{TEXT} My card is {CARD}."),
    ):
        await store.upsert(entity)
    deleted = await store.upsert(Resource(name="deleted", content=TEXT))
    await store.delete(deleted)
    user_id = store.scope.user_id
    await sql.execute(
        "INSERT INTO session_summaries (tenant_id, user_id, session_id, summary) VALUES ('default', $1, $2, $3)",
        *(user_id, session, TEXT),
    )
    run_id = await sql.fetchval(
        "INSERT INTO dream_runs (tenant_id, user_id, dreams, error) VALUES ('default', $1, '{x}', $2) RETURNING id",
        *(user_id, TEXT),
    )
    await sql.execute(
        "INSERT INTO statements (tenant_id, user_id, run_id, dream, subject_type, subject_id, kind, entity_type,"
        " entity_id, name, value) VALUES ('default', $1, $2, 'x', 'resources', $3, 'field', 'users', $3, 'f', $4)",
        *(user_id, run_id, uuid4(), json.dumps(TEXT)),
    )
    return session


async def test_no_column_contains_the_secret(lenient: Rem, rem: Rem, sql: Sql) -> None:
    session = await store_secrets(lenient, sql)
    await rem.index(everyone=True)
    await sql.execute("ANALYZE")
    before = await rem.store(ALICE).get(Session, session)
    found = await rem.stored_texts().scan()
    assert await find_traces(sql, GITHUB_TOKEN) != {}
    done = await rem.stored_texts().mask()
    assert (done.rows, done.findings, done.busy) == (found.rows, found.findings, 0)
    assert done.rows["messages"] == done.rows["resources"] == 2
    assert {"sessions", "moments", "documents", "statements", "session_summaries", "dream_runs"} < set(done.rows)
    assert done.findings["card number"] == 1
    for secret in (GITHUB_TOKEN, CARD):
        assert await find_traces(sql, secret) == {}
        assert await find_in_planner_stats(sql, secret) == []
    assert [message.content for message in await rem.memory(ALICE).load_session(session)] == [MASKED, ""]
    assert (await rem.store(ALICE).get(Session, session)).updated_at == before.updated_at
    # The index holds the words of the masked text.
    hits = await rem.query('SEARCH "masked token build" FROM resources', user=ALICE)
    assert hits.results[0]["passage"]["text"] == MASKED
    assert (await rem.stored_texts().scan()).total == 0


async def test_content_stays_immutable_for_everyone_else(lenient: Rem, rem: Rem, sql: Sql) -> None:
    await store_secrets(lenient, sql)
    await rem.stored_texts().mask()
    with pytest.raises(asyncpg.RestrictViolationError):
        await sql.execute("UPDATE messages SET content = 'other'")


async def test_only_the_rows_of_one_user_or_tenant_are_masked(lenient: Rem, rem: Rem, sql: Sql) -> None:
    for user in (ALICE, BOB):
        await lenient.store(user).upsert(Resource(name="note", content=TEXT))
    await lenient.store(BOB, tenant="acme").upsert(Resource(name="note", content=TEXT))
    assert (await rem.stored_texts(BOB).mask()).total == 1
    assert (await rem.stored_texts(tenant="acme").scan()).total == 1
    (alice,) = await rem.store(ALICE).find(Resource)
    (bob,) = await rem.store(BOB).find(Resource)
    assert (alice.content, bob.content) == (TEXT, MASKED)


async def test_secret_in_a_name_is_reported(lenient: Rem, rem: Rem) -> None:
    stored = await lenient.store(ALICE).upsert(Resource(name=GITHUB_TOKEN, content="fine"))
    report = await rem.stored_texts().mask()
    assert (report.total, report.names) == (0, [f"resources/{stored.id}"])
    assert (await rem.store(ALICE).get(Resource, stored.id)).name == GITHUB_TOKEN


async def test_rows_that_others_change_meanwhile_are_masked_and_no_change_is_lost(lenient: Rem, rem: Rem) -> None:
    names = [f"note {number}" for number in range(2 * BATCH_ROWS + 10)]
    await lenient.store(ALICE).upsert_many(Resource(name=name, content=TEXT) for name in names)
    is_masked = asyncio.Event()

    async def write() -> int:
        written = 0
        while not is_masked.is_set():
            name = names[written % len(names)]
            await lenient.store(ALICE).upsert(Resource(name=name, content=f"{TEXT} Changed {written}."))
            written += 1
        return written

    writing = asyncio.create_task(write())
    report = await rem.stored_texts().mask()
    is_masked.set()
    written = await writing
    assert report.total >= len(names)
    assert written > 1
    await rem.stored_texts().mask()
    rows = {row.name: row.content for row in await rem.store(ALICE).find(Resource, limit=1000)}
    assert set(rows) == set(names)
    for number in range(max(0, written - len(names)), written):
        assert rows[names[number % len(names)]] == f"{MASKED} Changed {number}."


async def test_interrupted_run_is_continued(lenient: Rem, rem: Rem) -> None:
    await lenient.store(ALICE).upsert_many(
        Resource(name=f"note {number}", content=TEXT) for number in range(3 * BATCH_ROWS)
    )

    def stop(done: int, _total: int | None) -> None:
        if done > BATCH_ROWS:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await rem.stored_texts().mask(stop)
    left = (await rem.stored_texts().scan()).total
    assert 0 < left < 3 * BATCH_ROWS
    assert (await rem.stored_texts().mask()).total == left


async def test_policy_that_keeps_everything_is_an_error(lenient: Rem) -> None:
    with pytest.raises(InvalidInputError, match="PRIVACY__CREDENTIALS"):
        await lenient.stored_texts().scan()


async def test_commands_show_ask_and_mask(lenient: Rem, dsn: str) -> None:
    await lenient.store(ALICE).upsert(Resource(name="note", content=TEXT))
    environment = {"POSTGRES__CONNECTION_STRING": dsn, "AUDIT__ENABLED": "true", "EMBEDDING__PROVIDER": "none"}
    assert output("privacy", "scan", settings=environment) == "Found in 1 row (resources 1): token 1.\n"
    refused = rem_command("privacy", "mask", settings=environment, stdin="n\n")
    assert (refused.returncode, "Mask 1 row for good?" in refused.stderr) == (1, True)
    (row,) = await lenient.store(ALICE).find(Resource)
    assert row.content == TEXT
    report = json.loads(output("privacy", "mask", "--yes", "--json", settings=environment))
    assert (report["applied"], report["rows"], report["findings"]) == (True, {"resources": 1}, {"token": 1})
    assert output("privacy", "mask", settings=environment).startswith("Nothing to mask in ")
    (entry,) = json.loads(output("audit", "log", "--json", settings=environment))
    assert (entry["operation"], entry["action"]) == ("rem privacy mask", "admin")
    assert GITHUB_TOKEN not in str(entry)
