"""With encryption, no column of any table contains a word of a text, and everything still works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeAlias
from uuid import UUID, uuid4

import asyncpg
import orjson
import pytest

from rem.agents.chat import AgentRequest
from rem.api.main import create_app
from rem.app import Rem
from rem.approvals.approvals import Origin, Proposal
from rem.context import AgentContext
from rem.errors import EncryptionError, NotFoundError, SettingsError
from rem.ingest.models import FetchedFile
from rem.models import Document, Edge, Feedback, Message, Moment, Ontology, Resource, Role, Session, User
from rem.sessions.message import NewMessage
from rem.settings import Settings
from tests.api.live_server import client, served
from tests.encryption.keys import K1, K2, OTHER_K1, encrypting
from tests.forget.text_traces import find_in_planner_stats, find_traces

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
ALICE, BOB = "alice@example.com", "bob@example.com"
WORDS = ("zanzibarium", "quorvexal", "brackfordine", "ostrivaneq", "glimmerfax", "tundrawick", "plimsollite")
GUIDE = "# Guide\n\nThe glimmerfax turns left at night. It needs no oil.\n"


@pytest.fixture
async def encrypted(settings: Settings) -> AsyncIterator[Rem]:
    """Open REM with encryption and without vectors."""
    async with Rem.open(encrypting(settings, K1)) as rem:
        yield rem


async def live(rem: Rem) -> UUID:
    """Chat, remember, ingest and dream. Return the session."""
    store, memory = rem.for_user(ALICE).store, rem.for_user(ALICE).sessions
    await store.upsert(Resource(name="Note", content="The zanzibarium is in the cellar."))
    await store.upsert(
        Resource(name="Second", content="See the note.", graph_edges=[Edge(dst="note", rel_type="cites")])
    )
    session = uuid4()
    await memory.begin_turn(session, NewMessage(role=Role.USER, content="My quorvexal is repaired by Marta Novak."))
    long_answer = NewMessage(role=Role.ASSISTANT, content=f"About your quorvexal: {'it is fine. ' * 60}")
    call = {"id": "c", "arguments": {"query": "ostrivaneq"}}
    tool = NewMessage(
        role=Role.TOOL, tool_call_id="c", tool_calls=[call], metadata={"tool_arguments": {"query": "ostrivaneq"}}
    )
    await memory.append(session, [long_answer, tool])
    for number in range(3):
        text = f"I met Marta Novak at noon, she explained the quorvexal {number} to me. Marta Novak is my sister."
        await memory.save_message(uuid4(), NewMessage(role=Role.USER, content=text))
    await memory.save_message(
        uuid4(), NewMessage(role=Role.USER, content="I always prefer tundrawick tea in the morning.")
    )
    await rem.for_user(ALICE).remember("My code word for the boat is brackfordine.")
    outcome = await rem.for_user(ALICE).ingester().ingest(FetchedFile("guide.md", "file:///guide.md", GUIDE.encode()))
    assert outcome.status == "added"
    request = AgentRequest(
        context=AgentContext(user_id=store.scope.user_id), text="Please remember: plimsollite is blue."
    )
    await rem.agents.run(request)
    await rem.index()
    await rem.dreamer().dream(store.scope)
    await rem.index()
    return session


async def test_no_column_contains_a_word(encrypted: Rem, sql: Sql) -> None:
    await live(encrypted)
    await sql.execute("ANALYZE")
    for word in WORDS:
        assert await find_traces(sql, word) == {}, word
        assert await find_in_planner_stats(sql, word) == [], word
    # Names are no texts: REM finds things by them.
    assert await find_traces(sql, "marta") != {}


async def test_everything_reads_plain_texts(encrypted: Rem) -> None:
    session = await live(encrypted)
    rem, store = encrypted, encrypted.for_user(ALICE).store
    messages = await rem.for_user(ALICE).sessions.load_session(session)
    assert messages[0].content == "My quorvexal is repaired by Marta Novak."
    assert messages[2].tool_calls[0]["arguments"] == messages[2].metadata["tool_arguments"] == {"query": "ostrivaneq"}
    for query, text in {
        "LOOKUP note": "zanzibarium",
        'SEARCH "cellar" FROM resources': "zanzibarium",
        'SEARCH "quorvexal" FROM messages': "quorvexal",
        "SEARCH glimmerfax": "glimmerfax",
        'FUZZY "note"': "zanzibarium",
        "LOOKUP guide.md": "glimmerfax",
        "TRAVERSE FROM second": "zanzibarium",
    }.items():
        assert text in str((await rem.for_user(ALICE).query(query)).hits), query
    assert "brackfordine" in str((await rem.for_user(ALICE).find("what did I write today?")).hits)
    history = (await rem.for_user(ALICE).sessions.get_history(session)).messages
    assert [message.is_truncated for message in history[:2]] == [False, True]
    assert f"REM LOOKUP session-{session}-msg-1" in history[1].content
    assert any("quorvexal" in moment.summary for moment in await store.find(Moment))
    (marta,) = await store.find(Ontology)
    assert "quorvexal" in marta.content
    assert any("tundrawick" in user.summary for user in await store.find(User))
    assert (await rem.dreamer().dream(store.scope)).changes == {}
    assert not (await rem.check_cache()).wrong_keys


async def test_sql_shows_a_mark(encrypted: Rem) -> None:
    await encrypted.for_user(ALICE).store.upsert(Resource(name="Note", content="The zanzibarium is in the cellar."))
    result = await encrypted.for_user(ALICE).query("SQL SELECT name, left(content, 9) AS start, content FROM resources")
    assert result.rows == [{"name": "Note", "start": "[encrypted]", "content": "[encrypted]"}]
    assert result.notes[-1].code == "encrypted"


async def test_writes_compare_the_texts(encrypted: Rem) -> None:
    store = encrypted.for_user(ALICE).store
    first = await store.upsert(Resource(name="Note", content="same"))
    report = await store.upsert_many([Resource(name="Note", content="same"), Resource(name="Other", content="same")])
    assert [row.outcome for row in report.rows] == ["unchanged", "inserted"]
    assert (await store.upsert(Resource(name="NOTE", content="other"))).id == first.id
    assert (await store.get(Resource, first.id)).content == "other"
    many = await store.upsert_many(Resource(name=f"row {number}", content=f"text {number}") for number in range(300))
    assert many.counts["inserted"] == 300
    again = await store.upsert_many(Resource(name=f"row {number}", content=f"text {number}") for number in range(300))
    assert again.counts["unchanged"] == 300
    for entity in (
        Document(content="a document"),
        Feedback(comment="good"),
        Session(description="about", system_prompt="be"),
    ):
        stored = await store.upsert(entity)
        assert await store.get(type(entity), stored.id) == stored

    def tag(row: Resource) -> None:
        row.tags = ["x"]

    assert (await store.modify(Resource, first.id, tag)).content == "other"


async def test_concurrent_upserts_of_one_key_stay_readable(encrypted: Rem) -> None:
    stores = [encrypted.for_user(ALICE).store for _ in range(8)]
    await asyncio.gather(*(store.upsert(Resource(name="Note", content=f"text {n}")) for n, store in enumerate(stores)))
    (row,) = await stores[0].find(Resource)
    assert row.content.startswith("text ")


async def test_file_is_recognised_and_stays_forgotten(encrypted: Rem) -> None:
    file = FetchedFile("guide.md", "file:///guide.md", GUIDE.encode())
    ingester = encrypted.for_user(ALICE).ingester()
    assert [(await ingester.ingest(file)).status for _ in range(2)] == ["added", "unchanged"]
    plan = await encrypted.for_user(ALICE).plan_forget("guide.md")
    assert (await encrypted.for_user(plan.scope).forget(plan)).is_gone
    assert (await ingester.ingest(file)).status == "deleted"
    moved = FetchedFile("moved.md", "file:///moved.md", GUIDE.encode())
    assert (await ingester.ingest(moved)).status == "deleted"


async def test_topic_is_forgotten(encrypted: Rem, sql: Sql) -> None:
    await live(encrypted)
    changes = encrypted.for_user(ALICE).changes
    request = await changes.request_forget("my code word")
    assert "brackfordine" in request.preview
    await changes.confirm(request.code, by="test")
    assert "brackfordine" not in str((await encrypted.for_user(ALICE).query('SEARCH "code word boat"')).hits)


async def test_clone_and_share_of_a_session(encrypted: Rem) -> None:
    session = uuid4()
    memory = encrypted.for_user(ALICE).sessions
    await memory.begin_turn(session, NewMessage(role=Role.USER, content="About the quorvexal."))
    await memory.set_system_prompt(session, "Be kind.")
    await memory.share_session(session, BOB)
    clone = await encrypted.for_user(BOB).sessions.clone_session(session)
    assert clone.system_prompt == "Be kind."
    assert [row.content for row in await encrypted.for_user(BOB).sessions.load_session(clone.id)] == [
        "About the quorvexal."
    ]
    with pytest.raises(NotFoundError):
        await encrypted.for_user("carol").sessions.get_session(session)


async def test_dump_and_load_are_plain(encrypted: Rem, settings: Settings, tmp_path: Path) -> None:
    await encrypted.for_user(ALICE).store.upsert(Resource(name="Note", content="The zanzibarium."))
    dump = tmp_path / "dump.yaml"
    with dump.open("w") as file:
        await encrypted.for_user(ALICE).dump(file)
    assert "The zanzibarium." in dump.read_text()
    await encrypted.for_user(ALICE, tenant="acme").load(dump)
    (row,) = await encrypted.for_user(ALICE, tenant="acme").store.find(Resource)
    assert row.content == "The zanzibarium."


async def test_value_in_another_row_is_refused(encrypted: Rem, sql: Sql) -> None:
    mine = await encrypted.for_user(BOB).store.upsert(Resource(name="Mine", content="mine"))
    theirs = await encrypted.for_user(ALICE).store.upsert(Resource(name="Note", content="The zanzibarium."))
    await sql.execute(
        "UPDATE resources SET content = (SELECT content FROM resources WHERE id = $2) WHERE id = $1", mine.id, theirs.id
    )
    with pytest.raises(EncryptionError, match=str(theirs.id)):
        await encrypted.for_user(BOB).store.get(Resource, mine.id)
    with pytest.raises(EncryptionError):
        await encrypted.for_user(BOB).query("LOOKUP mine")
    assert (await encrypted.for_user(BOB).query("SEARCH zanzibarium")).hits == []


async def test_nobody_lets_rem_decrypt_a_stolen_value(encrypted: Rem, sql: Sql) -> None:
    await encrypted.for_user(ALICE).store.upsert(Resource(name="Note", content="The zanzibarium."))
    stolen = await sql.fetchval("SELECT content FROM resources")
    store = encrypted.for_user(BOB).store
    row = await store.upsert(Resource(name="Mine", content=stolen, metadata={"note": stolen, "deep": [{"id": stolen}]}))
    message = NewMessage(role=Role.USER, content=stolen, metadata={"note": stolen})
    await encrypted.for_user(BOB).sessions.save_message(uuid4(), message)
    read = [await store.get(Resource, row.id), *await store.find(Message)]
    texts = orjson.dumps([entity.model_dump(mode="json") for entity in read]).decode()
    assert "[masked: encrypted value]" in texts
    assert "zanzibarium" not in texts


async def test_missing_and_wrong_keys_are_named(encrypted: Rem, settings: Settings) -> None:
    await encrypted.for_user(ALICE).store.upsert(Resource(name="Note", content="text"))
    for keys, enabled, kind, reason in (
        ((K2,), True, EncryptionError, "the key k1, which is missing"),
        ((OTHER_K1,), True, EncryptionError, "another value"),
        ((), True, SettingsError, "ENCRYPTION__KEYS"),
        ((), False, EncryptionError, "the key k1, which is missing"),
    ):
        with pytest.raises(kind, match=reason):
            async with Rem.open(encrypting(settings, *keys, enabled=enabled)):
                pass
    assert (await encrypted.for_user(ALICE).store.find(Resource))[0].content == "text"


async def test_without_encryption_nothing_changes(rem: Rem, sql: Sql) -> None:
    await rem.for_user(ALICE).store.upsert(Resource(name="Note", content="The zanzibarium."))
    assert rem.database.sealer is None
    assert await sql.fetchval("SELECT content FROM resources") == "The zanzibarium."
    assert await sql.fetchval("SELECT index_key FROM installation") is None


async def test_summary_of_a_session(encrypted: Rem, sql: Sql) -> None:
    memory, session = encrypted.for_user(ALICE).sessions, uuid4()
    for number in range(30):
        text = f"We decided that the quorvexal number {number} goes to the harbour, and that nobody paints it. " * 3
        await memory.begin_turn(session, NewMessage(role=Role.USER, content=text))
    summary = await memory.refresh_summary(session, strategy="summarization", max_tokens=400)
    assert summary is not None
    assert "quorvexal" in summary
    assert await memory.get_summary(session) == summary
    assert (await memory.get_history(session, 400, strategy="summarization")).summary is not None
    assert await find_traces(sql, "quorvexal") == {}
    await memory.refresh_summary(session, strategy="summarization", max_tokens=300)


async def test_paused_run_and_arguments(encrypted: Rem, sql: Sql) -> None:
    approvals = encrypted.for_user(ALICE).approvals
    proposal = Proposal("remember", {"text": "quorvexal"}, "Remember something.", "preview")
    request = await approvals.request(proposal, Origin(run='{"messages": "quorvexal"}'))
    assert (await approvals.get(request.id)).parameters == {"text": "quorvexal"}
    assert await approvals.load_run(request) == '{"messages": "quorvexal"}'
    await approvals.approve(request, by="alice", parameters={"text": "edited quorvexal"})
    assert (await approvals.get(request.id)).parameters == {"text": "edited quorvexal"}
    assert await find_traces(sql, "quorvexal") == {}


async def test_uploaded_file_is_read(settings: Settings, sql: Sql) -> None:
    async with served(create_app(encrypting(settings, K1))) as address, client(address, ALICE) as http:
        upload = await http.post("/api/v1/files?wait=30", files={"files": ("guide.md", GUIDE.encode())})
        assert upload.json()["data"][0]["status"] == "completed", upload.text
        answer = await http.post("/api/v1/query", json={"query": "SEARCH glimmerfax"})
        assert "glimmerfax" in answer.text
    assert await sql.fetchval("SELECT count(*) FROM uploads") == 0
    assert await find_traces(sql, "glimmerfax") == {}
