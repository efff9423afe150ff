"""A card of an agent is answered over HTTP: the answer is checked, stored, and given to the agent."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx2 as httpx

from tests.api.chat.conftest import Chat
from tests.api.chat.sse_reader import events_of, named, text_of
from tests.api.chat.test_streaming import save_agent
from tests.scripted_model import Call, Step, has_result, last_text

CARD = {
    "id": "confirm-delete-123",
    "prompt": "Delete it?",
    "actions": [{"id": "confirm", "title": "Delete", "data": {"item": "7"}}, {"id": "cancel", "title": "Cancel"}],
    "inputs": [{"id": "reason", "label": "Reason", "is_required": True}],
}


def ask_for_confirmation(body: dict[str, Any]) -> list[Step]:
    if has_result(body):
        return ["Please confirm."]
    if last_text(body).startswith("Delete\n"):
        return [f"Deleted. You said: {last_text(body)}"]
    return [Call("action", {"type": "elicit", "payload": {"card": CARD}})]


def begin(chat: Chat, http: httpx.Client) -> dict[str, str]:
    """Let an agent show the card, and return the headers of its session."""
    save_agent(chat, "asker", "action")
    chat.model.script = ask_for_confirmation
    headers = {"X-Agent-Schema": "asker", "X-Session-Id": str(uuid4())}
    events = events_of(http, {"messages": [{"role": "user", "content": "Delete item 7"}]}, **headers)
    assert named(events, "action_request")[0]["card"]["id"] == CARD["id"]
    return headers


def submit(**changes: Any) -> dict[str, Any]:
    answer = {"card_id": CARD["id"], "action_id": "confirm", "inputs": {"reason": "It is a copy."}, **changes}
    return {"messages": [{"role": "user", "content": ""}], "action_submit": answer}


def test_submitted_answer_is_stored_and_answered(chat: Chat) -> None:
    with chat.http() as http:
        headers = begin(chat, http)
        events = events_of(http, submit(), **headers)
        stored = http.get(f"/api/v1/sessions/{headers['X-Session-Id']}/messages").json()["data"]
        again = http.post("/api/v1/chat/completions", json=submit(), headers=headers)
    assert text_of(events) == "Deleted. You said: Delete\nReason: It is a copy."
    (message,) = [row for row in stored if "action_submit" in row["metadata"]]
    assert (message["role"], message["content"]) == ("user", "Delete\nReason: It is a copy.")
    assert message["metadata"]["action_submit"] == {
        "card_id": CARD["id"],
        "action_id": "confirm",
        "data": {"item": "7"},
        "inputs": {"reason": "It is a copy."},
    }
    assert (again.status_code, again.json()["error"]["code"]) == (409, "conflict")


def test_wrong_answer_is_refused_and_nothing_is_stored(chat: Chat) -> None:
    with chat.http() as http:
        headers = begin(chat, http)
        path = f"/api/v1/sessions/{headers['X-Session-Id']}"
        before = http.get(path).json()["message_count"]
        for changes, status, reason in (
            ({"inputs": {}}, 400, "reason: is required"),
            ({"inputs": {"reason": "x", "colour": "red"}}, 400, "colour: the card has no such input"),
            ({"action_id": "erase"}, 400, "no action 'erase'"),
            ({"card_id": "another"}, 404, "There is no card 'another'"),
        ):
            refused = http.post("/api/v1/chat/completions", json=submit(**changes), headers=headers)
            assert (refused.status_code, reason in refused.text) == (status, True), refused.text
        other = http.post("/api/v1/chat/completions", json=submit(), headers={"X-Session-Id": str(uuid4())})
        assert other.status_code == 404
        assert http.get(path).json()["message_count"] == before


def test_answer_can_be_stored_without_running_the_agent(chat: Chat) -> None:
    with chat.http() as http:
        headers = begin(chat, http)
        path = f"/api/v1/sessions/{headers['X-Session-Id']}/actions"
        requests = len(chat.model.requests)
        stored = http.post(path, json=submit()["action_submit"])
        assert (stored.status_code, stored.json()["content"]) == (201, "Delete\nReason: It is a copy.")
        assert http.post(path, json=submit()["action_submit"]).status_code == 409
        assert len(chat.model.requests) == requests
    with chat.http("somebody-else") as http:
        assert http.post(path, json=submit()["action_submit"]).status_code == 404
