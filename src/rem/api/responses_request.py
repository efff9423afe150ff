"""The body of OpenAI's newer protocol, `/responses`, translated into the body of a chat completion."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rem.api.chat_request import (
    MAX_CALL_ID_CHARS,
    MAX_MESSAGE_CHARS,
    MAX_TOOL_DESCRIPTION_CHARS,
    MAX_TOOL_NAME_CHARS,
    MAX_TOOLS,
    ChatRequest,
)
from rem.errors import InvalidInputError

MAX_ITEMS = 10_000


class _LenientModel(BaseModel):
    model_config = ConfigDict(extra="ignore")


class InputText(_LenientModel):
    """A part of a message: text."""

    type: Literal["input_text", "output_text", "text"]
    text: str = Field(max_length=MAX_MESSAGE_CHARS)


class InputMessage(_LenientModel):
    """A message of the conversation."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, Field(max_length=MAX_MESSAGE_CHARS)] | list[InputText]

    def to_chat(self) -> dict[str, Any]:
        """Return it as a message of a chat completion."""
        content = self.content if isinstance(self.content, str) else "\n".join(part.text for part in self.content)
        return {"role": self.role, "content": content}


class InputFunctionCall(_LenientModel):
    """A call of a tool of the client."""

    type: Literal["function_call"]
    call_id: str = Field(min_length=1, max_length=MAX_CALL_ID_CHARS)
    name: str = Field(min_length=1, max_length=MAX_TOOL_NAME_CHARS)
    arguments: str = Field(default="{}", max_length=MAX_MESSAGE_CHARS)

    def to_chat(self) -> dict[str, Any]:
        """Return it as a message of a chat completion."""
        function = {"name": self.name, "arguments": self.arguments}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": self.call_id, "type": "function", "function": function}],
        }


class InputFunctionOutput(_LenientModel):
    """The result of a call."""

    type: Literal["function_call_output"]
    call_id: str = Field(min_length=1, max_length=MAX_CALL_ID_CHARS)
    output: Annotated[str, Field(max_length=MAX_MESSAGE_CHARS)] | list[InputText]

    def to_chat(self) -> dict[str, Any]:
        """Return it as a message of a chat completion."""
        output = self.output if isinstance(self.output, str) else "\n".join(part.text for part in self.output)
        return {"role": "tool", "tool_call_id": self.call_id, "content": output}


class InputReasoning(_LenientModel):
    """Reasoning of an earlier response, which clients send back. It is not used."""

    type: Literal["reasoning"]


class FunctionTool(_LenientModel):
    """A tool that the client carries out."""

    type: Literal["function"]
    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str | None = Field(default=None, max_length=MAX_TOOL_DESCRIPTION_CHARS)
    parameters: dict[str, Any] | None = None


class NamedTool(_LenientModel):
    """The tool that the agent must call first."""

    type: Literal["function"]
    name: str


class TextFormat(_LenientModel):
    """The format of the answer."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = "answer"
    json_schema: dict[str, Any] = Field(alias="schema", default_factory=dict)


class TextOptions(_LenientModel):
    """Options of the text."""

    format: TextFormat | None = None


class ReasoningOptions(_LenientModel):
    """Options of the reasoning."""

    effort: Literal["minimal", "low", "medium", "high"] | None = None


InputItem = InputFunctionCall | InputFunctionOutput | InputReasoning | InputMessage


class ResponsesRequest(BaseModel):
    """A request for a response. Parameters that cannot reach the model are refused by name."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"examples": [{"model": "rem", "input": "Who is Sarah Chen?"}]}
    )

    model: str = Field(default="rem", min_length=1, max_length=200, description="`rem`: the configured default")
    input: (
        Annotated[str, Field(max_length=MAX_MESSAGE_CHARS)]
        | Annotated[list[InputItem], Field(min_length=1, max_length=MAX_ITEMS)]
    )
    instructions: str | None = Field(default=None, max_length=MAX_MESSAGE_CHARS)
    previous_response_id: str | None = Field(
        default=None, max_length=200, description="the response whose session goes on"
    )
    store: bool | None = Field(
        default=None, strict=True, description="`false`: nothing of the turn is stored; default: a session stores it"
    )
    stream: bool = False
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    max_output_tokens: int | None = Field(default=None, ge=1)
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    tools: list[FunctionTool] | None = Field(default=None, max_length=MAX_TOOLS)
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = None
    user: str | None = None
    metadata: dict[str, str] | None = Field(default=None, max_length=16, description="returned as it is")
    include: list[str] | None = None
    truncation: str | None = None

    @model_validator(mode="after")
    def _refuse_unknown_parameters(self) -> ResponsesRequest:
        unknown = sorted(name for name, value in (self.model_extra or {}).items() if value not in (None, False, [], {}))
        if unknown:
            raise ValueError(f"{unknown[0]}: is not supported; leave it out")
        return self

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Return the input as messages of a chat completion."""
        if isinstance(self.input, str):
            return [{"role": "user", "content": self.input}]
        return _join_calls([item.to_chat() for item in self.input if not isinstance(item, InputReasoning)])

    def to_chat_request(self, messages: list[dict[str, Any]]) -> ChatRequest:
        """Return the chat completion with these messages and all other parameters of this request."""
        instructions = [{"role": "developer", "content": self.instructions}] if self.instructions else []
        body = {
            "model": self.model,
            "messages": [*instructions, *messages],
            "stream": self.stream,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_completion_tokens": self.max_output_tokens,
            "parallel_tool_calls": self.parallel_tool_calls,
            "reasoning_effort": self.reasoning.effort if self.reasoning else None,
            "response_format": self._make_format(),
            "tools": self._make_tools(),
            "tool_choice": self._make_choice(),
            "store": self.store,
            "user": self.user,
        }
        try:
            return ChatRequest.model_validate(body)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise InvalidInputError(f"input: {first['msg']}") from error

    def _make_format(self) -> dict[str, Any] | None:
        wanted = self.text.format if self.text else None
        if wanted is None or wanted.type == "text":
            return None
        return {"type": wanted.type, "json_schema": {"name": wanted.name, "schema": wanted.json_schema}}

    def _make_tools(self) -> list[dict[str, Any]] | None:
        return [
            {"type": "function", "function": tool.model_dump(exclude={"type"}, exclude_none=True)}
            for tool in self.tools or ()
        ] or None

    def _make_choice(self) -> Any:
        if isinstance(self.tool_choice, NamedTool):
            return {"type": "function", "function": {"name": self.tool_choice.name}}
        return self.tool_choice


def _join_calls(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with calls in a row as one message, which is what a model wrote."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        if joined and message.get("tool_calls") and joined[-1]["role"] == "assistant":
            joined[-1] = {**joined[-1], "tool_calls": [*joined[-1].get("tool_calls", ()), *message["tool_calls"]]}
        else:
            joined.append(message)
    return joined
