"""The model `rem:local`: it searches with the agent's tools and quotes the results, without a language model."""

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

from rem.agents.local import control
from rem.agents.local.excerpts import (
    NOTICE,
    Excerpts,
    explain_missing_tools,
    parse_search_result,
    pick_excerpt,
    split_for_streaming,
    write_answer,
)
from rem.agents.local.small_talk import (
    MAX_QUESTION_CHARS,
    confirm_statements,
    is_query,
    reply_without_search,
    resolve_follow_up,
)
from rem.agents.local.structured_output import LocalOutput
from rem.errors import ModelRequiredError
from rem.fair_map import run_fairly
from rem.message_kinds import list_requests

LOCAL_MODEL = "rem:local"
SMALL_TALK_CONFIDENCE = 0.9
"""Confidence of an answer that needs no search."""
_SEARCH_TOOLS, _NOTE_TOOL, _DELEGATE_TOOL = ("search_rem", "search"), "register_metadata", "ask_agent"
_RECALL_START = "RELEVANT CONTEXT FROM PAST CONVERSATIONS:"
_RECALL_QUESTION = "\nUSER QUESTION: "
"""Format of a prompt with passages of past sessions. Only the question after this mark is searched."""
_RETRY_START = "<retry_feedback"


@cache
def get_local_model() -> FunctionModel:
    """Return the model. It has no state, so one instance is enough."""
    return _LocalModel(_respond, stream_function=_stream, model_name=LOCAL_MODEL)


class _LocalModel(FunctionModel):
    @property
    def system(self) -> str:
        """The name of the provider."""
        return "rem"


@dataclass(slots=True)
class _TurnState:
    """The user messages so far, and the tool calls since the last one."""

    user_messages: list[str] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    returned: dict[str, ToolReturnPart] = field(default_factory=dict)

    @classmethod
    def from_messages(cls, messages: Sequence[ModelMessage]) -> _TurnState:
        state = cls()
        for message in messages:
            for part in message.parts:
                state = state._add(part)
        return state

    @property
    def question(self) -> str:
        """The last user message."""
        return self.user_messages[-1] if self.user_messages else ""

    @property
    def earlier(self) -> list[str]:
        """The user messages before the last one."""
        return self.user_messages[:-1]

    @property
    def search_texts(self) -> tuple[str, ...]:
        """The texts to search for: the question, and before it the question that it follows up."""
        return resolve_follow_up(self.request, self.earlier)

    @property
    def request(self) -> str:
        """The part of the last user message that asks something, if it also states something."""
        if confirm_statements(self.question) is None:
            return self.question
        return " ".join(list_requests(self.question)) or self.question

    def _add(self, part: Any) -> _TurnState:
        if isinstance(part, UserPromptPart):
            text = _get_question(part)
            if text.startswith(_RETRY_START):
                return self
            self.user_messages.append(text)
            return _TurnState(self.user_messages)
        if isinstance(part, ToolCallPart):
            self.called.add(part.tool_name)
        elif isinstance(part, ToolReturnPart):
            self.returned[part.tool_name] = part
        return self

    def get_excerpts(self) -> Excerpts:
        """Return the excerpts of the search result."""
        part = next((self.returned[name] for name in _SEARCH_TOOLS if name in self.returned), None)
        if part is None:
            return Excerpts()
        if part.outcome != "success":
            return Excerpts(error=str(part.content))
        is_lookup = is_query(self.question) and self.question.lstrip().startswith("LOOKUP")
        return parse_search_result(part.content, self.search_texts, is_lookup=is_lookup)


async def _choose_step(messages: list[ModelMessage], info: AgentInfo) -> ToolCallPart | str:
    """Return the next step, as the user sees it."""
    state = _TurnState.from_messages(messages)
    step = await run_fairly(len(state.question), lambda: _find_step(state, info))
    return _say_notice_once(step, messages)


def _find_step(state: _TurnState, info: AgentInfo) -> ToolCallPart | str:
    """Return the next step: a tool call, at most one for each tool, or the text of the answer."""
    tools = {tool.name: tool for tool in info.function_tools}
    is_structured = bool(info.output_tools) and not info.allow_text_output
    search_tool = next((tools[name] for name in _SEARCH_TOOLS if name in tools), None)
    if is_structured and search_tool is None:
        # Such an agent processes its input, for example a text to summarize.
        return _fill_output(state, LocalOutput(pick_excerpt(state.question, "")), info)
    if not is_structured:
        step = control.choose_step(state.question, tools, state.called, state.returned)
        if step is not None:
            return step
    reply = reply_without_search(state.question, state.earlier)
    if reply is not None:
        output = LocalOutput(reply, Excerpts(confidence=SMALL_TALK_CONFIDENCE))
        return _fill_output(state, output, info) if is_structured else reply
    if search_tool is not None:
        return _search_and_answer(state, search_tool, tools, info, is_structured=is_structured)
    return _delegate(state) if _DELEGATE_TOOL in tools else explain_missing_tools()


def _search_and_answer(
    state: _TurnState,
    search_tool: ToolDefinition,
    tools: Mapping[str, ToolDefinition],
    info: AgentInfo,
    *,
    is_structured: bool,
) -> ToolCallPart | str:
    if search_tool.name not in state.called:
        return ToolCallPart(search_tool.name, _make_search_arguments(state, search_tool.parameters_json_schema))
    excerpts = state.get_excerpts()
    if _NOTE_TOOL in tools and _NOTE_TOOL not in state.called:
        return ToolCallPart(_NOTE_TOOL, {"confidence": excerpts.confidence, "sources": excerpts.keys})
    confirmation = confirm_statements(state.question)
    text = "\n\n".join(part for part in (confirmation, write_answer(excerpts)) if part)
    return _fill_output(state, LocalOutput(text, excerpts), info) if is_structured else text


def _make_search_arguments(state: _TurnState, schema: dict[str, Any]) -> dict[str, Any]:
    arguments = {"query": " ".join(state.search_texts).strip()[:MAX_QUESTION_CHARS] or "*"}
    if "mode" in schema.get("properties", {}):
        arguments["mode"] = "rem-dialect" if is_query(state.question) else "natural-language"
    return arguments


def _delegate(state: _TurnState) -> ToolCallPart | str:
    """Ask the agent `rem`, for an agent that cannot search itself."""
    if _DELEGATE_TOOL not in state.called:
        return ToolCallPart(_DELEGATE_TOOL, {"agent_name": "rem", "input_text": state.question or "hello"})
    part = state.returned.get(_DELEGATE_TOOL)
    content = part.content if part is not None and part.outcome == "success" else None
    output = content.get("output") if isinstance(content, dict) else None
    if isinstance(output, str) and output.strip():
        return output
    return write_answer(Excerpts(error="the agent rem did not answer"))


def _fill_output(state: _TurnState, output: LocalOutput, info: AgentInfo) -> ToolCallPart:
    tool = info.output_tools[0]
    if tool.name in state.called:
        raise ModelRequiredError("rem:local cannot give an answer that this agent accepts: set LLM__DEFAULT_MODEL.")
    return ToolCallPart(tool.name, output.fill(tool.parameters_json_schema))


def _say_notice_once(step: ToolCallPart | str, messages: Sequence[ModelMessage]) -> ToolCallPart | str:
    """Return the step. An answer ends without the notice if an earlier answer of the session has it."""
    if not isinstance(step, str):
        return step
    earlier = (part for message in messages for part in message.parts if isinstance(part, TextPart))
    return step.partition(f"\n\n{NOTICE}")[0] if any(NOTICE in part.content for part in earlier) else step


async def _respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    step = await _choose_step(messages, info)
    return ModelResponse(parts=[TextPart(step) if isinstance(step, str) else step])


async def _stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    step = await _choose_step(messages, info)
    if isinstance(step, str):
        for chunk in split_for_streaming(step):
            yield chunk
    else:
        arguments = orjson.dumps(step.args).decode()
        yield {0: DeltaToolCall(name=step.tool_name, json_args=arguments, tool_call_id=step.tool_call_id)}


def _get_question(part: UserPromptPart) -> str:
    """Return the text of a prompt, without the passages of past sessions before it."""
    contents = [part.content] if isinstance(part.content, str) else part.content
    texts = [item.content if isinstance(item, TextContent) else item for item in contents]
    text = "\n".join(text for text in texts if isinstance(text, str))
    return text.rpartition(_RECALL_QUESTION)[2] if text.startswith(_RECALL_START) else text
