"""Short ways to say something in a test."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from rem.memory.manager import MemoryManager
from rem.memory.message import NewMessage
from rem.models import Role


def said(content: str, **fields: Any) -> NewMessage:
    """What the user says."""
    return NewMessage(role=Role.USER, content=content, **fields)


def answered(content: str, **fields: Any) -> NewMessage:
    """What the assistant says."""
    return NewMessage(role=Role.ASSISTANT, content=content, **fields)


def called(name: str, call_id: str, arguments: dict[str, Any], content: str = "") -> NewMessage:
    """A tool call, as the runner stores it."""
    return NewMessage(
        role=Role.TOOL,
        content=content,
        tool_calls=[{"id": call_id, "name": name, "arguments": arguments}],
        tool_call_id=call_id,
        tool_name=name,
        metadata={"tool_arguments": arguments},
    )


async def talk(memory: MemoryManager, session_id: UUID, turns: int, answer: str = "Answer {} is short.") -> None:
    """A conversation of some turns, each a question and an answer."""
    messages = []
    for turn in range(turns):
        messages += [said(f"Question {turn} about cheese?"), answered(answer.replace("{}", str(turn)))]
    await memory.append(session_id, messages, creates=True)
