"""Build the input of a model: the history, the hint about the user, the prompt for a summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import groupby
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

from rem.agents.client_tools import exchange_to_messages, is_tool_exchange
from rem.models.message import Role
from rem.tools.profile import load_own_profile, load_shared_profile

if TYPE_CHECKING:
    from rem.agents.chat import ClientMessage
    from rem.models import Message
    from rem.sessions.message import HistoryMessage
    from rem.tools.env import ToolEnv

_RESULT_NOT_STORED = (
    "The result was not kept. What mattered of it is in the notes and answers; call the tool again if you need it."
)
MAX_SUMMARIZED_MESSAGE_CHARS = 4000
"""Length of one message in the prompt for a summary. Of a longer message the beginning and the end are used."""


def history_from_session(history: Iterable[HistoryMessage]) -> list[ModelMessage]:
    """Return the stored messages as messages for the model.

    Every tool call gets a result, because providers reject a call without one.
    """
    used_call_ids: set[str] = set()
    return [message for stored in history for message in _to_model_messages(stored, used_call_ids)]


def history_from_client(messages: Iterable[ClientMessage]) -> list[ModelMessage]:
    """Return the messages that the client sent as messages for the model.

    Messages in a row of the same role become one: the library would join them one by one, which takes seconds for
    thousands.
    """
    history: list[ModelMessage] = []
    for role, group in groupby(messages, _get_kind):
        if role == "tool":
            history += exchange_to_messages(list(group))
            continue
        text = "\n\n".join(message.content for message in group)
        history.append(
            ModelRequest(parts=[UserPromptPart(text)]) if role == "user" else ModelResponse(parts=[TextPart(text)])
        )
    return history


def _get_kind(message: ClientMessage) -> str:
    return "tool" if is_tool_exchange(message) else message.role


async def build_user_hint(env: ToolEnv, *, with_profile: bool, can_look_up: bool) -> str | None:
    """Return the user's profile, or with `can_look_up` only how to look it up; None if there is no profile.

    The hint may lead to a row that the tenant shares. The profile itself is always the user's own row: what others
    write about somebody must not become an instruction.
    """
    if env.memory is None or not (with_profile or can_look_up):
        return None
    profile = await load_own_profile(env)
    if profile is not None and with_profile:
        return _describe_profile(profile, env.context.user_id)
    record = profile or (await load_shared_profile(env) if can_look_up else None)
    if record is None or not can_look_up:
        return None
    label = _get_user_label(env, record)
    return f"User ID: {label}. To load user profile: Use REM LOOKUP users/{label}"


def _get_user_label(env: ToolEnv, record: Mapping[str, Any]) -> str:
    """Return the label that LOOKUP finds the row of the user with: the e-mail address, the user id, or the key."""
    context = env.context
    is_named_by_id = record.get("name") == context.user_id
    return str(context.user_email or record.get("email") or (context.user_id if is_named_by_id else record["key"]))


def describe_today(env: ToolEnv) -> str:
    """Return the instruction with today's date. It has no time: providers cache instructions that stay the same."""
    now = datetime.now(UTC) if env.memory is None else env.memory.settings.now()
    return f"Today is {now:%A, %-d %B %Y}."


def build_summary_prompt(summary_so_far: str | None, messages: Iterable[Message]) -> str:
    """Return the input of the summarizer: the summary so far, if any, and the messages since then."""
    lines = [f"{message.role.value}: {_shorten_message(message.content)}" for message in messages if _has_text(message)]
    heading = ["Summary so far:", summary_so_far, "", "Said since then:"] if summary_so_far else ["The conversation:"]
    return "\n".join([*heading, *lines])


def _to_model_messages(stored: HistoryMessage, used_call_ids: set[str]) -> Iterator[ModelMessage]:
    match stored.role:
        case Role.USER:
            yield ModelRequest(parts=[UserPromptPart(stored.content)])
        case Role.SYSTEM:
            yield ModelRequest(parts=[SystemPromptPart(stored.content)])
        case Role.ASSISTANT:
            yield ModelResponse(parts=[TextPart(stored.content)])
        case Role.TOOL:
            yield from _to_call_and_result(stored, used_call_ids)


def _to_call_and_result(stored: HistoryMessage, used_call_ids: set[str]) -> Iterator[ModelMessage]:
    name = stored.tool_name or "unknown_tool"
    call_id = stored.tool_call_id or f"call-{stored.index}"
    if call_id in used_call_ids:
        # Some providers number the calls of each answer from one.
        call_id = f"{call_id}-{stored.index}"
    used_call_ids.add(call_id)
    yield ModelResponse(parts=[ToolCallPart(name, stored.tool_arguments or {}, call_id)])
    yield ModelRequest(parts=[ToolReturnPart(name, stored.content or _RESULT_NOT_STORED, call_id)])


def _describe_profile(profile: Mapping[str, Any], user_id: str | None) -> str | None:
    details = (profile.get("metadata") or {}).get("profile")
    details = details if isinstance(details, Mapping) else {}
    # A profile without a name has the user id as its name, which tells the model nothing.
    fields = {
        "Name": None if profile.get("name") == user_id else profile.get("name"),
        "Role": profile.get("role"),
        "About": profile.get("summary"),
        "What the user said about themselves": _join_texts(details.get("about")),
        "Interests": _join_texts(profile.get("interests")),
        "Preferred topics": _join_texts(profile.get("preferred_topics")),
        "Current projects": _join_texts(details.get("current_projects")),
        "People the user speaks of": _join_texts(details.get("people")),
        "How the user wants things done": _join_texts(details.get("preferences"), " | "),
    }
    lines = [f"{name}: {value}" for name, value in fields.items() if value]
    return "\n".join(["You talk to this user:", *lines]) if lines else None


def _join_texts(values: object, separator: str = ", ") -> str:
    """Join the texts of a list. Other values are skipped: a profile may have been written by hand."""
    return separator.join(value for value in values if isinstance(value, str)) if isinstance(values, list) else ""


def _has_text(message: Message) -> bool:
    return message.role is not Role.TOOL and bool(message.content.strip())


def _shorten_message(text: str) -> str:
    if len(text) <= MAX_SUMMARIZED_MESSAGE_CHARS:
        return text
    half = MAX_SUMMARIZED_MESSAGE_CHARS // 2
    return f"{text[:half]} […] {text[-half:]}"
