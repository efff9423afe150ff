"""E-mail, taken apart."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from typing import Any, TypeAlias

from rem.errors import FileUnreadableError, RemError
from rem.ingest.dates import parse_time
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.readers.documents import run_document_process
from rem.ingest.readers.html import parse_html
from rem.ingest.readers.mime import EML, LABELS
from rem.settings import IngestSettings

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
class ParsedMail:
    """A message: who wrote what to whom."""

    headers: dict[str, str]
    """Those that people look at, as they are written; without those that are empty."""
    texts: list[str]
    attachments: list[Attachment]
    left_out: int = 0
    """How many parts there are beyond those that are read."""
    written_at: str | None = None
    """The date as ISO 8601, if it is one."""


def parse_mail(data: bytes) -> ParsedMail:
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
            texts.append(parse_html(text).text if part.get_content_type() == "text/html" else text)
    shown = {name: value for name, value in headers.items() if value}
    return ParsedMail(shown, texts, attachments, max(0, len(parts) - _MOST_PARTS), _time(headers["Date"]))


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


ReadAttachment: TypeAlias = Callable[[FetchedFile], Awaitable[ParsedDocument]]


async def read_mail(file: FetchedFile, settings: IngestSettings, read_attachment: ReadAttachment) -> ParsedDocument:
    """Who wrote what to whom, and the text of what was attached; an attachment that cannot be read is named."""
    mail = await run_document_process(file, EML, LABELS[EML], settings)
    headers: dict[str, str] = mail["headers"]
    if not headers:
        raise FileUnreadableError(f"{file.name} cannot be read as e-mail: it has no sender, recipient or subject.")
    parts = ["\n".join(f"{name}: {value}" for name, value in headers.items()), *mail["texts"]]
    metadata: dict[str, Any] = {name.lower(): value for name, value in headers.items()}
    for attachment in mail["attachments"]:
        text, facts = await _read_one_attachment(file, attachment, read_attachment)
        parts.append(f"## {attachment['name']}\n\n{text}")
        metadata.setdefault("attachments", []).append(facts)
    if mail["left_out"]:
        parts.append(f"({mail['left_out']:,} more parts of this e-mail were not read.)")
        metadata["parts_not_read"] = mail["left_out"]
    text = "\n\n".join(part.strip("\n") for part in parts if part.strip())
    return ParsedDocument(
        text + "\n", "markdown", EML, headers.get("Subject"), metadata, parse_time(mail["written_at"])
    )


async def _read_one_attachment(
    mail: FetchedFile, attachment: dict[str, str], read_attachment: ReadAttachment
) -> tuple[str, dict[str, str]]:
    name = attachment["name"]
    data = b64decode(attachment["data"])
    try:
        document = await read_attachment(FetchedFile(name, f"{mail.uri}#{name}", data, attachment["mime_type"]))
    except RemError as error:
        return f"(not read: {error})", {"name": name, "problem": str(error)}
    return document.text, {"name": name, "mime_type": document.mime_type}
