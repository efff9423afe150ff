"""ChatRequest: the body of a chat completion, as OpenAI's clients send it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from rem.agents.chat import ClientMessage
from rem.api.dependencies import JSON_CONTENT_TYPE_MISSING
from rem.errors import InvalidInputError

_LONGEST_MESSAGE = 2_000_000


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore")


class TextPart(_Lenient):
    """A piece of text."""

    type: Literal["text"]
    text: str


class AudioData(_Lenient):
    """A recording."""

    data: str = Field(description="base64")
    format: str = "wav"


class AudioPart(_Lenient):
    """A recording that is written down before the agent reads it."""

    type: Literal["input_audio"]
    input_audio: AudioData


class ChatMessage(_Lenient):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: (
        Annotated[str, Field(max_length=_LONGEST_MESSAGE)]
        | list[Annotated[TextPart | AudioPart, Field(discriminator="type")]]
        | None
    ) = None

    @property
    def text(self) -> str:
        """What the message says."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if isinstance(part, TextPart))
        return self.content or ""

    @property
    def recordings(self) -> list[str]:
        """What of it was spoken, in base64."""
        parts = self.content if isinstance(self.content, list) else []
        return [part.input_audio.data for part in parts if isinstance(part, AudioPart)]


class StreamOptions(_Lenient):
    """What a stream contains."""

    include_usage: bool = False


class JsonSchema(_Lenient):
    """A schema that the answer shall fulfil."""

    name: str = "answer"
    json_schema: dict[str, Any] = Field(alias="schema", default_factory=dict)


class ResponseFormat(_Lenient):
    """Whether the answer is text, any JSON object, or one that fulfils a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON schema of the answer; None for text."""
        if self.type == "text":
            return None
        wanted = self.json_schema.json_schema if self.type == "json_schema" and self.json_schema else {}
        return wanted or {"type": "object", "additionalProperties": True}


class ChatRequest(BaseModel):
    """A chat completion. Every parameter reaches the model, or is refused by its name."""

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
    user: str | None = Field(default=None, description="passed on to the model; who asks is not taken from here")
    n: Literal[1] | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, value: Any, handler: ModelWrapValidatorHandler[ChatRequest]) -> ChatRequest:
        if isinstance(value, bytes):
            raise InvalidInputError(JSON_CONTENT_TYPE_MISSING)
        try:
            return handler(value)
        except ValidationError as error:
            raise _readable(error, value) from error

    @model_validator(mode="after")
    def _nothing_unknown(self) -> ChatRequest:
        given = {name: value for name, value in (self.model_extra or {}).items() if value not in (None, False, [], {})}
        if given:
            name = sorted(given)[0]
            raise ValueError(f"{name}: is not supported{_ADVICE.get(name, '')}; leave it out")
        return self

    @property
    def question(self) -> ChatMessage:
        """The message to be answered: the last one."""
        last = self.messages[-1]
        if last.role != "user":
            raise InvalidInputError(f"messages: the last one must have the role user, not {last.role}.")
        return last

    @property
    def history(self) -> list[ClientMessage]:
        """What was said before, by the user and the assistant."""
        return [
            ClientMessage(message.role, message.text)
            for message in self.messages[:-1]
            if message.role in ("user", "assistant") and message.text.strip()
        ]

    @property
    def instructions(self) -> str | None:
        """What the client tells the model beside the agent's own instructions."""
        told = [message.text for message in self.messages if message.role in ("system", "developer")]
        return "\n\n".join(text for text in told if text.strip()) or None

    @property
    def model_settings(self) -> dict[str, Any]:
        """The parameters by the names that pydantic-ai gives them."""
        asked = {
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
        return {name: value for name, value in asked.items() if value is not None}


_ADVICE = {
    "tools": " (an agent's tools are in its definition)",
    "tool_choice": " (an agent's tools are in its definition)",
    "functions": " (an agent's tools are in its definition)",
    "function_call": " (an agent's tools are in its definition)",
    "logprobs": " (REM's events have no place for them)",
    "n": " other than 1",
}


def _readable(error: ValidationError, value: Any) -> ValidationError:
    """The same problems at places such as `messages[0].content[1]`, without what each kind of a union would want."""
    reasons: dict[tuple[str | int, ...], list[ErrorDetails]] = {}
    for problem in error.errors(include_url=False):
        reasons.setdefault(_within(value, problem), []).append(problem)
    # What is wrong deeper in a value says more than that the value is of another kind.
    places = [place for place in reasons if not any(other[: len(place)] == place != other for other in reasons)]
    return ValidationError.from_exception_data(error.title, [_problem(place, reasons[place]) for place in places])


def _within(value: Any, problem: ErrorDetails) -> tuple[str | int, ...]:
    """Where in the request a problem is: pydantic's place, without the names of the kinds that a union has."""
    place: list[str | int] = []
    last = len(problem["loc"]) - 1
    for depth, part in enumerate(problem["loc"]):
        if isinstance(value, dict) and part in value:
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        elif problem["type"] != "missing" or depth != last:
            continue
        place.append(part)
    return tuple(place)


def _problem(place: tuple[str | int, ...], problems: list[ErrorDetails]) -> InitErrorDetails:
    # A text that is too long is not meant to be a list.
    meant = [problem for problem in problems if not problem["type"].endswith("_type")] or problems
    texts = list(dict.fromkeys(map(_reason, meant)))
    text = texts[0] + "".join(f", or {other[:1].lower()}{other[1:]}" for other in texts[1:])
    # Braces would be taken for a template.
    kind = PydanticCustomError(meant[0]["type"], "{text}", {"text": text})
    written = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
    return InitErrorDetails(type=kind, loc=(written,) if written else (), input=None)


def _reason(problem: ErrorDetails) -> str:
    if problem["type"] == "union_tag_invalid":
        kind = "images are" if problem["ctx"]["tag"] in _IMAGES else "this type of content is"
        return f"{kind} not supported; send text or input_audio"
    if problem["type"] == "union_tag_not_found":
        return "its type is missing; send text or input_audio"
    return "input should be an object" if problem["type"] in _NO_OBJECT else problem["msg"]


_NO_OBJECT = ("dict_type", "model_type", "model_attributes_type")
_IMAGES = ("image_url", "image", "input_image")
