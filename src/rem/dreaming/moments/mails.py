"""Mails: what an e-mail says, apart from who sent it to whom and what was attached."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_ENDINGS = (".eml", ".msg")
_FIELD = re.compile(r"^\**(From|To|Cc|Bcc|Date|Subject)\**: *", re.MULTILINE)
_PARAGRAPH = re.compile(r"\s*\S.*?(?=\n\s*\n|\Z)", re.DOTALL)
_ATTACHED = re.compile(r"^(?:## (?:.+\.\w{1,8}|attachment \d+)|Attachments:)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mail:
    """What a mail says."""

    subject: str
    """Empty if it has none."""
    body: list[str]
    """What of each part of the mail is in its body; empty for those that have nothing of it."""


def is_mail(name: str) -> bool:
    """Whether a file of this name is an e-mail."""
    return name.lower().endswith(_ENDINGS)


def mail_of(parts: Sequence[str]) -> Mail:
    """The subject and body of a mail, from its beginning in pieces. Without a body it says what is attached."""
    text = "".join(parts)
    subject, start = _header(text)
    attached = _ATTACHED.search(text, start)
    end = attached.start() if attached and text[start : attached.start()].strip() else len(text)
    body, place = [], 0
    for part in parts:
        body.append(part[max(0, start - place) : max(0, end - place)].strip())
        place += len(part)
    return Mail(subject, body)


def _header(text: str) -> tuple[str, int]:
    """The subject, and where the header ends: with the first paragraph that is none of its fields, or one again."""
    subject, end = "", 0
    seen: set[str] = set()
    for paragraph in _PARAGRAPH.finditer(text):
        found = list(_FIELD.finditer(paragraph.group().lstrip()))
        if not found or found[0].start() > 0 or found[0][1] in seen:
            break
        for field, following in zip(found, [*found[1:], None], strict=True):
            seen.add(field[1])
            if field[1] == "Subject":
                value = paragraph.group().lstrip()[field.end() : following.start() if following else None]
                subject = " ".join(value.split())
        end = paragraph.end()
    return subject, end
