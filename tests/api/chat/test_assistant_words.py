"""A language model invents an answer. For SEARCH, the chat, tools and dreams of later sessions it is no evidence."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport

from tests.api.chat.conftest import Chat

_INVENTED = "Your sister lives in Turin."
_QUESTION = "Where does my sister live?"


def _tell(chat: Chat, text: str, model: str = "rem") -> str:
    answer = chat.client(**{"X-Session-Id": str(uuid4())}).chat.completions.create(
        model=model, messages=[{"role": "user", "content": text}]
    )
    return answer.choices[0].message.content or ""


def _search(chat: Chat) -> list[dict[str, Any]]:
    with chat.http() as http:
        found = http.post("/api/v1/query", json={"query": f'SEARCH "{_QUESTION}"'})
        found.raise_for_status()
        rows: list[dict[str, Any]] = found.json()["results"]
        return rows


async def test_invented_answer_is_below_what_the_user_said(chat: Chat) -> None:
    chat.model.script = lambda _body: [_INVENTED]
    assert _tell(chat, _QUESTION) == _INVENTED
    _tell(chat, "My sister moved into a house with a green door.")

    rows = _search(chat)
    assert rows[0]["record"]["content"] == "My sister moved into a house with a green door."
    assert next(row.get("said_by") for row in rows if _INVENTED in row["record"]["content"]) == "assistant"
    assert all(
        row.get("said_by") == "assistant" for row in rows[[row.get("said_by") for row in rows].index("assistant") :]
    )

    plain = _tell(chat, _QUESTION, "rem:local")
    assert "green door" in plain
    assert "Turin" not in plain.partition("green door")[0]

    transport = StreamableHttpTransport(f"{chat.address}/api/v1/mcp", headers=chat.headers)
    async with Client(transport) as client:
        for arguments in ({"query": f'SEARCH "{_QUESTION}"'}, {"query": _QUESTION, "mode": "natural-language"}):
            found = (await client.call_tool("search_rem", arguments)).data["results"]
            assert found[0]["text"] == "My sister moved into a house with a green door."
            assert {row.get("said_by") for row in found if "Turin" in row["text"]} == {"assistant"}


async def test_dreams_learn_nothing_from_an_invented_answer(chat: Chat) -> None:
    chat.model.script = lambda _body: ["Your boss is Ottokar Brandl, and you work at Corvenia."]
    _tell(chat, "I baked bread today with my daughter Wilma.")
    with chat.http() as http:
        http.post("/api/v1/dreams", json={}).raise_for_status()
        for table in ("moments", "ontologies", "users"):
            rows = http.post("/api/v1/query", json={"query": f"SELECT * FROM {table}"}).json()["results"]
            assert "Corvenia" not in str(rows)
            assert "Brandl" not in str(rows)
