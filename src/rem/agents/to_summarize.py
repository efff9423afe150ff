"""What the summarizer is given of a conversation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rem.models.message import Role

if TYPE_CHECKING:
    from rem.models import Message

_LONGEST_MESSAGE = 4000
"""Characters of one message: what a summary keeps of a long one is in its beginning and its end."""


def to_summarize(so_far: str | None, messages: Iterable[Message]) -> str:
    """The summary so far, if there is one, and what was said since."""
    said = [f"{message.role.value}: {_shortened(message.content)}" for message in messages if _says_something(message)]
    before = ["Summary so far:", so_far, "", "Said since then:"] if so_far else ["The conversation:"]
    return "\n".join([*before, *said])


def _says_something(message: Message) -> bool:
    return message.role is not Role.TOOL and bool(message.content.strip())


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST_MESSAGE:
        return text
    half = _LONGEST_MESSAGE // 2
    return f"{text[:half]} […] {text[-half:]}"
