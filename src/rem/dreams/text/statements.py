"""Statements: keep the statements of a message, the only sentences that become memories.

The other sentences (questions, commands, small talk) are replaced by spaces, so that all offsets stay.
"""

from __future__ import annotations

from functools import lru_cache

from rem.message_kinds import classify_message, find_statement_spans
from rem.models.message import MessageKind

STATEMENT_RULES_VERSION = 1
"""Increase it when other sentences count as statements than before: dreams then read all messages of an owner again."""
KINDS_WITHOUT_STATEMENTS = frozenset({MessageKind.COMMAND, MessageKind.SMALL_TALK, MessageKind.QUOTATION})
"""Stored kinds that are final, like a question without a question mark: a topic that `rem:local` searched for.

A message that was stored before kinds existed may be called a question or a statement although it has sentences of both
kinds."""


def mask_other_kinds(text: str, kind: str | None = None) -> str:
    """Return the text of a person's message with spaces in place of everything but its statements.

    `kind` is the stored kind, if there is one. Return an empty text if the message has no statement.
    """
    is_search = kind == MessageKind.QUESTION and not text.rstrip().endswith(("?", "？"))
    if is_search or kind in KINDS_WITHOUT_STATEMENTS or find_kind(text) is not MessageKind.STATEMENT:
        return ""
    return _mask(text)


@lru_cache(maxsize=2048)
def find_kind(text: str) -> MessageKind:
    """Return the kind of a person's message."""
    return classify_message(text)


@lru_cache(maxsize=2048)
def _mask(text: str) -> str:
    parts: list[str] = []
    end = 0
    for start, stop in find_statement_spans(text):
        parts += [_blank(text[end:start]), text[start:stop]]
        end = stop
    return "".join((*parts, _blank(text[end:])))


def _blank(text: str) -> str:
    """Return as many spaces as the text has characters. Line breaks stay, because they end sentences."""
    return "".join("\n" if character == "\n" else " " for character in text)
