"""Tool calls, notes and child runs are streamed as they happen."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.api.chat.conftest import Chat
from tests.api.chat.sse_reader import events_of, named, text_of
from tests.scripted_model import Call, Step, has_result, instructions, last_text

HI = {"messages": [{"role": "user", "content": "Who is Sarah?"}]}

AGENT = """
type: object
description: You are {name}. {prompt}
json_schema_extra:
  kind: agent
  name: {name}
  tools:
{tools}
"""


def save_agent(chat: Chat, name: str, *tools: str, prompt: str = "Answer.") -> None:
    listed = "\n".join(f"    - name: {tool}" for tool in tools) or "    []"
    with chat.http() as http:
        text = AGENT.format(name=name, prompt=prompt, tools=listed)
        saved = http.post("/api/v1/agents", content=text, headers={"Content-Type": "application/yaml"})
        assert saved.status_code in (200, 201), saved.text


def test_tool_call_events_have_matching_ids_and_real_results(chat: Chat) -> None:
    with chat.http() as http:
        made = http.post("/api/v1/entities/users", json={"name": "Sarah Chen", "summary": "Leads platform"})
        assert made.status_code == 201, made.text

        def script(body: dict[str, Any]) -> list[Step]:
            if has_result(body):
                assert "Leads platform" in body["messages"][-1]["content"]
                return ["She leads", " platform."]
            return [Call("search_rem", {"query": 'LOOKUP "sarah-chen"'}, "call_a")]

        chat.model.script = script
        events = events_of(http, HI)
    started, completed = named(events, "tool_call")
    assert (started["status"], completed["status"]) == ("started", "completed")
    assert started["tool_id"] == completed["tool_id"] == "call_a"
    assert started["arguments"] == {"query": 'LOOKUP "sarah-chen"'}
    assert "Leads platform" in str(completed["result"])
    assert text_of(events) == "She leads platform."


def test_notes_are_stored_and_tool_results_are_not(chat: Chat) -> None:
    secret = f"result-{uuid4().hex}"
    with chat.http() as http:
        http.post("/api/v1/entities/resources", json={"name": secret, "content": f"The content of {secret}"})

        def script(body: dict[str, Any]) -> list[Step]:
            if not has_result(body):
                return [
                    Call("search_rem", {"query": f'LOOKUP "{secret}"'}, "call_1"),
                    Call("register_metadata", {"confidence": 0.9, "sources": ["note-key"]}, "call_2"),
                ]
            return ["Done."]

        chat.model.script = script
        events = events_of(http, HI)
        session = named(events, "metadata")[-1]["session_id"]
        stored = http.get(f"/api/v1/sessions/{session}/messages").json()["data"]
    assert {"confidence": 0.9, "sources": ["note-key"]}.items() <= named(events, "metadata")[0].items()
    assert [message["role"] for message in stored] == ["user", "tool", "tool", "assistant"]
    assert stored[1]["tool_name"] == "search_rem"
    assert stored[1]["tool_call_id"] == "call_1"
    assert stored[1]["metadata"]["tool_arguments"] == {"query": f'LOOKUP "{secret}"'}
    assert "The content of" not in str(stored)
    assert "note-key" in stored[2]["content"]


def test_history_has_a_result_for_every_tool_call(chat: Chat) -> None:
    chat.model.script = lambda body: (
        ["Answer."] if has_result(body) else [Call("search_rem", {"query": 'FUZZY "x"'}, "call_1")]
    )
    session = {"X-Session-Id": str(uuid4())}
    with chat.http() as http:
        events_of(http, HI, **session)
        events_of(http, HI, **session)
    sent = chat.model.requests[2]["messages"]
    calls = [call["id"] for message in sent for call in message.get("tool_calls") or []]
    answers = [message["tool_call_id"] for message in sent if message["role"] == "tool"]
    assert calls == answers == ["call_1"]


def test_characters_that_end_a_line_elsewhere_are_escaped(chat: Chat) -> None:
    """Python's splitlines and JavaScript's line comments end at these characters, so no event may contain one."""
    text = "before\u2028between\u2029and\u0085after"
    chat.model.script = lambda body: (
        [text] if has_result(body) else [Call("search_rem", {"query": f'FUZZY "{text}"'}, "call_1")]
    )
    with chat.http() as http:
        body = {**HI, "stream": True}
        raw = http.post("/api/v1/chat/completions", json=body).content.decode()
        assert not {"\u2028", "\u2029", "\u0085"} & set(raw)
        assert all(line.startswith(("data: ", "event: ", ":")) for line in raw.splitlines() if line)
        events = events_of(http, HI)
    assert text_of(events) == text
    assert named(events, "tool_call")[0]["arguments"]["query"] == f'FUZZY "{text}"'


def test_action_card_reaches_the_client(chat: Chat) -> None:
    card = {"id": "c1", "prompt": "Really?", "actions": [{"type": "Action.Submit", "id": "yes", "title": "Yes"}]}
    save_agent(chat, "asker", "action")
    chat.model.script = lambda body: (
        ["Please choose."]
        if has_result(body)
        else [Call("action", {"type": "elicit", "payload": {"card": card}}, "call_1")]
    )
    with chat.http() as http:
        events = events_of(http, HI, **{"X-Agent-Schema": "asker"})
    assert named(events, "action_request")[0]["card"]["prompt"] == "Really?"
    assert named(events, "action")[0]["action_type"] == "elicit"


def delegating(body: dict[str, Any]) -> list[Step]:
    """boss asks worker, worker asks helper; each says who it is."""
    prompt_text = instructions(body)
    name = next(name for name in ("boss", "worker", "helper") if f"You are {name}" in prompt_text)
    if name == "helper":
        return ["helper", " speaks"]
    if has_result(body):
        return ["worker", " agrees"] if name == "worker" else ["helper speaks\n\nworker agrees"]
    below = {"boss": "worker", "worker": "helper"}[name]
    return [Call("ask_agent", {"agent_name": below, "input_text": "go"}, f"call_{name}")]


def test_child_runs_stream_live_at_any_depth_without_repetition(chat: Chat) -> None:
    save_agent(chat, "helper")
    save_agent(chat, "worker", "ask_agent")
    save_agent(chat, "boss", "ask_agent")
    chat.model.script = delegating
    with chat.http() as http:
        events = events_of(http, HI, **{"X-Agent-Schema": "boss"})
        session = named(events, "metadata")[-1]["session_id"]
        stored = http.get(f"/api/v1/sessions/{session}/messages").json()["data"]
    assert text_of(events) == "helper speaks\n\nworker agrees"
    calls = [(call["agent"], call["tool_id"], call["status"]) for call in named(events, "tool_call")]
    assert calls == [
        ("boss", "call_boss", "started"),
        ("worker", "call_worker", "started"),
        ("worker", "call_worker", "completed"),
        ("boss", "call_boss", "completed"),
    ]
    progress = [(event["agent"], event["label"], event["status"]) for event in named(events, "progress")]
    assert progress == [
        ("boss", "Asking worker", "in_progress"),
        ("worker", "Asking helper", "in_progress"),
        ("worker", "Asking helper", "completed"),
        ("boss", "Asking worker", "completed"),
    ]
    positions = [position for position, event in enumerate(events) if event.text == "helper" or event.text == " speaks"]
    ended = next(position for position, event in enumerate(events) if event.data.get("status") == "completed")
    assert max(positions) < ended, "the child's words came before its end"
    assert stored[-1]["content"] == "helper speaks\n\nworker agrees"
    assert [message["tool_name"] for message in stored if message["role"] == "tool"] == ["ask_agent", "ask_agent"]


def test_parent_can_add_text_to_its_child(chat: Chat) -> None:
    save_agent(chat, "helper")
    save_agent(chat, "boss", "ask_agent")

    def script(body: dict[str, Any]) -> list[Step]:
        if "You are helper" in instructions(body):
            return ["The answer is 42."]
        if has_result(body):
            return ["The answer", " is 42. ", "I agree", " with that."]
        return [Call("ask_agent", {"agent_name": "helper", "input_text": "go"})]

    chat.model.script = script
    with chat.http() as http:
        text = text_of(events_of(http, HI, **{"X-Agent-Schema": "boss"}))
    assert text.count("I agree with that.") == 1


def test_child_run_has_the_session_and_the_user(chat: Chat) -> None:
    save_agent(chat, "helper", "search_rem")
    save_agent(chat, "boss", "ask_agent")
    with chat.http() as http:
        http.post("/api/v1/entities/resources", json={"name": "Private plan", "content": "Only mine: zebra"})
    session = {"X-Session-Id": str(uuid4()), "X-Agent-Schema": "boss"}

    def script(body: dict[str, Any]) -> list[Step]:
        if "You are helper" in instructions(body):
            return (
                [f"Found {'zebra' in str(body['messages'][-1])}"]
                if has_result(body)
                else [Call("search_rem", {"query": 'LOOKUP "private-plan"'}, "call_h")]
            )
        if has_result(body) or last_text(body) == "first":
            return ["ok"]
        return [Call("ask_agent", {"agent_name": "helper", "input_text": "look"}, "call_b")]

    chat.model.script = script
    with chat.http() as http:
        events_of(http, {"messages": [{"role": "user", "content": "first"}]}, **session)
        events = events_of(http, {"messages": [{"role": "user", "content": "second"}]}, **session)
    assert "Found True" in text_of(events)
    child = next(body for body in chat.model.requests if "You are helper" in instructions(body))
    assert "first" in str(child["messages"])


def test_failing_child_run_does_not_fail_its_parent(chat: Chat) -> None:
    from tests.scripted_model import Refuse

    save_agent(chat, "helper")
    save_agent(chat, "boss", "ask_agent")

    def script(body: dict[str, Any]) -> list[Step]:
        if "You are helper" in instructions(body):
            return [Refuse(500)]
        return (
            ["I manage alone."]
            if has_result(body)
            else [Call("ask_agent", {"agent_name": "helper", "input_text": "x"})]
        )

    chat.model.script = script
    with chat.http() as http:
        events = events_of(http, HI, **{"X-Agent-Schema": "boss"})
    assert text_of(events) == "I manage alone."
    assert not named(events, "error")


def test_agent_cannot_call_a_tool_it_does_not_have(chat: Chat) -> None:
    save_agent(chat, "bare")
    chat.model.script = lambda body: (
        ["Sorry."] if has_result(body) else [Call("search_rem", {"query": 'LOOKUP "x"'}, "call_1")]
    )
    with chat.http() as http:
        events = events_of(http, HI, **{"X-Agent-Schema": "bare"})
    assert "tools" not in chat.model.requests[0]
    assert all(call["status"] != "completed" for call in named(events, "tool_call"))


def test_simulator_sends_every_kind_of_event(chat: Chat) -> None:
    with chat.http() as http:
        events = events_of(http, {"messages": [{"role": "user", "content": "demo"}]}, **{"X-Agent-Schema": "simulator"})
    assert [event["step"] for event in named(events, "reasoning")] == [1, 2, 3, 4]
    assert {event["status"] for event in named(events, "progress")} >= {"in_progress", "completed"}
    calls = named(events, "tool_call")
    assert {call["tool_id"] for call in calls if call["status"] == "started"} == {
        call["tool_id"] for call in calls if call["status"] == "completed"
    }
    assert "## " in text_of(events)
    assert named(events, "metadata")[0]["confidence"]
    assert named(events, "action_request")[0]["card"]["actions"]
    assert named(events, "done") == [named(events, "done")[0]]
    assert not chat.model.requests


@pytest.mark.parametrize("count", [12])
def test_every_lookup_hint_of_a_long_session_returns_the_exact_text(chat: Chat, count: int) -> None:
    chat.model.script = lambda body: [f"{last_text(body)} {uuid4().hex} Ünï " * 30]
    session = {"X-Session-Id": str(uuid4())}
    said = []
    with chat.http() as http:
        for number in range(count):
            said += [text_of(events_of(http, {"messages": [{"role": "user", "content": f"turn {number}"}]}, **session))]
        sent = chat.model.requests[-1]["messages"]
        hints = [
            str(message["content"]).split("REM LOOKUP ")[1].split(" ")[0]
            for message in sent
            if message["role"] == "assistant" and "REM LOOKUP" in str(message["content"])
        ]
        assert len(hints) == count - 1
        for hint, text in zip(hints, said, strict=False):
            result = http.post("/api/v1/query", json={"query": f"LOOKUP {hint}"}).json()
            assert result["results"][0]["record"]["content"] == text
