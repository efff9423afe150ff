"""From a stored conversation to the messages that a model is given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from rem.models.message import Role
from rem.tools.profile import load_own_profile

if TYPE_CHECKING:
    from rem.agents.chat import ClientMessage
    from rem.memory.message import HistoryMessage
    from rem.models import Message
    from rem.tools.env import ToolEnv


_NOT_KEPT = (
    "The result was not kept. What mattered of it is in the notes and answers; call the tool again if you need it."
)


def history_from_session(history: Iterable[HistoryMessage]) -> list[ModelMessage]:
    """The messages of a conversation; every tool call has an answer, because providers refuse one without."""
    seen: set[str] = set()
    return [message for stored in history for message in _messages_of(stored, seen)]


def _messages_of(stored: HistoryMessage, seen: set[str]) -> Iterator[ModelMessage]:
    match stored.role:
        case Role.USER:
            yield ModelRequest(parts=[UserPromptPart(stored.content)])
        case Role.SYSTEM:
            yield ModelRequest(parts=[SystemPromptPart(stored.content)])
        case Role.ASSISTANT:
            yield ModelResponse(parts=[TextPart(stored.content)])
        case Role.TOOL:
            yield from _call_and_answer(stored, seen)


def _call_and_answer(stored: HistoryMessage, seen: set[str]) -> Iterator[ModelMessage]:
    name = stored.tool_name or "unknown_tool"
    call_id = stored.tool_call_id or f"call-{stored.index}"
    if call_id in seen:
        # Some providers number the calls of each answer from one.
        call_id = f"{call_id}-{stored.index}"
    seen.add(call_id)
    yield ModelResponse(parts=[ToolCallPart(name, stored.tool_arguments or {}, call_id)])
    yield ModelRequest(parts=[ToolReturnPart(name, stored.content or _NOT_KEPT, call_id)])


def history_from_client(earlier: Iterable[ClientMessage]) -> list[ModelMessage]:
    """The messages that a client sent along."""
    return [
        ModelRequest(parts=[UserPromptPart(said.content)])
        if said.role == "user"
        else ModelResponse(parts=[TextPart(said.content)])
        for said in earlier
    ]


async def build_user_hint(env: ToolEnv, *, with_profile: bool, can_look_up: bool) -> str | None:
    """Who the user is: how to look the profile up, or the profile itself; None if there is none."""
    if env.memory is None or not (with_profile or can_look_up):
        return None
    profile = await load_own_profile(env)
    if profile is None:
        return None
    if with_profile:
        return _described(profile, env.context.user_id)
    return f"User ID: {env.context.user_id}. To load user profile: Use REM LOOKUP users/{profile['key']}"


def _described(profile: Mapping[str, Any], user_id: str | None) -> str | None:
    details = (profile.get("metadata") or {}).get("profile")
    details = details if isinstance(details, Mapping) else {}
    # Who has not said a name is called by the id, which says nothing.
    facts = {
        "Name": None if profile.get("name") == user_id else profile.get("name"),
        "Role": profile.get("role"),
        "About": profile.get("summary"),
        "What the user said of themself": _listed(details.get("about")),
        "Interests": _listed(profile.get("interests")),
        "Preferred topics": _listed(profile.get("preferred_topics")),
        "Current projects": _listed(details.get("current_projects")),
        "People the user speaks of": _listed(details.get("people")),
        "How the user wants things done": _listed(details.get("preferences"), " | "),
    }
    lines = [f"{name}: {value}" for name, value in facts.items() if value]
    return "\n".join(["You talk to this user:", *lines]) if lines else None


def _listed(values: object, between: str = ", ") -> str:
    """The texts of a list; what is in a profile may have been written by hand."""
    return between.join(value for value in values if isinstance(value, str)) if isinstance(values, list) else ""


_LONGEST_MESSAGE = 4000
"""Characters of one message: what a summary keeps of a long one is in its beginning and its end."""


def build_summary_prompt(so_far: str | None, messages: Iterable[Message]) -> str:
    """The summary so far, if there is one, and what was said since."""
    said = [
        f"{message.role.value}: {_shorten_message(message.content)}" for message in messages if _says_something(message)
    ]
    before = ["Summary so far:", so_far, "", "Said since then:"] if so_far else ["The conversation:"]
    return "\n".join([*before, *said])


def _says_something(message: Message) -> bool:
    return message.role is not Role.TOOL and bool(message.content.strip())


def _shorten_message(text: str) -> str:
    if len(text) <= _LONGEST_MESSAGE:
        return text
    half = _LONGEST_MESSAGE // 2
    return f"{text[:half]} […] {text[-half:]}"
