"""The body of a chat completion, as OpenAI's clients send it, and readable errors for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from rem.agents.chat import AgentRequest, ClientMessage, ClientTool, ClientToolCall
from rem.api.dependencies import JSON_CONTENT_TYPE_MISSING
from rem.context import AgentContext
from rem.errors import InvalidInputError
from rem.sessions.card_answers import CardAnswer

MAX_MESSAGE_CHARS = 2_000_000
"""About 500,000 tokens, more than the context of most models."""
MAX_MESSAGE_PARTS = 1000
MAX_READABLE_ERRORS = 100
"""Errors that are described. A body may have thousands."""
MAX_TOOLS = 128
MAX_TOOL_NAME_CHARS = 200
MAX_TOOL_DESCRIPTION_CHARS = 20_000
MAX_CALL_ID_CHARS = 500
NO_OBJECT_TYPES = ("dict_type", "model_type", "model_attributes_type")
IMAGE_TYPES = ("image_url", "image", "input_image")
ADVICE = {
    "functions": " (use tools)",
    "function_call": " (use tool_choice)",
    "logprobs": " (REM's events do not contain them)",
    "n": " other than 1",
}
"""Explanations for parameters that are refused."""


class _LenientModel(BaseModel):
    model_config = ConfigDict(extra="ignore")


class TextPart(_LenientModel):
    """A part of a message: text."""

    type: Literal["text"]
    text: str


class AudioData(_LenientModel):
    """A recording and its format."""

    data: str = Field(description="base64")
    format: str = "wav"


class AudioPart(_LenientModel):
    """A part of a message: a recording, which is transcribed for the agent."""

    type: Literal["input_audio"]
    input_audio: AudioData


class FunctionCall(_LenientModel):
    """The name of a tool, and its arguments as JSON."""

    name: str = Field(min_length=1, max_length=MAX_TOOL_NAME_CHARS)
    arguments: str = Field(default="{}", max_length=MAX_MESSAGE_CHARS)


class ChatToolCall(_LenientModel):
    """A call of a tool of the client."""

    id: str = Field(min_length=1, max_length=MAX_CALL_ID_CHARS)
    type: Literal["function"] = "function"
    function: FunctionCall


class FunctionDefinition(_LenientModel):
    """A tool of the client: its name, what it does, and the JSON schema of its arguments."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str | None = Field(default=None, max_length=MAX_TOOL_DESCRIPTION_CHARS)
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})


class ToolDefinition(_LenientModel):
    """A tool that the client carries out."""

    type: Literal["function"]
    function: FunctionDefinition


class NamedFunction(_LenientModel):
    """The name of a tool."""

    name: str


class NamedToolChoice(_LenientModel):
    """The tool that the agent must call first."""

    type: Literal["function"]
    function: NamedFunction


class ChatMessage(_LenientModel):
    """One message of the request."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: (
        Annotated[str, Field(max_length=MAX_MESSAGE_CHARS)]
        | Annotated[
            list[Annotated[TextPart | AudioPart, Field(discriminator="type")]], Field(max_length=MAX_MESSAGE_PARTS)
        ]
        | None
    ) = None
    tool_calls: list[ChatToolCall] | None = Field(default=None, max_length=MAX_TOOLS)
    tool_call_id: str | None = Field(default=None, max_length=MAX_CALL_ID_CHARS)

    @property
    def text(self) -> str:
        """Return the text parts of the message."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if isinstance(part, TextPart))
        return self.content or ""

    @property
    def recordings(self) -> list[str]:
        """Return the recordings of the message, in base64."""
        parts = self.content if isinstance(self.content, list) else []
        return [part.input_audio.data for part in parts if isinstance(part, AudioPart)]


class StreamOptions(_LenientModel):
    """Options of a stream."""

    include_usage: bool = False


class JsonSchema(_LenientModel):
    """The JSON schema of the answer."""

    name: str = "answer"
    json_schema: dict[str, Any] = Field(alias="schema", default_factory=dict)


class ResponseFormat(_LenientModel):
    """The format of the answer: text, any JSON object, or JSON with a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """Return the JSON schema of the answer; None for text."""
        if self.type == "text":
            return None
        schema = self.json_schema.json_schema if self.type == "json_schema" and self.json_schema else {}
        return schema or {"type": "object", "additionalProperties": True}


class ChatRequest(BaseModel):
    """A request for a chat completion. Parameters that cannot reach the model are refused by name."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {"model": "rem", "messages": [{"role": "user", "content": "Who is Sarah Chen?"}], "stream": True}
            ]
        },
    )

    model: str = Field(default="rem", min_length=1, max_length=200, description="`rem`: the configured default")
    messages: list[ChatMessage] = Field(min_length=1, max_length=10_000)
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    logit_bias: dict[str, int] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Literal["minimal", "low", "medium", "high"] | None = None
    response_format: ResponseFormat | None = None
    tools: list[ToolDefinition] | None = Field(
        default=None, max_length=MAX_TOOLS, description="tools that the agent can call and the client carries out"
    )
    tool_choice: Literal["auto", "none", "required"] | NamedToolChoice | None = None
    store: bool | None = Field(
        default=None, strict=True, description="`false`: nothing of the turn is stored; default: a session stores it"
    )
    user: str | None = Field(default=None, description="passed on to the model; it does not identify the caller")
    n: Literal[1] | None = None
    action_submit: CardAnswer | None = Field(
        default=None, description="The answer to a card of the session; the text of the last message may be empty."
    )

    @model_validator(mode="wrap")
    @classmethod
    def _make_errors_readable(cls, value: Any, handler: ModelWrapValidatorHandler[ChatRequest]) -> ChatRequest:
        if isinstance(value, bytes):
            raise InvalidInputError(JSON_CONTENT_TYPE_MISSING)
        try:
            return handler(value)
        except ValidationError as error:
            raise _readable_error(error, value) from error

    @model_validator(mode="after")
    def _refuse_unknown_parameters(self) -> ChatRequest:
        unknown = {
            name: value for name, value in (self.model_extra or {}).items() if value not in (None, False, [], {})
        }
        if unknown:
            name = sorted(unknown)[0]
            raise ValueError(f"{name}: is not supported{ADVICE.get(name, '')}; leave it out")
        return self

    @property
    def question(self) -> ChatMessage:
        """Return the message to answer: the last one, or the last of the user before the results of tools."""
        last = self.messages[-1]
        if last.role not in ("user", "tool"):
            raise InvalidInputError(f"messages: the last one must have the role user or tool, not {last.role}.")
        return self.messages[self._question_place]

    @property
    def _question_place(self) -> int:
        places = [place for place, message in enumerate(self.messages) if message.role == "user"]
        if not places:
            raise InvalidInputError("messages: none has the role user.")
        return places[-1]

    @property
    def history(self) -> list[ClientMessage]:
        """Return the messages of the user, the assistant and tools before the question."""
        return _to_client_messages(self.messages[: self._question_place])

    @property
    def tool_exchange(self) -> list[ClientMessage]:
        """Return the calls of tools and their results after the question."""
        return _to_client_messages(self.messages[self._question_place + 1 :])

    @property
    def client_tools(self) -> list[ClientTool]:
        """Return the tools of the client."""
        tools = [] if self.tool_choice == "none" else self.tools or []
        return [ClientTool(tool.function.name, tool.function.description, tool.function.parameters) for tool in tools]

    @property
    def chosen_tool(self) -> str:
        """Return the tool that the agent must call first: its name, `required` for any, or `auto` for none."""
        if isinstance(self.tool_choice, NamedToolChoice):
            return self.tool_choice.function.name
        return "required" if self.tool_choice == "required" else "auto"

    @property
    def instructions(self) -> str | None:
        """Return the system messages, which are added to the agent's instructions; None if there are none."""
        texts = [message.text for message in self.messages if message.role in ("system", "developer")]
        return "\n\n".join(text for text in texts if text.strip()) or None

    def to_agent_request(self, context: AgentContext, text: str) -> AgentRequest:
        """Return the request to the agent. `text` is the question, with its recordings transcribed."""
        is_remembered = self.store is not False
        return AgentRequest(
            context=context if is_remembered else context.model_copy(update={"is_transient": True}),
            text=text,
            model=self.model,
            client_history=self.history,
            client_tools=self.client_tools,
            tool_choice=self.chosen_tool,
            tool_exchange=self.tool_exchange,
            instructions=self.instructions,
            model_settings=self.model_settings,
            output_schema=self.response_format.output_schema if self.response_format else None,
            card_answer=self.action_submit,
            is_remembered=is_remembered,
        )

    @property
    def model_settings(self) -> dict[str, Any]:
        """Return the given parameters by pydantic-ai's names."""
        settings = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_completion_tokens or self.max_tokens,
            "stop_sequences": [self.stop] if isinstance(self.stop, str) else self.stop,
            "seed": self.seed,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "logit_bias": self.logit_bias,
            "parallel_tool_calls": self.parallel_tool_calls,
            "thinking": self.reasoning_effort,
            "openai_user": self.user,
        }
        return {name: value for name, value in settings.items() if value is not None}


def _to_client_messages(messages: Iterable[ChatMessage]) -> list[ClientMessage]:
    return [
        ClientMessage(
            message.role,
            message.text,
            [ClientToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()],
            message.tool_call_id,
        )
        for message in messages
        if message.role in ("user", "assistant", "tool")
        and (message.text.strip() or message.tool_calls or message.tool_call_id)
    ]


def _readable_error(error: ValidationError, value: Any) -> ValidationError:
    """Return the error with locations such as `messages[0].content[1]`, and one message for each location.

    Pydantic reports an error for every member of a union that did not match.
    """
    details_by_path: dict[tuple[str | int, ...], list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        details_by_path.setdefault(_request_path(value, detail), []).append(detail)
    # An error deeper inside a value says more than "the value has another type".
    outer = {path[:depth] for path in details_by_path for depth in range(len(path))}
    deepest = [path for path in details_by_path if path not in outer]
    return ValidationError.from_exception_data(
        error.title, [_merge_details(path, details_by_path[path]) for path in deepest[:MAX_READABLE_ERRORS]]
    )


def _request_path(value: Any, detail: ErrorDetails) -> tuple[str | int, ...]:
    """Return the location of an error in the request: pydantic's location without the names of union members."""
    path: list[str | int] = []
    last = len(detail["loc"]) - 1
    for depth, part in enumerate(detail["loc"]):
        if isinstance(value, dict) and part in value:
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        elif detail["type"] != "missing" or depth != last:
            continue
        path.append(part)
    return tuple(path)


def _merge_details(path: tuple[str | int, ...], details: list[ErrorDetails]) -> InitErrorDetails:
    # For example, a text that is too long was not meant to be a list.
    relevant = [detail for detail in details if not detail["type"].endswith("_type")] or details
    messages = list(dict.fromkeys(map(_describe_detail, relevant)))
    text = messages[0] + "".join(f", or {other[:1].lower()}{other[1:]}" for other in messages[1:])
    # Pydantic would read braces in the message as a template.
    error_type = PydanticCustomError(relevant[0]["type"], "{text}", {"text": text})
    location = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
    return InitErrorDetails(type=error_type, loc=(location,) if location else (), input=None)


def _describe_detail(detail: ErrorDetails) -> str:
    if detail["type"] == "union_tag_invalid":
        subject = "images are" if detail["ctx"]["tag"] in IMAGE_TYPES else "this type of content is"
        return f"{subject} not supported; send text or input_audio"
    if detail["type"] == "union_tag_not_found":
        return "its type is missing; send text or input_audio"
    return "input should be an object" if detail["type"] in NO_OBJECT_TYPES else detail["msg"]
