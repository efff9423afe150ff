"""A session has the same name in chat, in the API and on the command line."""

from __future__ import annotations

from tests.api.chat.conftest import Chat
from tests.scripted_model import last_text

HI = {"messages": [{"role": "user", "content": "Hi"}]}


def ask(chat: Chat, session: str) -> str:
    with chat.http() as http:
        answer = http.post("/v1/chat/completions", json=HI, headers={"X-Session-Id": session})
        assert answer.status_code == 200, answer.text
        return str(answer.headers["x-session-id"])


def test_session_header_becomes_the_name(chat: Chat) -> None:
    session = ask(chat, "Trip to Rome")
    with chat.http() as http:
        assert [row["name"] for row in http.get("/api/v1/sessions").json()["data"]] == ["Trip to Rome"]
        for name in ("Trip to Rome", "trip-to-rome", session):
            assert http.get(f"/api/v1/sessions/{name}").json()["id"] == session


def test_renamed_session_continues_under_its_new_name(chat: Chat) -> None:
    session = ask(chat, "Trip to Rome")
    with chat.http() as http:
        assert http.patch("/api/v1/sessions/Trip to Rome", json={"name": "Rome 2026"}).status_code == 200
        assert ask(chat, "Rome 2026") == session
        assert http.get("/api/v1/sessions/Rome 2026").json()["id"] == session
        assert http.post("/api/v1/sessions/Rome 2026/share", json={"user": "bob"}).status_code in (200, 201)
        assert http.delete("/api/v1/sessions/Rome 2026/share/bob").status_code in (200, 204)
        assert len(http.get("/api/v1/sessions").json()["data"]) == 1


def test_session_created_with_a_name_is_found_by_it(chat: Chat) -> None:
    with chat.http() as http:
        made = http.post("/api/v1/sessions", json={"name": "Fresh start"}).json()
    assert ask(chat, "fresh start") == made["id"]


def test_agent_without_lookup_gets_its_full_long_answer(chat: Chat) -> None:
    long = "A poem with many lines. " * 60
    chat.model.script = lambda body: [long] if last_text(body) == "Hi" else ["Shorter."]
    yaml = "type: object\ndescription: You are a poet.\njson_schema_extra: {kind: agent, name: poet}"
    with chat.http() as http:
        http.post("/api/v1/agents", content=yaml, headers={"Content-Type": "application/yaml"})
        headers = {"X-Session-Id": "poems", "X-Agent-Schema": "poet"}
        http.post("/v1/chat/completions", json=HI, headers=headers)
        http.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": "Make it shorter"}]}, headers=headers
        )
    sent = chat.model.requests[-1]["messages"]
    assert [message["content"] for message in sent if message["role"] == "assistant"] == [long]
    assert "LOOKUP" not in str(sent)
