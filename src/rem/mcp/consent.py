"""Let an MCP client ask its user for consent: by a question of the server, or, in newer protocols, by a second call.

In protocols with a handshake the server sends a question (`ask_user`), if the transport has a way back. In newer ones a
result says that input is required; the client asks its user and calls the tool again with the answer. That needs no
state in the server, because the request is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_context
from fastmcp.server.elicitation import AcceptedElicitation
from fastmcp.server.middleware import Middleware
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from mcp.shared.exceptions import MCPError
from mcp_types import (
    ClientCapabilities,
    ElicitationCapability,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from rem.approvals.cards import CARD_PREFIX, parse_card_id
from rem.errors import ConflictError, RemError
from rem.tools.approved_calls import carry_out
from rem.tools.consent import FROM_CLIENT, Decision
from rem.tools.env import ToolEnv

if TYPE_CHECKING:
    from fastmcp.server.context import Context
    from fastmcp.server.middleware import CallNext, MiddlewareContext

    from rem.models import Approval
    from rem.tools.binding import EnvSource

_ANSWER = "approve"


async def ask_user(text: str, _approval: Approval) -> bool | None:
    """Let the client show a text to its user, and return whether the user agrees; None if the client cannot ask."""
    context = get_context()
    if not _can_ask(context):
        return None
    try:
        answer = await context.elicit(f"{text}\n\nDo this?", bool)
    except (ToolError, MCPError):
        return None
    return isinstance(answer, AcceptedElicitation) and answer.data is True


class ConsentMiddleware(Middleware):
    """Turns the result of a call that needs consent into a question, and carries out the answer to it."""

    def __init__(self, env_of: EnvSource) -> None:
        self._env_of = env_of

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Run a tool, or carry out the user's answer to the question about it."""
        client = context.fastmcp_context
        if client is None or not _is_modern(client):
            return await call_next(context)
        for name, answer in (client.input_responses or {}).items():
            approval_id = parse_card_id(name)
            if approval_id is not None and isinstance(answer, ElicitResult):
                return await self._decide(context, approval_id, answer)
        result = await call_next(context)
        found = result.structured_content if isinstance(result, ToolResult) else None
        if found is None or found.get("status") != "needs_approval" or not _can_ask(client):
            return result
        return _make_question(found["approval_id"], found["preview"])

    async def _decide(self, context: MiddlewareContext[Any], approval_id: UUID, answer: ElicitResult) -> ToolResult:
        provided = self._env_of()
        env = provided if isinstance(provided, ToolEnv) else await provided
        try:
            result = await _carry_out_answer(env, context.message, approval_id, answer)
        except RemError as error:
            raise ToolError(str(error)) from error
        return ToolResult(structured_content=result)


async def _carry_out_answer(env: ToolEnv, call: Any, approval_id: UUID, answer: ElicitResult) -> dict[str, Any]:
    approvals = env.rem.for_user(env.scope).approvals
    approval = await approvals.get(approval_id)
    given = {name: value for name, value in (call.arguments or {}).items() if value is not None}
    if approval.session_id is not None or (approval.tool_name, approval.parameters) != (call.name, given):
        raise ConflictError("This answer belongs to another question, or the request has ended: call the tool again.")
    if answer.action == "accept" and _get_content(answer).get(_ANSWER) is True:
        return await carry_out(env, approval, Decision(is_approved=True, by=FROM_CLIENT))
    await approvals.reject(approval, by=FROM_CLIENT)
    return {"status": "rejected", "changed": False}


def _make_question(approval_id: str, preview: str) -> InputRequiredToolResult:
    schema = {
        "type": "object",
        "properties": {_ANSWER: {"type": "boolean", "title": "Do this?"}},
        "required": [_ANSWER],
    }
    params = ElicitRequestFormParams(message=f"{preview}\n\nDo this?", requested_schema=schema)
    # The name of the question comes back with its answer, to any process.
    questions = {f"{CARD_PREFIX}{approval_id}": ElicitRequest(params=params)}
    return InputRequiredToolResult(InputRequiredResult(input_requests=questions))


def _can_ask(context: Context) -> bool:
    return context.session.check_client_capability(ClientCapabilities(elicitation=ElicitationCapability()))


def _is_modern(context: Context) -> bool:
    request = context.request_context
    return request is not None and request.protocol_version in MODERN_PROTOCOL_VERSIONS


def _get_content(answer: ElicitResult) -> Mapping[str, Any]:
    return answer.content or {}
