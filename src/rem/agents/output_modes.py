"""The ways in which a model gives a structured answer, and which of them works with which model."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import orjson
from pydantic_ai import exceptions as library
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse, ToolCallPart

from rem.agents.model_errors import describe_model_error
from rem.errors import ModelError

if TYPE_CHECKING:
    from pydantic_ai import RunContext
    from pydantic_ai.models import ModelRequestContext

    from rem.agents.model_registry import ResolvedModel
    from rem.settings import OutputModeSetting

OutputMode: TypeAlias = Literal["tool", "native", "prompt"]
"""`tool`: the model calls a tool with the answer. `native`: the provider gets the JSON schema. `prompt`: the model is
asked for JSON, and the provider needs no support for it."""
OUTPUT_MODES: tuple[OutputMode, ...] = get_args(OutputMode)
SCHEMA_PROMPT = """\
Your answer is one JSON object that matches this JSON schema. Write the object alone: no explanation, no Markdown.

{schema}"""
MAX_REMEMBERED_MODELS = 256
_MODE_NAMES = {"tool": "as a tool call", "native": "with its JSON schema", "prompt": "in the prompt"}
_MODE_WORDS = re.compile(r"tool|function|response_format|json_schema|grammar|schema", re.IGNORECASE)
"""Words of a server's message that say which part of the request it does not support."""


class OutputModeError(Exception):
    """The model ignored the way in which it was asked for a structured answer."""


class OutputModes:
    """Chooses the output mode of a run, and remembers the one that worked with a model."""

    def __init__(self) -> None:
        self._working: OrderedDict[str, OutputMode] = OrderedDict()

    def list(self, model: ResolvedModel, setting: OutputModeSetting) -> Sequence[OutputMode]:
        """Return the modes to try in this order. `auto` begins with the one that worked with the model before."""
        if setting != "auto":
            return (setting,)
        working = self._working.get(model.name, "tool")
        return (working, *(mode for mode in OUTPUT_MODES if mode != working))

    def is_known_to_work(self, model: ResolvedModel, mode: OutputMode) -> bool:
        """Return whether a structured answer of the model came in this mode before."""
        return self._working.get(model.name) == mode

    def remember(self, model: ResolvedModel, mode: OutputMode) -> None:
        """Remember that a structured answer of the model came in this mode."""
        self._working[model.name] = mode
        self._working.move_to_end(model.name)
        if len(self._working) > MAX_REMEMBERED_MODELS:
            self._working.popitem(last=False)


@dataclass
class ModeProbe(AbstractCapability[Any]):
    """Raises OutputModeError if the first response of a run shows that the model ignores the output mode.

    Without it, the library would ask the model again and again in the same way.
    """

    mode: OutputMode = "tool"

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Check the first response of a run. A later one may need a correction, but follows tool calls."""
        if ctx.run_step <= 1 and response.finish_reason in (None, "stop") and not _follows(self.mode, response):
            raise OutputModeError("it answered with plain text")
        return response


def parse_json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text consists of, perhaps with words around it; None if there is none."""
    for candidate in (text, text[text.find("{") : text.rfind("}") + 1]):
        try:
            value = orjson.loads(candidate.strip())
        except orjson.JSONDecodeError:
            continue
        if isinstance(value, dict):
            return value
    return None


def is_mode_refused(error: Exception) -> bool:
    """Return whether an error says that the model or its server does not support the output mode of the request."""
    if isinstance(error, OutputModeError | library.UserError):
        return True
    if isinstance(
        error,
        library.ModelAuthenticationError | library.ModelNotFoundError | library.ModelContextWindowExceededError,
    ):
        return False
    if isinstance(error, library.ModelRequestRejectedError):
        return True
    # Some servers answer with status 500 to a field that they do not know.
    return isinstance(error, library.ModelHTTPError) and bool(_MODE_WORDS.search(str(error.body)))


def describe_failed_modes(
    model: str, errors: Sequence[tuple[OutputMode, Exception]], tools: Sequence[str]
) -> ModelError:
    """Return the error for a model that gave no structured answer in any mode."""
    reasons = "; ".join(f"{_MODE_NAMES[mode]}: {_describe(error)}" for mode, error in errors)
    advice = "Choose another model"
    if tools and not any(isinstance(error, OutputModeError) for _, error in errors):
        advice += f", or an agent without tools if the server does not support them (this one has {', '.join(tools)})"
    return ModelError(f"The model {model} gave no structured answer. It was asked {reasons}. {advice}.")


def _describe(error: Exception) -> str:
    return str(error if isinstance(error, OutputModeError) else describe_model_error(error)).rstrip(".")


def _follows(mode: OutputMode, response: ModelResponse) -> bool:
    if any(isinstance(part, ToolCallPart) for part in response.parts) or not response.text:
        return True
    return mode != "tool" and parse_json_object(response.text) is not None
