"""Concurrent streams stay separate, and concurrent requests on one session are all stored."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import orjson

from tests.api.chat.conftest import Chat
from tests.scripted_model import Call, Step, has_result, last_text


def echoing(body: dict[str, Any]) -> list[Step]:
    """Looks up what the user asks for, and repeats what was found."""
    if has_result(body):
        tool_result = body["messages"][-1]["content"]
        return [
            "found ",
            *(word for word in tool_result.split('"') if word.startswith("secret of")),
            f" for {last_text(body)}",
        ]
    return [Call("search_rem", {"query": 'LOOKUP "my-note"'}, f"call-{last_text(body)}")]


async def test_hundred_streams_of_twenty_users_stay_separate(chat: Chat) -> None:
    chat.model.script = echoing
    users = [f"{chat.user}-{number}" for number in range(20)]
    async with httpx.AsyncClient(base_url=chat.address, timeout=120) as http:
        for user in users:
            made = await http.post(
                "/api/v1/entities/resources",
                json={"name": "My note", "content": f"secret of {user}"},
                headers={"X-User-Id": user},
            )
            assert made.status_code == 201

        async def ask(user: str, session: str, number: int) -> None:
            marker = f"{user}:{number}"
            body = {"messages": [{"role": "user", "content": marker}], "stream": True}
            answer = await http.post(
                "/v1/chat/completions", json=body, headers={"X-User-Id": user, "X-Session-Id": session}
            )
            assert answer.status_code == 200
            assert answer.text.endswith("data: [DONE]\n\n")
            blocks = [orjson.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: {")]
            text = "".join(block["choices"][0]["delta"].get("content") or "" for block in blocks)
            assert text == f"found secret of {user} for {marker}"
            calls = [block["tool_id"] for block in blocks if block.get("type") == "tool_call"]
            assert calls == [f"call-{marker}"] * 2
            assert not [block for block in blocks if block.get("type") == "error"]

        sessions = {user: [str(uuid4()) for _ in range(5)] for user in users}
        await asyncio.gather(*(ask(user, sessions[user][number], number) for number in range(5) for user in users))
        for user in users:
            for number, session in enumerate(sessions[user]):
                stored = await http.get(f"/api/v1/sessions/{session}/messages", headers={"X-User-Id": user})
                contents = [message["content"] for message in stored.json()["data"]]
                assert contents == [f"{user}:{number}", "", f"found secret of {user} for {user}:{number}"]


async def test_concurrent_requests_on_one_session_are_stored_in_order(chat: Chat) -> None:
    chat.model.script = lambda body: [f"re {last_text(body)}"]
    session = str(uuid4())
    async with httpx.AsyncClient(base_url=chat.address, headers=chat.headers, timeout=60) as http:
        questions = [f"question {number}" for number in range(10)]
        answers = await asyncio.gather(
            *(
                http.post(
                    "/v1/chat/completions",
                    json={"messages": [{"role": "user", "content": text}], "stream": bool(number % 2)},
                    headers={"X-Session-Id": session},
                )
                for number, text in enumerate(questions)
            )
        )
        for answer in answers:
            assert answer.status_code == 200, answer.text
        stored = (await http.get(f"/api/v1/sessions/{session}/messages")).json()["data"]
    contents = [message["content"] for message in stored]
    assert sorted(contents) == sorted([*questions, *(f"re {text}" for text in questions)])
    assert [message["message_index"] for message in stored] == list(range(20))
    for text in questions:
        assert contents.index(text) < contents.index(f"re {text}")
