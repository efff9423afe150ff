"""Tool gaps: calls of missing tools are reported, stored once for each agent and tool, and listed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from rem.agents.chat import AgentAnswer, AgentRequest
from rem.agents.response import UNSTATED_CONFIDENCE, AgentResponse
from rem.agents.service import Agents
from rem.agents.tool_gaps import MAX_GAPS_PER_ANSWER, ToolGapCollector, ToolGapReport, count_gaps_of_all_users
from rem.app import Rem
from rem.context import AgentContext
from rem.errors import ModelError
from rem.events import MetadataEvent
from rem.models import ToolGap
from rem.settings import Settings
from tests.scripted_model import Call, ScriptedModel, Step, instructions, scripted_model


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as running:
        yield running


@pytest.fixture
async def agents(settings: Settings, rem: Rem, model: ScriptedModel) -> AsyncIterator[Agents]:
    """Agents on a model that calls missing tools before it answers."""
    model.requests.clear()

    def script(body: dict[str, Any]) -> list[Step]:
        has_failed = any("Unknown tool" in str(message["content"]) for message in body["messages"])
        return ["I cannot send e-mail."] if has_failed else [Call("send_email", {"to": "sarah@example.com"})]

    model.script = script
    llm = {"base_url": model.url, "default_model": "openai:scripted", "max_retries": 0}
    opened = Agents(rem, Settings.model_validate({**settings.model_dump(), "llm": llm}))
    yield opened
    await opened.close()


def ask(text: str = "Send the report to Sarah.", user: str = "alice") -> AgentRequest:
    return AgentRequest(context=AgentContext(user_id=user), text=text)


async def test_call_of_a_missing_tool_is_reported_with_the_answer(agents: Agents) -> None:
    answer = await agents.run(ask())
    (report,) = answer.tool_gaps
    assert (report.agent, report.missing_tools) == ("rem", ["send_email"])
    assert report.attempted_task == "Send the report to Sarah."
    assert "search_rem" in report.existing_tools_checked
    response = AgentResponse.from_answer(answer)
    assert (response.answer, response.tool_gaps) == ("I cannot send e-mail.", [report])


async def test_stream_ends_with_the_report(agents: Agents) -> None:
    stream = await agents.start(ask())
    events = [event async for event in stream.events()]
    (last,) = [event for event in events if isinstance(event, MetadataEvent)]
    assert last.flags == ["tool_gap"]
    assert last.extra is not None
    assert last.extra["tool_gaps"][0]["missing_tools"] == ["send_email"]


async def test_calls_are_counted_in_one_row_for_each_agent_and_tool(agents: Agents, rem: Rem) -> None:
    await asyncio.gather(*(agents.run(ask(f"Send report {number}")) for number in range(4)))
    await agents.run(ask("Send the last report"))
    await agents.run(ask("Mine", user="bob"))
    (gap,) = await rem.for_user("alice").store.find(ToolGap)
    assert (gap.agent, gap.missing_tools, gap.occurrences) == ("rem", ["send_email"], 5)
    assert (gap.attempted_task, gap.origin) == ("Send the last report", "agent")
    (of_bob,) = await rem.for_user("bob").store.find(ToolGap)
    assert (of_bob.occurrences, of_bob.attempted_task) == (1, "Mine")
    (total,) = await count_gaps_of_all_users(rem.database, "default", 10)
    assert (total["tool"], total["occurrences"], total["users"]) == ("send_email", 6, 2)
    assert await count_gaps_of_all_users(rem.database, "other", 10) == []


async def test_deleted_gap_starts_again_at_one(agents: Agents, rem: Rem) -> None:
    await agents.run(ask())
    await agents.run(ask())
    store = rem.for_user("alice").store
    await store.delete((await store.find(ToolGap))[0])
    assert await store.find(ToolGap) == []
    await agents.run(ask())
    assert [gap.occurrences for gap in await store.find(ToolGap)] == [1]


async def test_gap_of_a_called_agent_names_that_agent(agents: Agents, rem: Rem, model: ScriptedModel) -> None:
    inner = model.script

    def script(body: dict[str, Any]) -> list[Step]:
        if "You send reports" in instructions(body):
            return list(inner(body))
        called = any(message["role"] == "tool" for message in body["messages"])
        return ["Done."] if called else [Call("ask_agent", {"agent_name": "sender", "input_text": "Send it."})]

    model.script = script
    definition = "description: You send reports.\njson_schema_extra:\n  name: sender\n"
    await agents.catalog.save(definition, AgentContext(user_id="alice").scope)
    asked = AgentRequest(context=AgentContext(user_id="alice"), text="Send the report.", agent="orchestrator")
    answer = await agents.run(asked)
    assert [(gap.agent, gap.missing_tools) for gap in answer.tool_gaps] == [("sender", ["send_email"])]
    (gap,) = await rem.for_user("alice").store.find(ToolGap)
    assert (gap.agent, gap.attempted_task) == ("sender", "Send it.")


async def test_gap_is_stored_when_the_run_fails(agents: Agents, rem: Rem, model: ScriptedModel) -> None:
    model.script = lambda _body: [Call("send_email")]
    with pytest.raises(ModelError):
        await agents.run(ask())
    (gap,) = await rem.for_user("alice").store.find(ToolGap)
    assert (gap.missing_tools, gap.occurrences) == (["send_email"], 1)


def test_number_and_length_of_reported_names_are_limited() -> None:
    collector = ToolGapCollector()
    for number in range(100):
        collector.add("rem", f"tool {number} \0 {'x' * 1000}", ["search_rem"], "y" * 10_000)
    (report,) = collector.reports
    assert len(report.missing_tools) == MAX_GAPS_PER_ANSWER
    assert max(map(len, [*report.missing_tools, report.attempted_task])) <= 500
    assert "\0" not in report.missing_tools[0]


@pytest.mark.parametrize("wrong", [{"missing_tools": []}, {"attempted_task": ""}])
def test_report_needs_a_tool_and_a_task(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ToolGapReport.model_validate({"agent": "rem", "missing_tools": ["t"], "attempted_task": "x", **wrong})


def make_answer(text: str = "Paris.", **fields: Any) -> AgentAnswer:
    return AgentAnswer(text=text, agent="rem", model="m", session_id=None, **fields)


@pytest.mark.parametrize(
    ("fields", "confidence"),
    [
        ({"confidence": 0.9, "output": {"confidence": 0.1}}, 0.9),
        ({"output": {"confidence": 1}}, 1.0),
        ({"output": {"confidence": "high"}}, UNSTATED_CONFIDENCE),
        ({"output": {"confidence": 7}}, UNSTATED_CONFIDENCE),
        ({}, UNSTATED_CONFIDENCE),
    ],
)
def test_response_always_has_a_confidence(fields: dict[str, Any], confidence: float) -> None:
    assert AgentResponse.from_answer(make_answer(**fields)).confidence == confidence


def test_response_needs_an_answer_and_a_confidence() -> None:
    with pytest.raises(ModelError, match="gave no answer"):
        AgentResponse.from_answer(make_answer("  \n"))
    complete = AgentResponse.from_answer(make_answer()).model_dump()
    for wrong in ({"answer": ""}, {"answer": "  "}, {"confidence": None}, {"confidence": 1.5}):
        with pytest.raises(ValidationError):
            AgentResponse.model_validate(complete | wrong)
    with pytest.raises(ValidationError, match="confidence"):
        AgentResponse.model_validate({name: value for name, value in complete.items() if name != "confidence"})


async def test_gap_of_another_user_is_never_written(agents: Agents, rem: Rem) -> None:
    taken = rem.database.derived_ids.make("tool gap", "default", "alice", "rem", "send_email")
    await rem.for_user("bob").store.upsert(ToolGap(id=taken, missing_tools=["x"], attempted_task="Mine"))
    await agents.run(ask("The secret plan of Alice"))
    (of_bob,) = await rem.for_user("bob").store.find(ToolGap)
    assert of_bob.attempted_task == "Mine"
