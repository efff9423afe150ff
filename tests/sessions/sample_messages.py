"""Short helpers that build and store messages."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from rem.models import Role
from rem.sessions.manager import MemoryManager
from rem.sessions.message import NewMessage


def user_message(content: str, **fields: Any) -> NewMessage:
    """Return a user message."""
    return NewMessage(role=Role.USER, content=content, **fields)


def assistant_message(content: str, **fields: Any) -> NewMessage:
    """Return an assistant message."""
    return NewMessage(role=Role.ASSISTANT, content=content, **fields)


def tool_call(name: str, call_id: str, arguments: dict[str, Any], content: str = "") -> NewMessage:
    """Return a tool call as agents store it."""
    return NewMessage(
        role=Role.TOOL,
        content=content,
        tool_calls=[{"id": call_id, "name": name, "arguments": arguments}],
        tool_call_id=call_id,
        tool_name=name,
        metadata={"tool_arguments": arguments},
    )


async def add_turns(memory: MemoryManager, session_id: UUID, turns: int, answer: str = "Answer {} is short.") -> None:
    """Store a number of turns, each with a question and an answer."""
    messages = []
    for turn in range(turns):
        messages += [user_message(f"Question {turn} about cheese?"), assistant_message(answer.replace("{}", str(turn)))]
    await memory.append(session_id, messages, create_session=True)
