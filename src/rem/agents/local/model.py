"""`rem:local`: the model without a language model. It searches with the agent's tools and quotes what it finds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import orjson
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextContent,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.tools import ToolDefinition

from rem.agents.local.excerpts import (
    Excerpts,
    explain_missing_tools,
    parse_search_result,
    pick_excerpt,
    split_for_streaming,
    write_answer,
)
from rem.agents.local.small_talk import MAX_QUESTION_CHARS, is_query, reply_without_search, resolve_follow_up
from rem.agents.local.structured_output import LocalOutput
from rem.errors import ModelRequiredError

LOCAL_MODEL = "rem:local"
_SEARCH, _NOTE, _DELEGATE = "search_rem", "register_metadata", "ask_agent"
_SAID = 0.9
"""How certain an answer is that needed no search."""
_RECALLED = "RELEVANT CONTEXT FROM PAST CONVERSATIONS:"
_QUESTION = "\nUSER QUESTION: "
"""How a question looks that was given what was said before: only the question is to be searched."""
_RETRY = "<retry_feedback"


@cache
def get_local_model() -> FunctionModel:
    """The model; it has no state, so one is enough."""
    return _LocalModel(_respond, stream_function=_stream, model_name=LOCAL_MODEL)


class _LocalModel(FunctionModel):
    @property
    def system(self) -> str:
        """Who provides the model."""
        return "rem"


@dataclass(slots=True)
class _TurnState:
    """What was asked, now and before, and what has been done about it so far."""

    prompts: list[str] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    returned: dict[str, ToolReturnPart] = field(default_factory=dict)

    @classmethod
    def of(cls, messages: Sequence[ModelMessage]) -> _TurnState:
        turn = cls()
        for message in messages:
            for part in message.parts:
                turn = turn._after(part)
        return turn

    @property
    def question(self) -> str:
        """What is asked now."""
        return self.prompts[-1] if self.prompts else ""

    @property
    def earlier(self) -> list[str]:
        """What the user said before."""
        return self.prompts[:-1]

    @property
    def asked(self) -> tuple[str, ...]:
        """What is to be searched for: the question, after the one that it refers to."""
        return resolve_follow_up(self.question, self.earlier)

    def _after(self, part: Any) -> _TurnState:
        if isinstance(part, UserPromptPart):
            text = _text_of(part)
            if text.startswith(_RETRY):
                return self
            self.prompts.append(text)
            return _TurnState(self.prompts)
        if isinstance(part, ToolCallPart):
            self.called.add(part.tool_name)
        elif isinstance(part, ToolReturnPart):
            self.returned[part.tool_name] = part
        return self

    def findings(self) -> Excerpts:
        """What the search gave."""
        part = self.returned.get(_SEARCH)
        if part is None:
            return Excerpts()
        if part.outcome != "success":
            return Excerpts(problem=str(part.content))
        is_lookup = is_query(self.question) and self.question.lstrip().startswith("LOOKUP")
        return parse_search_result(part.content, self.asked, is_whole=is_lookup)


def _next(messages: list[ModelMessage], info: AgentInfo) -> ToolCallPart | str:
    """The next step: a call of a tool, each at most once, or the answer in words."""
    turn = _TurnState.of(messages)
    tools = {tool.name: tool for tool in info.function_tools}
    is_structured = bool(info.output_tools) and not info.allow_text_output
    if is_structured and _SEARCH not in tools:
        # Such an agent works on what it is given, such as a text to be summarized.
        return _structured(turn, LocalOutput(pick_excerpt(turn.question, "")), info)
    said = reply_without_search(turn.question, turn.earlier)
    if said is not None:
        return _structured(turn, LocalOutput(said, Excerpts(confidence=_SAID)), info) if is_structured else said
    if _SEARCH in tools:
        return _searched(turn, tools, info, is_structured=is_structured)
    return _delegated(turn) if _DELEGATE in tools else explain_missing_tools()


def _searched(
    turn: _TurnState, tools: Mapping[str, ToolDefinition], info: AgentInfo, *, is_structured: bool
) -> ToolCallPart | str:
    if _SEARCH not in turn.called:
        return ToolCallPart(_SEARCH, _search(turn, tools[_SEARCH].parameters_json_schema))
    findings = turn.findings()
    if _NOTE in tools and _NOTE not in turn.called:
        return ToolCallPart(_NOTE, {"confidence": findings.confidence, "sources": findings.keys})
    text = write_answer(findings)
    return _structured(turn, LocalOutput(text, findings), info) if is_structured else text


def _search(turn: _TurnState, schema: dict[str, Any]) -> dict[str, Any]:
    arguments = {"query": " ".join(turn.asked).strip()[:MAX_QUESTION_CHARS] or "*"}
    if "mode" in schema.get("properties", {}):
        arguments["mode"] = "rem-dialect" if is_query(turn.question) else "natural-language"
    return arguments


def _delegated(turn: _TurnState) -> ToolCallPart | str:
    """An agent that may only ask others asks the one that searches."""
    if _DELEGATE not in turn.called:
        return ToolCallPart(_DELEGATE, {"agent_name": "rem", "input_text": turn.question or "hello"})
    part = turn.returned.get(_DELEGATE)
    content = part.content if part is not None and part.outcome == "success" else None
    said = content.get("output") if isinstance(content, dict) else None
    if isinstance(said, str) and said.strip():
        return said
    return write_answer(Excerpts(problem="the agent rem did not answer"))


def _structured(turn: _TurnState, output: LocalOutput, info: AgentInfo) -> ToolCallPart:
    tool = info.output_tools[0]
    if tool.name in turn.called:
        raise ModelRequiredError("rem:local cannot give an answer that this agent accepts: set LLM__DEFAULT_MODEL.")
    return ToolCallPart(tool.name, output.fill(tool.parameters_json_schema))


async def _respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    step = _next(messages, info)
    return ModelResponse(parts=[TextPart(step) if isinstance(step, str) else step])


async def _stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    step = _next(messages, info)
    if isinstance(step, str):
        for piece in split_for_streaming(step):
            yield piece
    else:
        arguments = orjson.dumps(step.args).decode()
        yield {0: DeltaToolCall(name=step.tool_name, json_args=arguments, tool_call_id=step.tool_call_id)}


def _text_of(part: UserPromptPart) -> str:
    """The words of a prompt, without what was recalled for it."""
    contents = [part.content] if isinstance(part.content, str) else part.content
    texts = [item.content if isinstance(item, TextContent) else item for item in contents]
    text = "\n".join(text for text in texts if isinstance(text, str))
    return text.rpartition(_QUESTION)[2] if text.startswith(_RECALLED) else text
