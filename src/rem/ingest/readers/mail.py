"""Read e-mail (`.eml`) with its attachments."""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from rem.errors import FileUnreadableError, RemError
from rem.ingest.dates import parse_time
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.readers.documents import run_document_process
from rem.ingest.readers.html import parse_html
from rem.ingest.readers.mime import EML, LABELS
from rem.text import collapse_spaces

if TYPE_CHECKING:
    from rem.settings import IngestSettings

MAX_PARTS = 200
MAX_PARSED_PARTS = 10_000
MAX_DEPTH = 20
MAX_HEADER_CHARS = 20_000
NO_TIME_LEFT = "the time for the attachments of this e-mail was over (INGEST__TIMEOUT_SECONDS)"
_SHOWN_HEADERS = ("From", "To", "Cc", "Date", "Subject")

ReadAttachment: TypeAlias = Callable[[FetchedFile], Awaitable[ParsedDocument]]


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file attached to a message."""

    name: str
    mime_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ParsedMail:
    """The headers, texts and attachments of a message."""

    headers: dict[str, str]
    """From, To, Cc, Date and Subject as they are written, without empty ones."""
    texts: list[str]
    attachments: list[Attachment]
    skipped_parts: int = 0
    """Number of parts beyond the limit."""
    written_at: str | None = None
    """The date in ISO 8601, if it is valid."""


async def read_mail(file: FetchedFile, settings: IngestSettings, read_attachment: ReadAttachment) -> ParsedDocument:
    """Return the headers and text of a message and the texts of its attachments.

    For an attachment that cannot be read, the text contains its name and the reason.
    """
    mail = await run_document_process(file, EML, LABELS[EML], settings)
    headers: dict[str, str] = mail["headers"]
    if not headers:
        raise FileUnreadableError(f"{file.name} cannot be read as e-mail: it has no sender, recipient or subject.")
    parts = ["\n".join(f"{name}: {value}" for name, value in headers.items()), *mail["texts"]]
    metadata: dict[str, Any] = {name.lower(): value for name, value in headers.items()}
    deadline = time.monotonic() + settings.timeout_seconds
    for attachment in mail["attachments"]:
        text, attachment_info = await _read_one_attachment(file, attachment, read_attachment, deadline)
        parts.append(f"## {attachment['name']}\n\n{text}")
        metadata.setdefault("attachments", []).append(attachment_info)
    if mail["skipped_parts"]:
        parts.append(f"({mail['skipped_parts']:,} more parts of this e-mail were not read.)")
        metadata["parts_not_read"] = mail["skipped_parts"]
    text = "\n\n".join(part.strip("\n") for part in parts if part.strip())
    written_at = parse_time(mail["written_at"])
    return ParsedDocument(text + "\n", "markdown", EML, headers.get("Subject"), metadata, written_at)


async def _read_one_attachment(
    mail: FetchedFile, attachment: dict[str, str], read_attachment: ReadAttachment, deadline: float
) -> tuple[str, dict[str, str]]:
    """Return the text of an attachment, and its name and type, or its name and the reason why it cannot be read.

    All attachments together have the time of one file: a message may have 200 that take long.
    """
    name = attachment["name"]
    file = FetchedFile(name, f"{mail.uri}#{name}", b64decode(attachment["data"]), attachment["mime_type"])
    try:
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            document = await read_attachment(file)
    except (RemError, TimeoutError) as error:
        problem = str(error) if isinstance(error, RemError) else NO_TIME_LEFT
        return f"(not read: {problem})", {"name": name, "problem": problem}
    return document.text, {"name": name, "mime_type": document.mime_type}


def parse_mail(data: bytes) -> ParsedMail:
    """Parse a message. If it contains its text as plain text and as HTML, take the plain text.

    Raise ValueError if it has too many parts, or if they are nested too deeply.
    """
    try:
        return _parse(data)
    except RecursionError as error:
        raise ValueError("its parts are nested too deeply") from error


def _parse(data: bytes) -> ParsedMail:
    policy = _ShortHeaders(message_factory=_PartFactory())
    message = cast("EmailMessage", message_from_bytes(data, policy=policy))
    headers = {name: _read_header(message, name) for name in _SHOWN_HEADERS}
    texts: list[str] = []
    attachments: list[Attachment] = []
    parts = _collect_leaves(message, 0)
    for part in parts[:MAX_PARTS]:
        if _is_attachment(part):
            attachments.append(_make_attachment(part, len(attachments) + 1))
        else:
            text = _decode_text(part)
            texts.append(parse_html(text).text if part.get_content_type() == "text/html" else text)
    shown = {name: value for name, value in headers.items() if value}
    return ParsedMail(shown, texts, attachments, max(0, len(parts) - MAX_PARTS), _parse_date(headers["Date"]))


class _PartFactory:
    """Makes the parts of one message, up to a limit: the library needs minutes for a million of them."""

    def __init__(self) -> None:
        self._parts = 0

    def __call__(self, policy: Any = None) -> EmailMessage:
        self._parts += 1
        if self._parts > MAX_PARSED_PARTS:
            raise ValueError(f"it has more than {MAX_PARSED_PARTS:,} parts")
        return EmailMessage(policy)


class _ShortHeaders(EmailPolicy):
    """Reads the beginning of a header: the library needs minutes for a list of 50,000 recipients."""

    def header_fetch_parse(self, name: str, value: str) -> Any:
        """Return the parsed header."""
        return super().header_fetch_parse(name, value[:MAX_HEADER_CHARS])


def _parse_date(date: str) -> str | None:
    try:
        return parsedate_to_datetime(date).isoformat()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _read_header(message: EmailMessage, name: str) -> str:
    try:
        values = [str(value) for value in message.get_all(name, [])]
    except (ValueError, IndexError, AttributeError, TypeError, LookupError):
        # The library fails on some malformed headers.
        values = [str(value) for key, value in message.raw_items() if key.lower() == name.lower()]
    return collapse_spaces(" ".join(values))


def _collect_leaves(part: EmailMessage, depth: int) -> list[EmailMessage]:
    """Return the parts that contain no other parts. An attached message is one part."""
    if depth > MAX_DEPTH or not part.is_multipart() or part.get_content_type() == EML:
        return [part]
    children = [child for child in part.iter_parts() if isinstance(child, EmailMessage)]
    leaves = [(child, leaf) for child in children for leaf in _collect_leaves(child, depth + 1)]
    if part.get_content_type() != "multipart/alternative":
        return [leaf for _, leaf in leaves]
    # The text is taken once, but attachments may be in any of the versions: some clients put them next to the HTML.
    chosen = _choose_version(children)
    return [leaf for child, leaf in leaves if child in chosen or _is_attachment(leaf)]


def _choose_version(versions: list[EmailMessage]) -> list[EmailMessage]:
    """Return the plain text version unless it is empty, else the last one, which is the richest."""
    plain = [part for part in versions if part.get_content_type() == "text/plain" and _decode_text(part).strip()]
    return plain[:1] or versions[-1:]


def _is_attachment(part: EmailMessage) -> bool:
    return part.get_content_maintype() != "text" or part.is_attachment() or bool(part.get_filename())


def _make_attachment(part: EmailMessage, number: int) -> Attachment:
    is_mail = part.get_content_type() == EML
    name = part.get_filename() or ("message.eml" if is_mail else f"attachment {number}")
    return Attachment(name.replace("/", "-"), part.get_content_type(), _read_payload(part))


def _read_payload(part: EmailMessage) -> bytes:
    inner = part.get_payload()
    if part.get_content_type() == EML and isinstance(inner, list) and inner and isinstance(inner[0], EmailMessage):
        return inner[0].as_bytes()
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _decode_text(part: EmailMessage) -> str:
    payload = _read_payload(part)
    for encoding in (part.get_content_charset() or "utf-8", "utf-8", "cp1252"):
        try:
            return payload.decode(encoding)
        except (UnicodeError, LookupError):
            continue
    return payload.decode("latin-1")
