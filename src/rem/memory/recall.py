"""Recall: what was said before, brought into a question. What is stored is the question itself."""

from __future__ import annotations

from collections.abc import Sequence

from rem.models import Message

_LONGEST = 200


def add_context(user_message: str, context: Sequence[Message]) -> str:
    """The question with what was said before in front of it, for the model."""
    lines = ["RELEVANT CONTEXT FROM PAST CONVERSATIONS:", "---"]
    for message in context:
        shortened = message.content[:_LONGEST] + ("..." if len(message.content) > _LONGEST else "")
        lines.append(f"[{message.role.value.upper()}]: {shortened}")
    lines += [
        "---",
        "",
        "Now answer the current user question using the context above if relevant.",
        "",
        f"USER QUESTION: {user_message}",
    ]
    return "\n".join(lines)
