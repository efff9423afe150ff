"""E-mail, taken apart."""

from __future__ import annotations

from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import parsedate_to_datetime

from rem.ingest.html_reader import read_page

_SHOWN = ("From", "To", "Cc", "Date", "Subject")
_MOST_PARTS = 200
_DEEPEST = 20
_MAIL = "message/rfc822"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file in a message."""

    name: str
    mime_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Mail:
    """A message: who wrote what to whom."""

    headers: dict[str, str]
    """Those that people look at, as they are written; without those that are empty."""
    texts: list[str]
    attachments: list[Attachment]
    left_out: int = 0
    """How many parts there are beyond those that are read."""
    written_at: str | None = None
    """The date as ISO 8601, if it is one."""


def parse_mail(data: bytes) -> Mail:
    """A message and what is attached to it. Of several versions of the same text, the plain one."""
    message = message_from_bytes(data, policy=policy.default)
    headers = {name: _header(message, name) for name in _SHOWN}
    texts: list[str] = []
    attachments: list[Attachment] = []
    parts = _leaves(message, 0)
    for part in parts[:_MOST_PARTS]:
        if _is_attachment(part):
            attachments.append(_attachment(part, len(attachments) + 1))
        else:
            text = _text(part)
            texts.append(read_page(text).text if part.get_content_type() == "text/html" else text)
    shown = {name: value for name, value in headers.items() if value}
    return Mail(shown, texts, attachments, max(0, len(parts) - _MOST_PARTS), _time(headers["Date"]))


def _time(date: str) -> str | None:
    try:
        return parsedate_to_datetime(date).isoformat()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _header(message: EmailMessage, name: str) -> str:
    try:
        values = [str(value) for value in message.get_all(name, [])]
    except (ValueError, IndexError, AttributeError, TypeError, LookupError):
        # The library stumbles over some malformed headers.
        values = [str(value) for key, value in message.raw_items() if key.lower() == name.lower()]
    return " ".join(" ".join(values).split())


def _leaves(part: EmailMessage, depth: int) -> list[EmailMessage]:
    """The parts that are no boxes of others. A message that is attached stays whole."""
    if depth > _DEEPEST or not part.is_multipart() or part.get_content_type() == _MAIL:
        return [part]
    below = [child for child in part.iter_parts() if isinstance(child, EmailMessage)]
    leaves = [(child, leaf) for child in below for leaf in _leaves(child, depth + 1)]
    if part.get_content_type() != "multipart/alternative":
        return [leaf for _, leaf in leaves]
    # The text is taken once. What is attached may be in one of the versions only: some put it next to the rich one.
    best = _best(below)
    return [leaf for child, leaf in leaves if child in best or _is_attachment(leaf)]


def _best(versions: list[EmailMessage]) -> list[EmailMessage]:
    """The plain version, if it says anything, else the last, which is the richest."""
    plain = [part for part in versions if part.get_content_type() == "text/plain" and _text(part).strip()]
    return plain[:1] or versions[-1:]


def _is_attachment(part: EmailMessage) -> bool:
    return part.get_content_maintype() != "text" or part.is_attachment() or bool(part.get_filename())


def _attachment(part: EmailMessage, number: int) -> Attachment:
    is_mail = part.get_content_type() == _MAIL
    name = part.get_filename() or ("message.eml" if is_mail else f"attachment {number}")
    return Attachment(name.replace("/", "-"), part.get_content_type(), _payload(part))


def _payload(part: EmailMessage) -> bytes:
    inner = part.get_payload()
    if part.get_content_type() == _MAIL and isinstance(inner, list) and inner and isinstance(inner[0], EmailMessage):
        return inner[0].as_bytes()
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _text(part: EmailMessage) -> str:
    payload = _payload(part)
    for encoding in (part.get_content_charset() or "utf-8", "utf-8", "cp1252"):
        try:
            return payload.decode(encoding)
        except (UnicodeError, LookupError):
            continue
    return payload.decode("latin-1")
