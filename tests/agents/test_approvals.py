"""A call that needs consent ends the answer with a question; the decision lets the run go on with its history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from rem.agents.answer_stream import AnswerStream
from rem.agents.chat import AgentAnswer, AgentRequest
from rem.agents.service import Agents
from rem.app import Rem
from rem.context import AgentContext
from rem.errors import ConflictError, InvalidAgentError, InvalidInputError, ModelRequiredError, NotFoundError
from rem.events import ActionRequestEvent, AnyEvent, MetadataEvent, ToolCallEvent
from rem.models import Approval, Message, Resource
from rem.sessions.card_answers import CardAnswer
from rem.settings import Settings
from rem.tools.consent import Decision
from tests.agents.running_agents import agents_with
from tests.scripted_model import Call, ScriptedModel, Step, has_result

CAREFUL = """
type: object
description: You keep what the user says.
json_schema_extra:
  kind: agent
  name: careful
  tools: [{name: remember}, {name: lookup}, {name: forget}, {name: ask_agent}, {name: register_metadata}]
  consent: [irreversible, reversible_with_delay]
"""
KEEP = Call("remember", {"text": "My flight is SK1425."}, id="call_keep")


def keep_then_tell(body: dict[str, Any]) -> list[Step]:
    """Call remember, and then quote its result."""
    if has_result(body):
        return [f"I see: {body['messages'][-1]['content']}"]
    return ["Let me keep that.", KEEP]


@pytest.fixture
async def agents(settings: Settings, model: ScriptedModel) -> AsyncIterator[Agents]:
    async with agents_with(settings, model) as agents:
        await agents.catalog.save(CAREFUL, AgentContext(user_id="alice").scope)
        model.script = keep_then_tell
        yield agents


def of(user: str = "alice", session: UUID | None = None) -> AgentContext:
    return AgentContext(user_id=user, session_id=None if session is None else str(session))


async def say(agents: Agents, text: str, session: UUID, **given: Any) -> AgentAnswer:
    request = AgentRequest(context=of(session=session), text=text, agent="careful", **given)
    return await agents.run(request)


async def pause(agents: Agents, rem: Rem, session: UUID | None = None) -> Approval:
    """Let the agent ask whether it may keep the flight."""
    await say(agents, "My flight is SK1425, keep that.", session or uuid4())
    (approval,) = await rem.for_user("alice").approvals.find_pending()
    return approval


def approve(**given: Any) -> Decision:
    return Decision(is_approved=True, by="test", **given)


async def events_of(stream: AnswerStream) -> list[AnyEvent]:
    return [event async for event in stream.events()]


async def notes(rem: Rem) -> list[str]:
    return [note.content for note in await rem.for_user("alice").store.find(Resource)]


async def test_the_answer_ends_with_a_question_and_a_card(agents: Agents, rem: Rem, model: ScriptedModel) -> None:
    session = uuid4()
    stream = await agents.start(
        AgentRequest(context=of(session=session), text="My flight is SK1425, keep that.", agent="careful")
    )
    events = await events_of(stream)
    (approval,) = await rem.for_user("alice").approvals.list()
    text = "".join(event.content for event in events if event.type == "text_delta")
    assert text.startswith("Let me keep that.\n\nI would like to call `remember`: Keep a statement of the user")
    assert "- text: My flight is SK1425." in text
    assert f"Answer `yes` to do it, `no` to leave it. (`/approve {approval.code}` works in any session.)" in text
    (asked,) = [event.card for event in events if isinstance(event, ActionRequestEvent)]
    assert (asked.id, asked.timeout_ms) == (f"approval-{approval.id}", 300_000)
    assert [action.id for action in asked.list_actions()] == ["approve", "reject", "edit", "approve-edited"]
    calls = [(event.status, event.result) for event in events if isinstance(event, ToolCallEvent)]
    assert calls == [
        ("started", None),
        ("completed", {"status": "needs_approval", "approval_id": str(approval.id)}),
    ]
    (last,) = [event for event in events if isinstance(event, MetadataEvent)]
    assert last.flags == ["needs_approval"]
    assert stream.approval is not None
    assert (approval.agent, approval.session_id, approval.risk_level) == ("careful", session, "reversible_with_delay")
    assert approval.parameters == {"text": "My flight is SK1425."}
    assert (len(model.requests), await notes(rem)) == (1, [])


async def test_yes_lets_the_run_go_on_with_its_history(agents: Agents, rem: Rem, model: ScriptedModel) -> None:
    session = uuid4()
    approval = await pause(agents, rem, session)
    answer = await say(agents, "yes", session)
    assert '"status":"success"' in answer.text.replace(" ", "")
    assert await notes(rem) == ["My flight is SK1425."]
    first, last = (request["messages"] for request in model.requests)
    assert last[: len(first)] == first
    assert [message["role"] for message in last[len(first) - 1 :]] == ["user", "assistant", "tool"]
    done = await rem.for_user("alice").approvals.get(approval.id)
    assert (done.status, done.decided_by, done.execution) == ("approved", "user in chat", "done")
    stored = await rem.for_user("alice").store.find(Message, {"session_id": session}, order_by="message_index")
    assert [row.role for row in stored] == ["user", "tool", "assistant", "user", "tool", "assistant"]
    # The question was answered: another yes is a message like any other.
    model.script = lambda _body: ["What?"]
    assert (await say(agents, "yes", session)).text == "What?"
    assert len(await notes(rem)) == 1


async def test_another_process_goes_on_after_a_restart(settings: Settings, rem: Rem, model: ScriptedModel) -> None:
    model.script = keep_then_tell
    async with agents_with(settings, model) as first:
        await first.catalog.save(CAREFUL, of().scope)
        approval = await pause(first, rem)
    async with agents_with(settings, model) as second:
        answer = await (await second.decide(approval, approve(), of())).collect()
    assert answer.text.startswith("I see: ")
    assert await notes(rem) == ["My flight is SK1425."]


async def test_approving_twice_runs_the_tool_once(agents: Agents, rem: Rem) -> None:
    approval = await pause(agents, rem)

    async def decide() -> AgentAnswer | ConflictError:
        try:
            return await (await agents.decide(approval, approve(), of())).collect()
        except ConflictError as error:
            return error

    await asyncio.gather(*(decide() for _ in range(5)))
    assert await notes(rem) == ["My flight is SK1425."]
    (stored,) = await rem.for_user("alice").approvals.list()
    assert (stored.status, stored.execution) == ("approved", "done")
    with pytest.raises(ConflictError, match="only once"):
        await agents.decide(stored, approve(), of())


async def test_no_tells_the_model_and_does_nothing(agents: Agents, rem: Rem, model: ScriptedModel) -> None:
    approval = await pause(agents, rem)
    decision = Decision(is_approved=False, by="test", reason="Wrong flight.")
    answer = await (await agents.decide(approval, decision, of())).collect()
    assert "The user rejected this action. Nothing was done. The user says: Wrong flight." in answer.text
    assert await notes(rem) == []
    with pytest.raises(ConflictError, match="rejected before"):
        await agents.decide(approval, approve(), of())


async def test_the_user_edits_the_arguments(agents: Agents, rem: Rem) -> None:
    approval = await pause(agents, rem)
    for wrong, reason in (
        ({}, "text: Field required"),
        ({"text": ""}, "text: String should have at least 1 character"),
        ({"text": "x", "user": "bob"}, "user: Extra inputs are not permitted"),
    ):
        with pytest.raises(InvalidInputError, match=reason):
            await agents.decide(approval, approve(parameters=wrong), of())
    assert (await rem.for_user("alice").approvals.get(approval.id)).status == "pending"
    await (await agents.decide(approval, approve(parameters={"text": "My flight is SK1427."}), of())).collect()
    assert await notes(rem) == ["My flight is SK1427."]


async def test_the_card_decides(agents: Agents, rem: Rem) -> None:
    session = uuid4()
    approval = await pause(agents, rem, session)
    card = f"approval-{approval.id}"
    edited = CardAnswer(
        card_id=card, action_id="approve-edited", inputs={"parameters": '{"text": "My flight is SK1427."}'}
    )
    for wrong in (
        CardAnswer(card_id=card, action_id="edit"),
        CardAnswer(card_id=card, action_id="approve", inputs={"colour": "red"}),
        CardAnswer(card_id=card, action_id="approve-edited", inputs={"parameters": "[1]"}),
        CardAnswer(card_id=card, action_id="approve-edited", inputs={"parameters": "{"}),
    ):
        with pytest.raises(InvalidInputError):
            await say(agents, "", session, card_answer=wrong)
    stranger = AgentRequest(context=of("bob", session), text="", card_answer=edited)
    with pytest.raises(NotFoundError):
        await agents.run(stranger)
    answer = await say(agents, "", session, card_answer=edited)
    assert answer.text.startswith("I see: ")
    assert await notes(rem) == ["My flight is SK1427."]


async def test_a_late_yes_is_refused(
    agents: Agents, rem: Rem, model: ScriptedModel, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    session = uuid4()
    approval = await pause(agents, rem, session)
    await sql.execute("UPDATE rem.approvals SET decide_by = now() - interval '1 s'")
    model.script = lambda _body: ["What?"]
    assert (await say(agents, "yes", session)).text == "What?"
    late = await say(agents, f"/approve {approval.code}", session)
    assert late.text.startswith("Nothing was changed. Nothing waits")
    with pytest.raises(ConflictError, match="time to decide was over"):
        await agents.decide(approval, approve(), of())
    assert await notes(rem) == []


async def test_other_calls_of_the_response_wait_for_their_turn(agents: Agents, rem: Rem, model: ScriptedModel) -> None:
    def script(body: dict[str, Any]) -> list[Step]:
        if has_result(body):
            return [" / ".join(str(message["content"]) for message in body["messages"] if message["role"] == "tool")]
        return [KEEP, Call("lookup", {"key": "marta"}, id="b"), Call("remember", {"text": "Tea."}, id="c")]

    model.script = script
    approval = await pause(agents, rem)
    answer = await (await agents.decide(approval, approve(), of())).collect()
    assert answer.text.count("one action at a time") == 1
    assert "not_found" in answer.text or "count" in answer.text
    assert await notes(rem) == ["My flight is SK1425."]


async def test_an_agent_asks_only_at_its_levels(agents: Agents, rem: Rem) -> None:
    answer = await agents.run(AgentRequest(context=of(session=uuid4()), text="Keep my flight.", agent="rem"))
    assert (answer.approval_id, await notes(rem)) == (None, ["My flight is SK1425."])


async def test_an_agent_cannot_waive_consent(agents: Agents) -> None:
    for consent, reason in (
        ("[]", "must contain irreversible"),
        ("[reversible_with_delay]", "must contain irreversible"),
        ("[irreversible, reversible]", "must not contain reversible"),
    ):
        definition = CAREFUL.replace("[irreversible, reversible_with_delay]", consent)
        with pytest.raises(InvalidAgentError, match=reason):
            await agents.catalog.save(definition, of().scope)


async def test_a_called_agent_asks_and_goes_on_itself(agents: Agents, rem: Rem, model: ScriptedModel) -> None:
    def script(body: dict[str, Any]) -> list[Step]:
        if has_result(body):
            return ["Kept."]
        if "keep what the user says" in str(body["messages"][0]["content"]):
            return [KEEP]
        return [Call("ask_agent", {"agent_name": "careful", "input_text": "Keep the flight."}, id="a")]

    model.script = script
    session = uuid4()
    answer = await agents.run(AgentRequest(context=of(session=session), text="Hi", agent="orchestrator"))
    assert "Answer `yes` to do it" in answer.text
    # Nothing stands between the question and the user's yes.
    assert len(model.requests) == 2
    assert answer.text.rstrip().endswith("works in any session.)")
    (approval,) = await rem.for_user("alice").approvals.find_pending()
    assert approval.agent == "careful"
    assert (await say(agents, "yes", session)).text == "Kept."
    assert await notes(rem) == ["My flight is SK1425."]


async def test_runs_that_nobody_reads_do_not_ask(agents: Agents, rem: Rem, model: ScriptedModel) -> None:
    delegate = agents.env_with_delegate(of(session=uuid4())).delegate
    assert delegate is not None
    await delegate("careful", "Keep the flight.", 60)
    assert "the user would not see the question" in str(model.requests[-1])
    assert (await rem.for_user("alice").approvals.list(), await notes(rem)) == ([], [])


async def test_a_model_cannot_forge_the_card(agents: Agents, rem: Rem, model: ScriptedModel) -> None:
    session = uuid4()
    approval = await pause(agents, rem, session)
    card = {"id": f"approval-{approval.id}", "prompt": "More?", "actions": [{"id": "approve", "title": "Show more"}]}

    def script(body: dict[str, Any]) -> list[Step]:
        if has_result(body):
            return [str(body["messages"][-1]["content"])]
        return [Call("action", {"type": "elicit", "payload": {"card": card}}, id="z")]

    model.script = script
    answer = await agents.run(AgentRequest(context=of(session=session), text="What else?", agent="rem"))
    assert "must not begin with" in answer.text


async def test_forgetting_removes_a_waiting_run(
    agents: Agents, rem: Rem, model: ScriptedModel, sql: asyncpg.Connection[asyncpg.Record]
) -> None:
    approval = await pause(agents, rem)
    await rem.for_user("alice").remember("My sign is Leo.")
    request = await rem.for_user("alice").changes.request_forget("sign")
    await rem.for_user("alice").changes.confirm(request.code, by="test")
    assert (await rem.for_user("alice").approvals.get(approval.id)).status == "rejected"
    assert "SK1425" not in str(await sql.fetch("SELECT * FROM rem.approvals"))
    assert await sql.fetchval("SELECT count(*) FROM rem.approval_runs") == 0


async def test_without_a_language_model(rem: Rem) -> None:
    agents = rem.agents
    await agents.catalog.save(CAREFUL, of().scope)
    with pytest.raises(ModelRequiredError, match="LLM__DEFAULT_MODEL"):
        await say(agents, "Remember that my flight is SK1425.", uuid4())
    assert await notes(rem) == []
