"""Write the parts of a memory that a search found as the text that the reader gets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from bench.quality.dataset import Case, DatasetMessage, DatasetSession
from rem.sessions.tokens import count_tokens


def write_history(case: Case, found: Sequence[str], max_tokens: int) -> tuple[str, int]:
    """Return the found sessions or messages, oldest first, and the number of their tokens.

    `found` has their ids, best first. Those that no longer fit are left out.
    """
    sessions = {session.id: session for session in case.sessions}
    messages = {message.id: (session, message) for session in case.sessions for message in session.messages}
    parts: list[tuple[datetime | None, int, str]] = []
    used = 0
    for found_id in found:
        if found_id in messages:
            session, message = messages[found_id]
            at, place, text = message.at, message.index, _write_message(session, message)
        elif found_id in sessions:
            session = sessions[found_id]
            at, place, text = session.at, 0, _write_session(session)
        else:
            continue
        tokens = count_tokens(text)
        if used + tokens > max_tokens:
            break
        used += tokens
        parts.append((at, place, text))
    parts.sort(key=lambda part: (part[0] is None, part[0] or datetime.min, part[1]))
    return "\n\n".join(text for _, _, text in parts), used


def format_date(at: datetime | None) -> str:
    """Return a date with its weekday, or `an unknown day`."""
    return "an unknown day" if at is None else f"{at:%A, %d %B %Y, %H:%M}"


def _write_session(session: DatasetSession) -> str:
    lines = [f"{message.speaker or message.role.value}: {message.content}" for message in session.messages]
    return f"[{format_date(session.at)}]\n" + "\n".join(lines)


def _write_message(session: DatasetSession, message: DatasetMessage) -> str:
    # The content already begins with the name of the speaker.
    return f"[{format_date(session.at)}] {message.content}"
