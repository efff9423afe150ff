"""No way into the memory goes around the policy: afterwards no column of any table contains the secret."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx2
import orjson
import pytest

from rem.agents.chat import AgentRequest
from rem.agents.tool_gaps import ToolGapReport, store_tool_gaps
from rem.api.main import create_app
from rem.app import Rem
from rem.context import AgentContext
from rem.db.store import Store
from rem.errors import PrivacyError
from rem.ingest.models import FetchedFile
from rem.models import Document, Feedback, Message, Moment, Ontology, Resource, Session, User
from rem.models.message import Role
from rem.sessions.export_import import import_sessions
from rem.sessions.message import NewMessage
from rem.sessions.sqlite_import import import_sqlite
from rem.settings import PrivacySettings, Settings
from rem.tools.control import remember
from rem.tools.env import ToolEnv
from rem.tools.remember import ingest_into_rem
from tests.api.live_server import client, served
from tests.forget.text_traces import find_traces
from tests.privacy.sample_secrets import CARD, GITHUB_TOKEN, PRIVATE_KEY, make_random

ALICE = "alice@example.com"
TEXT = f"Use {GITHUB_TOKEN} for the build."
MASKED = "Use [masked: token] for the build."
Write = Callable[[Rem, Store], Awaitable[None]]


@pytest.fixture
def rem(rem_without_embedder: Rem) -> Rem:
    """Return a REM without an embedder."""
    return rem_without_embedder


async def _entities(rem: Rem, store: Store) -> None:
    session = await store.upsert(Session(description=TEXT, system_prompt=TEXT, settings={"note": TEXT}))
    for entity in (
        Resource(name="note", content=TEXT, metadata={"a": [TEXT]}, tags=[TEXT], uri=f"https://x/{GITHUB_TOKEN}"),
        Moment(name="moment", summary=TEXT, topic_tags=[TEXT]),
        Ontology(name="entry", content=TEXT, extracted_data={TEXT: TEXT}),
        User(name="person", summary=TEXT, interests=[TEXT]),
        Document(content=TEXT),
        Feedback(comment=TEXT, categories=[TEXT]),
        Message(session_id=session.id, message_index=0, role=Role.USER, content=TEXT, tool_calls=[{"x": TEXT}]),
    ):
        await store.upsert(entity)
    await store.upsert_many(Resource(name=f"many {number}", content=f"{number} {TEXT}") for number in range(300))

    def change(row: Resource) -> None:
        row.content = f"Changed. {TEXT}"

    (row,) = await store.find(Resource, {"key": "note"})
    await store.modify(Resource, row.id, change)
    assert (await store.get(Resource, row.id)).content == f"Changed. {MASKED}"


async def _sessions(rem: Rem, store: Store) -> None:
    memory = rem.for_user(store.scope).sessions
    message = NewMessage(role=Role.USER, content=TEXT, metadata={"note": TEXT})
    call = {"id": "c", "name": "deploy", "arguments": {"api_key": make_random(32), "text": TEXT}}
    turn = await memory.begin_turn(uuid4(), message, metadata={"note": TEXT}, name=f"Talk on {GITHUB_TOKEN}")
    assert turn.masked == ("token",)
    await memory.append(turn.session_id, [NewMessage(role=Role.TOOL, tool_calls=[call], tool_call_id="c")])
    await memory.append(turn.session_id, [NewMessage(role=Role.ASSISTANT, content=TEXT)])
    await memory.seed_session(uuid4(), [message], name=GITHUB_TOKEN)
    await memory.save_message(uuid4(), message)
    await memory.set_system_prompt(turn.session_id, TEXT)
    await memory.create_session(TEXT, {"note": TEXT}, description=TEXT)
    for rename in (memory.rename_session(turn.session_id, TEXT), memory.create_session(name=TEXT)):
        with pytest.raises(PrivacyError):
            await rename
    await memory.clone_session(turn.session_id)
    stored = await memory.load_session(turn.session_id)
    assert [row.content for row in stored] == [MASKED, "", MASKED]
    assert stored[1].tool_calls[0]["arguments"] == {"api_key": "[masked: api key]", "text": MASKED}


async def _remember(rem: Rem, store: Store) -> None:
    assert (await rem.for_user(store.scope).remember(TEXT, tags=[TEXT])).content == MASKED
    env = ToolEnv(AgentContext(user_id=store.scope.user_id), rem)
    assert (await remember(env, TEXT))["note"] == "Masked in what was stored: token."
    result = await ingest_into_rem(env, name="From a tool", content=TEXT)
    assert result["note"] == "Masked in what was stored: token."
    assert (await ingest_into_rem(env, name="From a tool", content=TEXT))["status"] == "success"


async def _ingest(rem: Rem, store: Store) -> None:
    paragraphs = "\n\n".join(f"Paragraph {number} of a long text about nothing." for number in range(300))
    for name, text in {
        "note.md": f"---\nkey: {TEXT}\n---\n# {TEXT}\n\n{TEXT}\n\n{paragraphs}\n\n{PRIVATE_KEY}\n\n{paragraphs}",
        "table.csv": f"name,value\nkey,{GITHUB_TOKEN}\n",
        "data.json": orjson.dumps({"token": GITHUB_TOKEN}).decode(),
        "page.html": f"<title>{TEXT}</title><p>{TEXT}",
        "wiki.md": f"# Wiki\n\n{TEXT}",
    }.items():
        outcome = (
            await rem.for_user(store.scope)
            .ingester()
            .ingest(FetchedFile(f"file:///{name}", name, text.encode()), form="ontology" if name == "wiki.md" else None)
        )
        assert outcome.status == "added", outcome
        assert "token" in outcome.masked, name


async def _imports(rem: Rem, store: Store) -> None:
    session_id = uuid4()
    line = {
        "format": "rem-session/1",
        "session": {"id": str(session_id), "description": TEXT},
        "messages": [{"session_id": str(session_id), "message_index": 0, "role": "user", "content": TEXT}],
    }
    report = await import_sessions(rem.for_user(store.scope).sessions, io.BytesIO(orjson.dumps(line)))
    assert report.counts["imported"] == 1, report


async def _tool_gaps(rem: Rem, store: Store) -> None:
    gap = ToolGapReport(missing_tools=["deploy"], attempted_task=TEXT, agent="rem")
    await store_tool_gaps(store, [gap], None)


async def _chat(rem: Rem, store: Store) -> None:
    context = AgentContext(user_id=store.scope.user_id)
    for text in (f"Please remember: {TEXT}", TEXT, f"What about {GITHUB_TOKEN}?"):
        answer = await rem.agents.run(AgentRequest(context=context, text=text))
        assert answer.masked == ["token"]


async def _corrections(rem: Rem, store: Store) -> None:
    await rem.for_user(store.scope).remember("The build uses no token.")
    changes = rem.for_user(store.scope).changes
    request = await changes.request_correction("The build uses no token.", TEXT)
    await changes.confirm(request.code, by="test")


@pytest.mark.parametrize(
    "write",
    [_entities, _sessions, _remember, _ingest, _imports, _tool_gaps, _chat, _corrections],
    ids=lambda w: w.__name__,
)
async def test_no_column_contains_the_secret(write: Write, rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    await write(rem, rem.for_user(ALICE).store)
    await rem.index()
    for secret in (GITHUB_TOKEN, make_random(32), *PRIVATE_KEY.split("\n")[1:-1]):
        assert await find_traces(sql, secret) == {}
    assert await find_traces(sql, "masked") != {}


async def test_card_numbers_are_not_stored(rem: Rem, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    text, store = f"My card is {CARD}.", rem.for_user(ALICE).store
    await store.upsert(Resource(name="note", content=text, metadata={"a": [text]}, tags=[text]))
    turn = await rem.for_user(ALICE).sessions.begin_turn(uuid4(), NewMessage(role=Role.USER, content=text))
    await rem.for_user(ALICE).sessions.append(turn.session_id, [NewMessage(role=Role.ASSISTANT, content=text)])
    await rem.for_user(ALICE).remember(text)
    await (
        rem.for_user(ALICE).ingester().ingest(FetchedFile("file:///a.csv", "a.csv", f"name,card\nme,{CARD}\n".encode()))
    )
    await rem.index()
    assert turn.masked == ("card number",)
    for digits in (CARD, CARD.replace(" ", "")):
        assert await find_traces(sql, digits) == {}


async def test_imported_files_are_masked(rem: Rem, tmp_path: Path, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    old = tmp_path / "old.db"
    with sqlite3.connect(old) as database:
        database.execute("CREATE TABLE sessions (id, created_at, updated_at, metadata, system_prompt)")
        database.execute(
            "CREATE TABLE messages (id, session_id, role, content, tool_calls, tool_call_id, name, created_at)"
        )
        database.execute("INSERT INTO sessions VALUES ('a', 1, 1, ?, ?)", (orjson.dumps({"n": TEXT}), TEXT))
        database.execute("INSERT INTO messages VALUES (1, 'a', 'user', ?, NULL, NULL, NULL, 1)", (TEXT,))
    report = await import_sqlite(rem.for_user(ALICE).sessions, old)
    assert report.counts["imported"] == 1, report
    dump = tmp_path / "dump.yaml"
    dump.write_text(
        f"- table: resources\n  key_field: name\n  rows:\n    - name: Loaded\n      content: {TEXT}\n"
        f"      metadata: {{a: '{TEXT}'}}\n"
    )
    await rem.for_user(ALICE).load(dump)
    assert await find_traces(sql, GITHUB_TOKEN) == {}
    assert (await rem.for_user(ALICE).query("LOOKUP loaded")).count == 1


async def test_requests_are_masked(settings: Settings, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    async with served(create_app(settings)) as address, client(address, ALICE) as http:
        answer = await _post(http, "/chat/completions", {"messages": [{"role": "user", "content": TEXT}]})
        assert answer["masked"] == ["token"]
        await _post(http, "/entities/resources", {"name": "Note", "content": TEXT})
        await _post(http, "/sessions", {"name": "Talk", "system_prompt": TEXT, "metadata": {"note": TEXT}})
        await _post(http, "/feedback", {"session_id": "Talk", "comment": TEXT})
        refused = await http.post("/api/v1/sessions", json={"name": GITHUB_TOKEN})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "privacy_refused")
        upload = await http.post("/api/v1/files?wait=30", files={"files": ("note.md", TEXT.encode())})
        assert upload.json()["data"][0]["status"] == "completed", upload.text
    assert await find_traces(sql, GITHUB_TOKEN) == {}


async def _post(http: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = await http.post(f"/api/v1{path}", json=body)
    assert response.status_code in (200, 201), response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_refusing_policy_stores_nothing(settings: Settings, sql: asyncpg.Connection[asyncpg.Record]) -> None:
    strict = settings.model_copy(update={"privacy": PrivacySettings(credentials="refuse", card_numbers="refuse")})
    async with Rem.open(strict) as rem:
        store, memory = rem.for_user(ALICE).store, rem.for_user(ALICE).sessions
        session_id = uuid4()
        for text in (TEXT, f"My card is {CARD}."):
            for refused in (
                store.upsert(Resource(name="note", content=text)),
                store.upsert_many([Resource(name="a", content="fine"), Resource(name="b", content=text)]),
                memory.begin_turn(session_id, NewMessage(role=Role.USER, content=text)),
                rem.for_user(ALICE).remember(text),
            ):
                with pytest.raises(PrivacyError) as raised:
                    await refused
                assert text not in str(raised.value)
        outcome = await rem.for_user(ALICE).ingester().ingest(FetchedFile("file:///a.md", "a.md", TEXT.encode()))
        assert (outcome.status, "token" in str(outcome.error)) == ("failed", True)
        assert await store.count(Resource) == 0
        assert await memory.list_sessions() == []
        # An answer that the user has seen is kept.
        await memory.append(session_id, [NewMessage(role=Role.ASSISTANT, content=TEXT)], create_session=True)
        assert (await memory.load_session(session_id))[0].content == MASKED


async def test_keeping_policy_stores_texts_as_they_are(settings: Settings) -> None:
    lenient = settings.model_copy(update={"privacy": PrivacySettings(credentials="keep", card_numbers="keep")})
    async with Rem.open(lenient) as rem:
        stored = await rem.for_user(ALICE).store.upsert(Resource(name=GITHUB_TOKEN, content=f"{TEXT} {CARD}"))
        assert (stored.name, stored.content) == (GITHUB_TOKEN, f"{TEXT} {CARD}")


async def test_older_message_can_be_changed_under_a_newer_policy(settings: Settings) -> None:
    lenient = settings.model_copy(update={"privacy": PrivacySettings(credentials="keep")})
    async with Rem.open(lenient) as rem:
        stored = await rem.for_user(ALICE).sessions.save_message(uuid4(), NewMessage(role=Role.USER, content=TEXT))
    async with Rem.open(settings) as rem:
        store = rem.for_user(ALICE).store

        def tag(message: Message) -> None:
            message.tags = ["build"]

        changed = await store.modify(Message, stored.id, tag)
        assert (changed.tags, changed.content) == (["build"], TEXT)


@pytest.mark.parametrize("text", ["My code word is heliotrope-91.", "The wifi password is bluefin."])
async def test_words_of_people_are_remembered(rem: Rem, text: str) -> None:
    assert (await rem.for_user(ALICE).remember(text)).content == text


async def test_model_sees_the_message_as_it_was_sent(rem: Rem) -> None:
    """The model gets the original in its turn, and the masked text as history later."""
    memory = rem.for_user(ALICE).sessions
    turn = await memory.begin_turn(uuid4(), NewMessage(role=Role.USER, content=TEXT))
    later = await memory.begin_turn(turn.session_id, NewMessage(role=Role.USER, content="And now?"))
    assert [message.content for message in later.history] == [MASKED]
