"""`erase=true`: nothing of the row is left in any column, whichever route erases it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import httpx2
import pytest

from rem.agents.model_registry import LOCAL_MODEL
from rem.api.main import create_app
from rem.app import Rem
from rem.approvals.approvals import Origin, Proposal
from rem.dreams.claims import Claim
from rem.models import Message, Resource, Role, User
from rem.sessions.message import NewMessage
from rem.settings import AuditSettings, Settings
from tests.api.live_server import client, served
from tests.dreams.sample_claims import claim_edge, claim_field, claim_moment, list_moments, start_run, to_ref
from tests.forget.text_traces import find_traces
from tests.scripted_model import Call, ScriptedModel, Step, has_result, scripted_model

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
ALICE = "alice@example.com"
MARK = "Quetzalcoatl"
TOLD = f"My boat is called {MARK}."


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    """A model that calls a missing tool, and then one that needs consent."""

    def script(body: dict[str, Any]) -> list[Step]:
        if MARK not in str(body["messages"][-1]["content"]):
            return ["Noted."]
        return [Call("paint_boat")] if not has_result(body) else ["Noted."]

    with scripted_model() as model:
        model.script = script
        yield model


@pytest.fixture
def settings(settings: Settings, model: ScriptedModel) -> Settings:
    """Return the settings of a server with the model and an audit log."""
    llm = {"base_url": model.url, "openai_api_key": "unused", "default_model": "openai:scripted", "max_retries": 0}
    return Settings.model_validate({**settings.model_dump(), "llm": llm, "audit": AuditSettings(enabled=True)})


@pytest.fixture
async def as_alice(settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of Alice."""
    async with served(create_app(settings)) as address, client(address, ALICE) as opened:
        yield opened


async def tell(http: httpx2.AsyncClient, session: UUID, text: str) -> None:
    body = {"messages": [{"role": "user", "content": text}]}
    answer = await http.post("/v1/chat/completions", json=body, headers={"X-Session-Id": str(session)})
    assert answer.status_code == 200, answer.text


async def derive(rem: Rem, message: Message) -> Resource:
    """Let a dream learn a moment, an edge and a line of the profile from a message. Return another note."""
    store = rem.for_user(ALICE).store
    me = await store.upsert(User(name="Alice"))
    note = await store.upsert(Resource(name="harbour", content="The harbour is closed on Sunday."))
    run = await start_run(rem, store)
    claims: list[Claim] = [
        claim_moment("boat", message, summary=f"Bought {MARK}."),
        claim_edge(note, me, message, rel_type=f"has-{MARK}"),
        claim_field(me, "summary", f"Sails {MARK}.", message),
    ]
    assert (await run.store_claims("test", to_ref(message), claims)).said == 3
    return note


async def ask_for_consent(rem: Rem, session: UUID) -> list[UUID]:
    """Store requests that repeat the message. Return their ids."""
    origin, run = Origin(session), Origin(session, run=f'{{"messages": "{TOLD}"}}')
    approvals = rem.for_user(ALICE).approvals
    keep = Proposal("remember", {"text": TOLD}, "Keep a statement.", "Keep it?")
    correct = Proposal("correct", {"what": MARK, "to": TOLD}, "Correct a text.", "Correct it?")
    begun = await approvals.request(keep, run)
    await approvals.approve(begun, by="test", parameters={"text": f"{TOLD} Yes."})
    return [begun.id, (await approvals.request(keep, run)).id, (await approvals.request(correct, origin)).id]


async def fill(rem: Rem, http: httpx2.AsyncClient, session: UUID) -> Message:
    """Chat, derive and ask for consent. Return the message with the mark."""
    await tell(http, session, "Good morning.")
    await tell(http, session, TOLD)
    await tell(http, session, "Good night.")
    (message,) = await rem.for_user(ALICE).store.find(Message, {"session_id": session, "role": "user", "content": TOLD})
    await derive(rem, message)
    await ask_for_consent(rem, session)
    await rem.index()
    return message


@pytest.mark.parametrize("is_deleted_before", [False, True])
@pytest.mark.parametrize(
    "path", ["messages/{id}", "messages/{key}", "entities/messages/{id}", "entities/messages/{key}"]
)
async def test_erased_message_leaves_nothing(
    as_alice: httpx2.AsyncClient, rem: Rem, sql: Sql, path: str, is_deleted_before: bool
) -> None:
    session = uuid4()
    message = await fill(rem, as_alice, session)
    place = "/api/v1/" + path.format(id=message.id, key=message.key)
    traced = {column.split(".")[1] for column in await find_traces(sql, MARK)}
    assert traced >= {
        "messages",
        "moments",
        "statements",
        "approvals",
        "approval_runs",
        "tool_gaps",
        "users",
    }
    if is_deleted_before:
        assert (await as_alice.delete(place)).status_code == 204
        assert (await as_alice.get(place)).status_code == 404
    assert (await as_alice.delete(place, params={"erase": "true"})).status_code == 204
    await rem.index()
    assert await find_traces(sql, MARK) == {}
    assert await list_moments(rem.for_user(ALICE).store) == []
    assert (await as_alice.get(place)).status_code == 404
    assert (await as_alice.post(f"/api/v1/restore/messages/{message.id}")).status_code == 404
    for again in ({}, {"erase": "true"}):
        assert (await as_alice.delete(place, params=again)).status_code == 404
    left = (await as_alice.get(f"/api/v1/sessions/{session}/messages")).json()["data"]
    assert [row["content"] for row in left] == ["Good morning.", "Noted.", "", "Noted.", "Good night.", "Noted."]
    assert (await as_alice.get(f"/api/v1/sessions/{session}")).json()["message_count"] == len(left)
    assert await sql.fetchval("SELECT count(*) FROM rem.passages WHERE entity_id = $1", message.id) == 0
    statuses = [row.status for row in await rem.for_user(ALICE).approvals.list()]
    assert statuses == ["rejected"] * 3
    for text in (MARK, "boat"):
        found = await as_alice.post("/api/v1/query", json={"query": f'SEARCH "{text}" FROM messages MODE text'})
        assert found.json()["results"] == []
    # The next message takes no index again.
    await tell(as_alice, session, "Good day.")
    indexes = [
        row["message_index"] for row in (await as_alice.get(f"/api/v1/sessions/{session}/messages")).json()["data"]
    ]
    assert len(set(indexes)) == len(indexes)


async def test_erased_message_takes_the_reply_of_the_built_in_model_with_it(
    as_alice: httpx2.AsyncClient, rem: Rem, sql: Sql
) -> None:
    session, reply = uuid4(), f"Noted: “{TOLD}”"
    call = [{"id": "1", "name": "remember", "arguments": {"text": TOLD}}]
    messages = [
        NewMessage(role=Role.USER, content=TOLD),
        NewMessage(
            role=Role.TOOL, content="", tool_calls=call, tool_call_id="1", tool_name="remember", model=LOCAL_MODEL
        ),
        NewMessage(role=Role.ASSISTANT, content=reply, model=LOCAL_MODEL),
        NewMessage(role=Role.USER, content="My scooter is red."),
        NewMessage(role=Role.ASSISTANT, content="Noted.", model=LOCAL_MODEL),
    ]
    await rem.for_user(ALICE).sessions.append(session, messages, create_session=True)
    rows = (await as_alice.get(f"/api/v1/sessions/{session}/messages")).json()["data"]
    assert [row["role"] for row in rows] == ["user", "tool", "assistant", "user", "assistant"]
    answer = await as_alice.delete(f"/api/v1/messages/{rows[0]['id']}", params={"erase": "true"})
    assert answer.status_code == 204
    assert not [column for column in await find_traces(sql, MARK) if column.startswith("rem.messages.")]
    rows = (await as_alice.get(f"/api/v1/sessions/{session}/messages")).json()["data"]
    assert [row["content"] for row in rows] == ["My scooter is red.", "Noted."]


async def test_erased_last_message_keeps_its_index(as_alice: httpx2.AsyncClient, rem: Rem) -> None:
    session = uuid4()
    await tell(as_alice, session, "Good morning.")
    rows = (await as_alice.get(f"/api/v1/sessions/{session}/messages")).json()["data"]
    assert (await as_alice.delete(f"/api/v1/messages/{rows[-1]['id']}", params={"erase": "true"})).status_code == 204
    await tell(as_alice, session, "Good night.")
    later = (await as_alice.get(f"/api/v1/sessions/{session}/messages")).json()["data"]
    assert [row["message_index"] for row in later] == [0, 2, 3]
    assert await rem.for_user(ALICE).store.count(Message, with_deleted=True) == 3


@pytest.mark.parametrize("is_deleted_before", [False, True])
@pytest.mark.parametrize("path", ["sessions/{id}", "entities/sessions/{id}"])
async def test_erased_session_leaves_nothing(
    as_alice: httpx2.AsyncClient, rem: Rem, sql: Sql, path: str, is_deleted_before: bool
) -> None:
    made = await as_alice.post("/api/v1/sessions", json={"name": f"About {MARK}", "system_prompt": f"Praise {MARK}."})
    session = UUID(made.json()["id"])
    await fill(rem, as_alice, session)
    await as_alice.post(f"/api/v1/sessions/{session}/share", json={"user": "bob@example.com"})
    place = "/api/v1/" + path.format(id=session)
    if is_deleted_before:
        assert (await as_alice.delete(place)).status_code == 204
    assert (await as_alice.delete(place, params={"erase": "true"})).status_code == 204
    await rem.index()
    assert await find_traces(sql, MARK) == {}
    assert await rem.for_user(ALICE).store.count(Message, with_deleted=True) == 0
    # The id stays where records without the words of the session name it.
    kept = {"rem.approvals.session_id", "rem.tool_gaps.session_id", "rem.audit_log.targets", "rem.audit_log.operation"}
    assert set(await find_traces(sql, str(session))) <= kept


@pytest.mark.parametrize("table", ["users", "resources", "moments", "ontologies", "feedbacks", "documents", "schemas"])
@pytest.mark.parametrize("is_deleted_before", [False, True])
async def test_erased_entity_leaves_nothing(
    as_alice: httpx2.AsyncClient, rem: Rem, sql: Sql, table: str, is_deleted_before: bool
) -> None:
    fields: dict[str, dict[str, Any]] = {
        "users": {"name": MARK, "summary": TOLD, "email": f"{MARK}@example.com"},
        "resources": {"name": MARK, "content": TOLD},
        "moments": {"name": MARK, "summary": TOLD},
        "ontologies": {"name": MARK, "content": TOLD},
        "feedbacks": {"comment": TOLD, "rating": 1},
        "documents": {"content": TOLD},
        "schemas": {"name": MARK, "description": TOLD, "spec": {"description": TOLD}},
    }
    made = await as_alice.post(
        f"/api/v1/entities/{table}", json={**fields[table], "tags": [MARK], "metadata": {"m": MARK}}
    )
    assert made.status_code == 201, made.text
    await as_alice.patch(f"/api/v1/entities/{table}/{made.json()['id']}", json={"tags": [f"{MARK} 2"]})
    await rem.index()
    assert await find_traces(sql, MARK) != {}
    place = f"/api/v1/entities/{table}/{made.json()['id']}"
    if is_deleted_before:
        assert (await as_alice.delete(place)).status_code == 204
    assert (await as_alice.delete(place, params={"erase": "true"})).status_code == 204
    await rem.index()
    assert await find_traces(sql, MARK) == {}


@pytest.mark.parametrize("path", ["files/{id}", "entities/files/{id}"])
async def test_erased_file_leaves_nothing(as_alice: httpx2.AsyncClient, rem: Rem, sql: Sql, path: str) -> None:
    text = f"# {MARK}\n\n{TOLD}\n\n- owner: {MARK}\n".encode()
    sent = await as_alice.post("/api/v1/files", files={"files": (f"{MARK}.md", text)}, params={"wait": 30})
    assert sent.status_code in (200, 202), sent.text
    file = sent.json()["data"][0]
    await rem.index()
    assert await find_traces(sql, MARK) != {}
    assert (await as_alice.delete("/api/v1/" + path.format(id=file["id"]), params={"erase": "true"})).status_code == 204
    await rem.index()
    assert await find_traces(sql, MARK) == {}
