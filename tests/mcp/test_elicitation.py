"""Through MCP, the client asks its user before anything is forgotten. Otherwise a person decides with a command."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp_types import ElicitResult as ElicitAnswer

from rem import Rem
from rem.api.main import create_app
from rem.mcp.server import create_mcp
from rem.models import Resource
from rem.settings import Settings
from tests.api.live_server import served
from tests.rem_command import REM, environment
from tests.tools.tool_env import env_for

ALICE = "alice@example.com"
MODES = ["legacy", "auto"]
"""With a handshake the server asks; in the newest protocol the result of a call is the question."""


class User:
    """The person at an MCP client. None as the answer means that the client cannot ask."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.shown: list[str] = []

    async def ask(self, message: str, response_type: Any, *_: Any) -> Any:
        self.shown.append(message)
        if isinstance(self.answer, ElicitResult):
            return self.answer
        (name,) = response_type.__annotations__
        return response_type(**{name: self.answer})

    def client(self, target: Any, mode: str) -> Client[Any]:
        return Client(target, elicitation_handler=None if self.answer is None else self.ask, mode=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("answer", "status", "left"),
    [
        (True, "success", 0),
        (False, "rejected", 1),
        (ElicitResult(action="decline"), "rejected", 1),
        (ElicitResult(action="cancel"), "rejected", 1),
        (None, "needs_approval", 1),
    ],
)
async def test_the_client_asks_its_user(rem: Rem, answer: Any, status: str, left: int, mode: str) -> None:
    user = User(answer)
    await rem.for_user(ALICE).remember("My code word is heliotrope.")
    async with user.client(create_mcp(lambda: env_for(rem, ALICE), can_ask=True), mode) as client:
        result = (await client.call_tool("forget", {"what": "my code word"})).structured_content
    assert result is not None
    assert result["status"] == status
    assert await rem.for_user(ALICE).store.count(Resource) == left
    assert all("“My code word is heliotrope.”" in text for text in user.shown)
    assert bool(user.shown) is (answer is not None)
    (approval,) = await rem.for_user(ALICE).approvals.list()
    decided = {"success": "approved", "rejected": "rejected", "needs_approval": "pending"}
    assert approval.status == decided[status]


async def test_a_person_decides_with_a_command_if_the_transport_cannot_ask(rem: Rem) -> None:
    await rem.for_user(ALICE).remember("My code word is heliotrope.")
    async with User(True).client(create_mcp(lambda: env_for(rem, ALICE)), "legacy") as client:
        result = (await client.call_tool("forget", {"what": "my code word"})).data
        assert result["status"] == "needs_approval"
        assert f"rem approvals approve {result['code']}" in result["next"]
        assert f"/api/v1/approvals/{result['approval_id']}/decision" in result["next"]
        assert "“My code word is heliotrope.”" in result["preview"]
        (row,) = result["rows"]
        assert (row["table"], row["text"]) == ("resources", "My code word is heliotrope.")
        missing = (await client.call_tool("correct", {"what": "my hotel", "to": "My hotel is the Ritz."})).data
        assert missing["status"] == "not_found"
    assert await rem.for_user(ALICE).store.count(Resource) == 1


async def test_an_answer_to_another_question_decides_nothing(rem: Rem) -> None:
    """The name of a question comes back from the client, which may name another request of the same user."""
    await rem.for_user(ALICE).remember("My code word is heliotrope.")
    await rem.for_user(ALICE).remember("My sign is Leo.")
    request = await rem.for_user(ALICE).changes.request_forget("code word")
    in_chat = await rem.for_user(ALICE).changes.request_forget("sign", session_id=uuid4())
    async with User(True).client(create_mcp(lambda: env_for(rem, ALICE)), "auto") as client:
        for asked in (request, in_chat):
            answers = {f"approval-{asked.approval.id}": ElicitAnswer(action="accept", content={"approve": True})}
            result = await client.session.call_tool("forget", {"what": "my sign"}, input_responses=answers)
            assert result.is_error
            assert "another question" in str(result.content)
    assert await rem.for_user(ALICE).store.count(Resource) == 2


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("mode", MODES)
async def test_a_real_process_on_standard_input_and_output(rem: Rem, dsn: str, mode: str) -> None:
    await rem.for_user(ALICE).remember("My code word is heliotrope.")
    user = User(True)
    settings = environment({"POSTGRES__CONNECTION_STRING": dsn})
    command = StdioTransport(str(REM), ["mcp", "--user", ALICE], settings, keep_alive=False)
    async with user.client(command, mode) as client:
        result = (await client.call_tool("forget", {"what": "my code word"})).structured_content
    assert result is not None
    assert result["status"] == "success"
    assert len(user.shown) == 1
    assert await rem.for_user(ALICE).store.count(Resource) == 0


async def test_the_newest_protocol_asks_over_http(settings: Settings, rem: Rem) -> None:
    await rem.for_user(ALICE).remember("My code word is heliotrope.")
    user = User(True)
    async with served(create_app(settings)) as address:
        transport = StreamableHttpTransport(f"{address}/api/v1/mcp", headers={"X-User-Id": ALICE})
        async with user.client(transport, "auto") as client:
            result = (await client.call_tool("forget", {"what": "my code word"})).structured_content
    assert result is not None
    assert result["status"] == "success"
    assert await rem.for_user(ALICE).store.count(Resource) == 0
