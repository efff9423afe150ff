"""Through MCP, the client asks its user before anything is forgotten. Otherwise a person confirms with a command."""

from __future__ import annotations

from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult

from rem import Rem
from rem.mcp.server import create_mcp
from rem.models import Resource
from tests.tools.tool_env import env_for

ALICE = "alice@example.com"


def client_of(rem: Rem, *, answer: Any = None, can_ask: bool = True, shown: list[str] | None = None) -> Client[Any]:
    """Return a client whose user gives the answer; None means that the client cannot ask."""

    async def ask(message: str, response_type: Any, *_: Any) -> Any:
        if shown is not None:
            shown.append(message)
        return answer if isinstance(answer, ElicitResult) else response_type(value=answer)

    handler = None if answer is None else ask
    # The newest protocol has no questions of the server to the client.
    return Client(create_mcp(lambda: env_for(rem, ALICE), can_ask=can_ask), elicitation_handler=handler, mode="legacy")


@pytest.mark.parametrize(
    ("answer", "status", "left"),
    [
        (True, "success", 0),
        (False, "rejected", 1),
        (ElicitResult(action="decline"), "rejected", 1),
        (ElicitResult(action="cancel"), "rejected", 1),
        (None, "needs_confirmation", 1),
    ],
)
async def test_the_client_asks_its_user(rem: Rem, answer: Any, status: str, left: int) -> None:
    shown: list[str] = []
    await rem.remember("My code word is heliotrope.", user=ALICE)
    async with client_of(rem, answer=answer, shown=shown) as client:
        result = (await client.call_tool("forget", {"what": "my code word"})).data
    assert result["status"] == status
    assert await rem.store(ALICE).count(Resource) == left
    assert all("“My code word is heliotrope.”" in text for text in shown)
    assert bool(shown) is (answer is not None)


async def test_a_person_confirms_with_a_command_if_the_transport_cannot_ask(rem: Rem) -> None:
    await rem.remember("My code word is heliotrope.", user=ALICE)
    async with client_of(rem, answer=True, can_ask=False) as client:
        result = (await client.call_tool("forget", {"what": "my code word"})).data
        assert result["status"] == "needs_confirmation"
        assert f"rem forget --confirm {result['code']}" in result["next"]
        assert "“My code word is heliotrope.”" in result["preview"]
        (row,) = result["rows"]
        assert (row["table"], row["text"]) == ("resources", "My code word is heliotrope.")
        missing = (await client.call_tool("correct", {"what": "my hotel", "to": "My hotel is the Ritz."})).data
        assert missing["status"] == "not_found"
    assert await rem.store(ALICE).count(Resource) == 1
