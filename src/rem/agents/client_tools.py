"""Tools of the client: offer them to the model, and pass its calls on to the client, which carries them out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
from pydantic_ai import ExternalToolset, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from rem.agents.chat import AgentRequest, ClientMessage, ClientTool, ClientToolCall
from rem.agents.json_safe import to_json_safe
from rem.agents.schema import AgentSchema
from rem.errors import InvalidInputError

_CALL_ID = re.compile(r"^call_(?P<session>[0-9a-f]{32})_(?P<call>.+)$", re.DOTALL)
"""The id of a call as the client gets it: with the session, where the turn goes on with the result."""
_RESULT_MISSING = "The client sent no result."


def check_client_tools(request: AgentRequest, schema: AgentSchema) -> None:
    """Raise InvalidInputError if the client's tools, or its messages about them, cannot be given to a model."""
    names = [tool.name for tool in request.client_tools]
    if len(set(names)) < len(names):
        raise InvalidInputError("tools: two of them have the same name; rename one.")
    if names and (request.output_schema is not None or schema.structured_output):
        raise InvalidInputError("tools: cannot be combined with a structured answer; leave out the one or the other.")
    exchange_to_messages([message for message in request.client_history if is_tool_exchange(message)])
    exchange_to_messages(request.tool_exchange)
    if request.tool_choice not in ("auto", "required", *names):
        raise InvalidInputError(f"tool_choice: there is no tool {request.tool_choice!r} in tools.")


def hide_shadowed_tools(schema: AgentSchema, tools: Sequence[ClientTool]) -> AgentSchema:
    """Return the agent without the tools whose names the client uses for its own: the client means its own."""
    names = {tool.name for tool in tools}
    if names.isdisjoint(schema.tool_names):
        return schema
    return schema.model_copy(update={"tools": [tool for tool in schema.tools if tool.name not in names]})


def make_toolset(tools: Iterable[ClientTool]) -> ExternalToolset[Any]:
    """Return the client's tools for the library, which ends a run at a call of one of them."""
    return ExternalToolset(
        [
            ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters))
            for tool in tools
        ]
    )


@dataclass
class FirstToolChoice(AbstractCapability[Any]):
    """Makes the model call one of these tools first. Later it is free to answer."""

    names: list[str]

    def get_model_settings(self) -> Callable[[RunContext[Any]], ModelSettings]:
        """Return the settings of a step."""
        return lambda run: ModelSettings(tool_choice=self.names) if run.run_step <= 1 else ModelSettings()


def list_first_tools(request: AgentRequest) -> list[str]:
    """Return the tools of which the model must call one first; none if it is free, or if it has called one."""
    if request.tool_choice == "auto" or request.tool_exchange:
        return []
    names = [tool.name for tool in request.client_tools]
    return names if request.tool_choice == "required" else [request.tool_choice]


def to_client_call(call: ToolCallPart, session_id: str | None) -> ClientToolCall:
    """Return a call as the client gets it."""
    call_id = to_json_safe(call.tool_call_id)
    if session_id is not None:
        call_id = f"call_{UUID(session_id).hex}_{call_id}"
    return ClientToolCall(call_id, to_json_safe(call.tool_name), to_json_safe(call.args_as_json_str()))


def find_session_id(exchange: Iterable[ClientMessage]) -> str | None:
    """Return the session that the ids of the client's calls name; None if they name none."""
    matches = (_CALL_ID.match(message.tool_call_id or "") for message in exchange)
    return next((str(UUID(match["session"])) for match in matches if match), None)


def find_call_id(client_call_id: str) -> str:
    """Return the id that the model gave to a call, which is stored in the session."""
    match = _CALL_ID.match(client_call_id)
    return match["call"] if match else client_call_id


def exchange_to_messages(exchange: Sequence[ClientMessage]) -> list[ModelMessage]:
    """Return calls of client tools and their results as messages for the model.

    Every call gets a result, because providers reject a call without one. Raise InvalidInputError for a result of no
    call, and for arguments that are no JSON object.
    """
    results = {message.tool_call_id: message.content for message in exchange if message.role == "tool"}
    messages: list[ModelMessage] = []
    for message in exchange:
        if message.role != "assistant":
            continue
        text = [TextPart(message.content)] if message.content.strip() else []
        calls = [ToolCallPart(call.name, _parse_arguments(call), call.id) for call in message.tool_calls]
        messages.append(ModelResponse(parts=[*text, *calls]))
        returns = [
            ToolReturnPart(call.name, results.pop(call.id, _RESULT_MISSING), call.id) for call in message.tool_calls
        ]
        if returns:
            messages.append(ModelRequest(parts=returns))
    if results:
        raise InvalidInputError(f"messages: no message before has the tool call {next(iter(results))!r}.")
    return messages


def is_tool_exchange(message: ClientMessage) -> bool:
    """Return whether a message has calls of client tools, or the result of one."""
    return message.role == "tool" or bool(message.tool_calls)


def _parse_arguments(call: ClientToolCall) -> dict[str, Any]:
    try:
        arguments = orjson.loads(call.arguments or "{}")
    except orjson.JSONDecodeError as error:
        raise InvalidInputError(f"messages: the arguments of the call {call.id!r} are not JSON.") from error
    if not isinstance(arguments, dict):
        raise InvalidInputError(f"messages: the arguments of the call {call.id!r} are not a JSON object.")
    return arguments
