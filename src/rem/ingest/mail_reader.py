"""The text of an e-mail with its attachments."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from rem.errors import FileUnreadableError, RemError
from rem.ingest.content import Document, FetchedFile
from rem.ingest.dates import time_of
from rem.ingest.documents import run
from rem.ingest.mime import EML, LABELS
from rem.settings import IngestSettings

ReadAttachment: TypeAlias = Callable[[FetchedFile], Awaitable[Document]]


async def read_mail(file: FetchedFile, settings: IngestSettings, read_attachment: ReadAttachment) -> Document:
    """Who wrote what to whom, and the text of what was attached; an attachment that cannot be read is named."""
    mail = await run(file, EML, LABELS[EML], settings)
    headers: dict[str, str] = mail["headers"]
    if not headers:
        raise FileUnreadableError(f"{file.name} cannot be read as e-mail: it has no sender, recipient or subject.")
    parts = ["\n".join(f"{name}: {value}" for name, value in headers.items()), *mail["texts"]]
    metadata: dict[str, Any] = {name.lower(): value for name, value in headers.items()}
    for attachment in mail["attachments"]:
        text, facts = await _read(file, attachment, read_attachment)
        parts.append(f"## {attachment['name']}\n\n{text}")
        metadata.setdefault("attachments", []).append(facts)
    if mail["left_out"]:
        parts.append(f"({mail['left_out']:,} more parts of this e-mail were not read.)")
        metadata["parts_not_read"] = mail["left_out"]
    text = "\n\n".join(part.strip("\n") for part in parts if part.strip())
    return Document(text + "\n", "markdown", EML, headers.get("Subject"), metadata, time_of(mail["written_at"]))


async def _read(
    mail: FetchedFile, attachment: dict[str, str], read_attachment: ReadAttachment
) -> tuple[str, dict[str, str]]:
    name = attachment["name"]
    data = b64decode(attachment["data"])
    try:
        document = await read_attachment(FetchedFile(name, f"{mail.uri}#{name}", data, attachment["mime_type"]))
    except RemError as error:
        return f"(not read: {error})", {"name": name, "problem": str(error)}
    return document.text, {"name": name, "mime_type": document.mime_type}
