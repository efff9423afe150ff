"""`/sessions` and `/messages`: create, read, copy, share and delete sessions."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from rem.app import Rem
from rem.errors import SessionNameError
from rem.models import Role
from rem.sessions.export_import import import_sessions
from rem.sessions.message import NewMessage

Client = httpx2.AsyncClient
LIMITED_RESULTS = (
    "CREATE OR REPLACE FUNCTION rem.rem_max_result_bytes() RETURNS integer LANGUAGE sql IMMUTABLE RETURN 30000"
)


@pytest.fixture
async def session_id(rem: Rem) -> UUID:
    """Store a session of Alice with five messages, and return its id."""
    session_id = uuid4()
    said = [(Role.USER, "Hello"), (Role.ASSISTANT, "Good day. " * 60), (Role.USER, "What is REM?")]
    said += [(Role.ASSISTANT, "A memory."), (Role.USER, "Danke 🎉")]
    messages = [NewMessage(role=role, content=content) for role, content in said]
    await rem.for_user("alice@example.com").sessions.append(session_id, messages, create_session=True)
    return session_id


async def data(client: Client, path: str, **asked: str | int) -> list[dict[str, Any]]:
    answer = await client.get(f"/api/v1{path}", params=asked)
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()["data"]
    return rows


async def test_session_is_created_found_renamed_and_listed(as_alice: Client) -> None:
    begun = await as_alice.post("/api/v1/sessions", json={"name": "The launch", "agent": "rem", "metadata": {"a": 1}})
    assert begun.status_code == 201
    session = begun.json()
    assert begun.headers["x-session-id"] == session["id"]
    assert (session["name"], session["agent_schema"], session["metadata"]) == ("The launch", "rem", {"a": 1})
    path = f"/api/v1/sessions/{session['id']}"
    assert (await as_alice.get(path)).json() == session
    assert (await as_alice.patch(path, json={"name": "The landing"})).json()["name"] == "The landing"
    assert [row["name"] for row in await data(as_alice, "/sessions")] == ["The landing"]
    assert (await as_alice.patch(path, json={"name": None})).json()["name"] is None


async def test_session_may_have_a_client_id_and_a_system_prompt(as_alice: Client) -> None:
    chosen = str(uuid4())
    new = {"id": chosen, "system_prompt": "Be brief."}
    assert (await as_alice.post("/api/v1/sessions", json=new)).json()["id"] == chosen
    path = f"/api/v1/sessions/{chosen}"
    assert (await as_alice.get(path)).json()["system_prompt"] == "Be brief."
    assert (await as_alice.patch(path, json={"system_prompt": "Be kind."})).json()["system_prompt"] == "Be kind."
    assert (await as_alice.patch(path, json={"system_prompt": None})).json()["system_prompt"] is None
    assert (await as_alice.patch(path, json={"system_prompt": "x" * 100_001})).status_code == 422
    assert (await as_alice.post("/api/v1/sessions", json=new)).status_code == 409


async def test_session_is_found_by_its_client_name(as_alice: Client, rem: Rem) -> None:
    headers = {"X-Session-Id": "my talk"}
    answer = await as_alice.post("/api/v1/agents/simulator/run", json={"input": "demo"}, headers=headers)
    named = await as_alice.get("/api/v1/sessions/my talk")
    assert named.json()["id"] == answer.headers["x-session-id"]


async def test_messages_are_paged_in_order(as_alice: Client, session_id: UUID) -> None:
    everything = await data(as_alice, f"/sessions/{session_id}/messages")
    assert [message["message_index"] for message in everything] == [0, 1, 2, 3, 4]
    assert everything[1]["content"] == "Good day. " * 60
    first = (await as_alice.get(f"/api/v1/sessions/{session_id}/messages", params={"limit": 3})).json()
    rest = (await as_alice.get(f"/api/v1/sessions/{session_id}/messages", params={"limit": 3, "after": 2})).json()
    assert (first["has_more"], rest["has_more"]) == (True, False)
    assert first["data"] + rest["data"] == everything


async def test_message_is_found_flagged_and_deleted(as_alice: Client, session_id: UUID) -> None:
    message = (await data(as_alice, f"/sessions/{session_id}/messages"))[2]
    assert message["key"] == f"session-{session_id}-msg-2"
    for name in (message["id"], message["key"]):
        assert (await as_alice.get(f"/api/v1/messages/{name}")).json() == message
    flagged = await as_alice.patch(f"/api/v1/messages/{message['id']}", json={"important": True})
    assert flagged.json()["metadata"]["important"] is True
    assert (await as_alice.delete(f"/api/v1/messages/{message['id']}")).status_code == 204
    assert (await as_alice.get(f"/api/v1/messages/{message['key']}")).status_code == 404
    assert len(await data(as_alice, f"/sessions/{session_id}/messages")) == 4


async def test_session_list_has_titles(as_alice: Client, session_id: UUID) -> None:
    await as_alice.post("/api/v1/sessions", json={"name": "Named"})
    assert {row["title"] for row in await data(as_alice, "/sessions")} == {"Hello", "Named"}
    page = (await as_alice.get("/api/v1/sessions", params={"limit": 1})).json()
    assert (len(page["data"]), page["has_more"]) == (1, True)


async def test_deleted_session_is_restored_with_messages_unless_erased(as_alice: Client, session_id: UUID) -> None:
    path = f"/api/v1/sessions/{session_id}"
    assert (await as_alice.delete(path)).status_code == 204
    assert (await as_alice.get(path)).status_code == 404
    assert (await as_alice.get(f"{path}/messages")).status_code == 404
    assert (await as_alice.post(f"{path}/restore")).json()["message_count"] == 5
    assert len(await data(as_alice, f"/sessions/{session_id}/messages")) == 5
    assert (await as_alice.delete(path, params={"erase": True})).status_code == 204
    assert (await as_alice.post(f"{path}/restore")).status_code == 404
    assert (await as_alice.delete(path)).status_code == 404


async def test_cleared_session_is_empty_and_still_exists(as_alice: Client, session_id: UUID) -> None:
    assert (await as_alice.post(f"/api/v1/sessions/{session_id}/clear")).json() == {"deleted": 5}
    assert await data(as_alice, f"/sessions/{session_id}/messages") == []
    assert (await as_alice.get(f"/api/v1/sessions/{session_id}")).json()["message_count"] == 0


async def test_session_is_cleared_from_a_message_on(as_alice: Client, session_id: UUID) -> None:
    path = f"/api/v1/sessions/{session_id}"
    assert (await as_alice.post(f"{path}/clear", json={"from_index": 2})).json() == {"deleted": 3}
    assert [row["message_index"] for row in await data(as_alice, f"/sessions/{session_id}/messages")] == [0, 1]
    assert (await as_alice.get(path)).json()["message_count"] == 2
    assert (await as_alice.post(f"{path}/clear", json={"from_index": -1})).status_code == 422


async def test_messages_are_read_backwards_from_the_end(as_alice: Client, session_id: UUID) -> None:
    path = f"/api/v1/sessions/{session_id}/messages"
    seen: list[int] = []
    before, has_more = 2**31 - 1, True
    while has_more:
        page = (await as_alice.get(path, params={"limit": 2, "before": before})).json()
        seen = [message["message_index"] for message in page["data"]] + seen
        before, has_more = seen[0], page["has_more"]
    assert seen == [0, 1, 2, 3, 4]
    assert (await as_alice.get(path, params={"before": 0})).json()["data"] == []


async def test_page_of_large_messages_is_cut_and_says_that_there_are_more(
    as_alice: Client, session_id: UUID, rem: Rem
) -> None:
    async with rem.database.connection() as connection:
        await connection.execute(LIMITED_RESULTS)
    memory = rem.for_user("alice@example.com").sessions
    for _ in range(3):
        await memory.save_message(session_id, NewMessage(role=Role.USER, content="x" * 20_000))
    path = f"/api/v1/sessions/{session_id}/messages"
    everything = [message async for message in memory.iter_messages(session_id)]
    for param in ("after", "before"):
        indexes: list[int] = []
        edge = -1 if param == "after" else 1_000_000
        while True:
            page = (await as_alice.get(path, params={param: edge})).json()
            numbers = [message["message_index"] for message in page["data"]]
            assert numbers == sorted(numbers) != []
            indexes = indexes + numbers if param == "after" else numbers + indexes
            if not page["has_more"]:
                break
            edge = numbers[-1] if param == "after" else numbers[0]
        assert indexes == [message.message_index for message in everything]
    assert len(everything) > 3


async def test_list_of_large_sessions_is_refused(as_alice: Client, rem: Rem) -> None:
    async with rem.database.connection() as connection:
        await connection.execute(LIMITED_RESULTS)
    for name in ("one", "two"):
        await as_alice.post("/api/v1/sessions", json={"name": name, "system_prompt": "x" * 20_000})
    refused = await as_alice.get("/api/v1/sessions")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "query_limit")
    assert "`limit`" in refused.json()["error"]["message"]
    assert [row["name"] for row in (await as_alice.get("/api/v1/sessions?limit=1")).json()["data"]] == ["two"]


async def test_sessions_are_found_by_name_and_by_what_was_said(as_alice: Client, as_bob: Client, rem: Rem) -> None:
    memory = rem.for_user("alice@example.com").sessions
    boats, cakes = uuid4(), uuid4()
    await memory.append(
        boats, [NewMessage(role=Role.USER, content="My sailing boat is in Aarhus.")], create_session=True
    )
    await memory.append(cakes, [NewMessage(role=Role.USER, content="Carrots, nuts, sugar.")], create_session=True)
    await memory.rename_session(cakes, "Baking 100% rye")
    assert [row["id"] for row in await data(as_alice, "/sessions", q="100% RYE")] == [str(cakes)]
    assert [row["id"] for row in await data(as_alice, "/sessions", q="sailing boat")] == [str(boats)]
    assert len(await data(as_alice, "/sessions", q="  ")) == 2
    assert await data(as_bob, "/sessions", q="sailing boat") == []


async def test_exported_session_can_be_imported(as_alice: Client, as_bob: Client, session_id: UUID, rem: Rem) -> None:
    path = f"/api/v1/sessions/{session_id}/export"
    exported = await as_alice.get(path)
    assert exported.headers["content-disposition"] == f'attachment; filename="session-{session_id}.jsonl"'
    assert (await as_bob.get(path)).status_code == 404
    report = await import_sessions(rem.for_user("carol@example.com").sessions, exported.content.splitlines())
    assert (report.counts["imported"], report.messages) == (1, 5)


async def test_started_over_session_keeps_its_messages(as_alice: Client, session_id: UUID) -> None:
    assert (await as_alice.post(f"/api/v1/sessions/{session_id}/start-over")).json() == {"left_out": 5}
    assert len(await data(as_alice, f"/sessions/{session_id}/messages")) == 5


async def test_clone_has_the_same_messages_and_is_independent(as_alice: Client, session_id: UUID) -> None:
    copy = (await as_alice.post(f"/api/v1/sessions/{session_id}/clone")).json()
    short = (await as_alice.post(f"/api/v1/sessions/{session_id}/clone", json={"name": "Short", "up_to": 1})).json()
    contents = [message["content"] for message in await data(as_alice, f"/sessions/{session_id}/messages")]
    assert [message["content"] for message in await data(as_alice, f"/sessions/{copy['id']}/messages")] == contents
    assert (short["name"], short["message_count"]) == ("Short", 2)
    await as_alice.post(f"/api/v1/sessions/{copy['id']}/clear")
    assert len(await data(as_alice, f"/sessions/{session_id}/messages")) == 5


async def test_shared_session_is_read_only_for_its_reader(as_alice: Client, as_bob: Client, session_id: UUID) -> None:
    path = f"/api/v1/sessions/{session_id}"
    shared = await as_alice.post(f"{path}/share", json={"user": "bob@example.com"})
    assert shared.status_code == 200
    # Sharing again changes nothing.
    assert (await as_alice.post(f"{path}/share", json={"user": " Bob@Example.com"})).json() == shared.json()
    assert [row["shared_with_user_id"] for row in await data(as_alice, f"/sessions/{session_id}/share")] == [
        shared.json()["shared_with_user_id"]
    ]

    assert [row["id"] for row in await data(as_bob, "/shared-with-me")] == [str(session_id)]
    assert await data(as_bob, "/sessions") == []
    messages = await data(as_bob, f"/sessions/{session_id}/messages")
    assert messages == await data(as_alice, f"/sessions/{session_id}/messages")
    for name in (messages[0]["id"], messages[0]["key"]):
        assert (await as_bob.get(f"/api/v1/messages/{name}")).json() == messages[0]
    copy = (await as_bob.post(f"{path}/clone")).json()
    assert len(await data(as_bob, f"/sessions/{copy['id']}/messages")) == 5

    for refused in (
        await as_bob.patch(path, json={"name": "Mine"}),
        await as_bob.delete(path),
        await as_bob.post(f"{path}/clear"),
        await as_bob.post(f"{path}/start-over"),
        await as_bob.post(f"{path}/share", json={"user": "carol@example.com"}),
        await as_bob.get(f"{path}/share"),
        await as_bob.delete(f"{path}/share/bob@example.com"),
        await as_bob.delete(f"/api/v1/messages/{messages[0]['id']}"),
        await as_bob.patch(f"/api/v1/messages/{messages[0]['id']}", json={"important": True}),
    ):
        assert refused.status_code == 404

    assert (await as_alice.delete(f"{path}/share/bob@example.com")).status_code == 204
    assert (await as_alice.delete(f"{path}/share/bob@example.com")).status_code == 404
    assert await data(as_bob, "/shared-with-me") == []
    assert (await as_bob.get(path)).status_code == 404
    assert (await as_bob.get(f"/api/v1/messages/{messages[0]['id']}")).status_code == 404


async def test_session_of_another_user_is_not_found(as_bob: Client, anyone: Client, session_id: UUID) -> None:
    path = f"/api/v1/sessions/{session_id}"
    for client in (as_bob, anyone):
        for answer in (
            await client.get(path),
            await client.get(f"{path}/messages"),
            await client.get(f"/api/v1/messages/session-{session_id}-msg-0"),
            await client.patch(path, json={"name": "Mine"}),
            await client.delete(path, params={"erase": True}),
            await client.post(f"{path}/clear"),
            await client.post(f"{path}/start-over"),
            await client.post(f"{path}/share", json={"user": "carol@example.com"}),
            await client.post("/api/v1/feedback", json={"session_id": str(session_id), "rating": 1}),
        ):
            assert answer.status_code == 404
            assert "Hello" not in answer.text
    assert (await as_bob.post(f"{path}/clone")).status_code == 404


async def test_anonymous_caller_owns_the_session_whose_id_it_knows(anyone: Client, as_alice: Client) -> None:
    session = (await anyone.post("/api/v1/sessions")).json()
    said = {"input": "demo", "session_id": session["id"]}
    assert (await anyone.post("/api/v1/agents/simulator/run", json=said)).status_code == 200
    message, *_ = await data(anyone, f"/sessions/{session['id']}/messages")
    assert (await anyone.get(f"/api/v1/messages/{message['key']}")).json() == message
    assert (await as_alice.get(f"/api/v1/sessions/{session['id']}")).status_code == 404
    assert (await anyone.get(f"/api/v1/sessions/{uuid4()}")).status_code == 404
    # Whose they are is not known, so there is nothing to list and nobody to give a copy to.
    assert (await anyone.get("/api/v1/sessions")).status_code == 400
    assert (await anyone.post(f"/api/v1/sessions/{session['id']}/clone")).status_code == 400
    assert (await anyone.delete(f"/api/v1/sessions/{session['id']}")).status_code == 204


@pytest.mark.parametrize("name", ["", "---", "a\0b", "x" * 2000])
async def test_session_name_without_a_key_is_refused(as_alice: Client, session_id: UUID, name: str) -> None:
    for refused in (
        await as_alice.post("/api/v1/sessions", json={"name": name}),
        await as_alice.patch(f"/api/v1/sessions/{session_id}", json={"name": name}),
        await as_alice.post(f"/api/v1/sessions/{session_id}/clone", json={"name": name}),
    ):
        assert refused.status_code == 422
        assert refused.json()["error"]["param"] == "name"


async def test_session_names_are_unique_per_user(as_alice: Client, as_bob: Client, session_id: UUID) -> None:
    await as_alice.post("/api/v1/sessions", json={"name": "Launch"})
    assert (await as_alice.patch(f"/api/v1/sessions/{session_id}", json={"name": "launch"})).status_code == 409
    assert (await as_bob.post("/api/v1/sessions", json={"name": "Launch"})).status_code == 201


@pytest.mark.parametrize(
    "name",
    [
        "550e8400-e29b-41d4-a716-446655440000",
        "550E8400E29B41D4A716446655440000",
        " 550e8400-e29b-41d4-a716-446655440000 ",
        "{550e8400-e29b-41d4-a716-446655440000}",
        "urn:uuid:550e8400-e29b-41d4-a716-446655440000",
        "550e8400_e29b 41d4\u200b-a716-446655440000",
        "５５０e8400-e29b-41d4-a716-446655440000",
    ],
)
async def test_session_is_not_named_with_a_uuid(as_alice: Client, rem: Rem, session_id: UUID, name: str) -> None:
    entity = await as_alice.get(f"/api/v1/entities/sessions/{session_id}")
    for refused in (
        await as_alice.post("/api/v1/sessions", json={"name": name}),
        await as_alice.patch(f"/api/v1/sessions/{session_id}", json={"name": name}),
        await as_alice.post(f"/api/v1/sessions/{session_id}/clone", json={"name": name}),
        await as_alice.post("/api/v1/entities/sessions", json={"name": name}),
        await as_alice.patch(f"/api/v1/entities/sessions/{session_id}", json={"name": name}),
    ):
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "session_name"), refused.text
    assert (await as_alice.get(f"/api/v1/entities/sessions/{session_id}")).json() == entity.json()
    memory = rem.for_user("alice@example.com").sessions
    with pytest.raises(SessionNameError):
        await memory.create_session(name=name)
    with pytest.raises(SessionNameError):
        await memory.rename_session(session_id, name)
    with pytest.raises(SessionNameError):
        await memory.clone_session(session_id, name=name)
    assert [session.id for session in await memory.list_sessions()] == [session_id]


async def test_uuid_in_the_header_is_the_id(as_alice: Client, as_bob: Client) -> None:
    chosen = str(uuid4())
    body = {"messages": [{"role": "user", "content": "Hello"}]}
    for header in (chosen, chosen.upper(), chosen.replace("-", ""), f"{{{chosen}}}"):
        answer = await as_alice.post("/v1/chat/completions", json=body, headers={"X-Session-Id": header})
        assert (answer.status_code, answer.headers["x-session-id"]) == (200, chosen)
    (session,) = await data(as_alice, "/sessions")
    assert (session["id"], session["name"], session["message_count"]) == (chosen, None, 8)
    assert (await as_alice.get(f"/api/v1/sessions/{chosen}")).json()["id"] == chosen
    created = await as_alice.post("/api/v1/sessions", json={"id": str(uuid4()), "name": "550e8400 is no id"})
    assert created.status_code == 201
    taken = await as_bob.post("/v1/chat/completions", json=body, headers={"X-Session-Id": chosen})
    assert taken.status_code == 404
