"""Choose the reader for a file by its format. A new format is added here and in `mime.py`."""

from __future__ import annotations

import asyncio
from functools import partial

from rem.errors import FileEmptyError, FileTooLargeError, FileUnreadableError, InvalidInputError
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.readers import mime
from rem.ingest.readers.data import read_data
from rem.ingest.readers.markdown import read_markdown
from rem.ingest.readers.tables import read_table
from rem.ingest.readers.text import decode_text, detect_language, read_code, read_text
from rem.settings import Settings

MAX_IN_PROCESS_HTML_CHARS = 200_000
"""Larger pages are parsed in a process of their own: some take quadratic time, and a thread cannot be stopped."""
MAX_ATTACHMENT_DEPTH = 2


async def read_file(file: FetchedFile, settings: Settings) -> ParsedDocument:
    """Return the whole text of a file. Raise a FileUnreadableError with the reason if it has none.

    The content decides before the name: a PDF called `.txt` is read as a PDF. A text called `.pdf` is rejected,
    because it is usually the error page of a server.
    """
    return await _read(file, settings, 0)


async def _read(file: FetchedFile, settings: Settings, depth: int) -> ParsedDocument:
    if not file.data:
        raise FileEmptyError(f"{file.name} is empty.")
    if len(file.data) > settings.ingest.max_bytes:
        raise FileTooLargeError(f"{file.name} is larger than {settings.ingest.max_bytes:,} bytes (INGEST__MAX_BYTES).")
    mime_type = await asyncio.to_thread(mime.detect_mime_type, file)
    if mime_type is None or mime_type.startswith("text/") or mime_type in mime.DATA_TYPES:
        return await _read_text_format(file, mime_type, settings)
    if mime_type in mime.DOCUMENT_TYPES or mime_type.startswith("image/"):
        return await _read_document(file, mime_type, settings)
    if mime_type == mime.EML:
        from rem.ingest.readers.mail import read_mail

        return await read_mail(file, settings.ingest, partial(_read_attachment, settings=settings, depth=depth))
    if mime_type.startswith("audio/"):
        return await _read_audio(file, mime_type, settings)
    if mime_type.startswith("video/"):
        raise FileUnreadableError(f"{file.name} is a video, which REM cannot read: ingest its sound or its subtitles.")
    return await _read_text_format(file, None, settings)


async def _read_attachment(file: FetchedFile, settings: Settings, depth: int) -> ParsedDocument:
    if depth >= MAX_ATTACHMENT_DEPTH:
        raise FileUnreadableError(f"{file.name} is nested too deeply in attachments.")
    return await _read(file, settings, depth + 1)


async def _read_text_format(file: FetchedFile, mime_type: str | None, settings: Settings) -> ParsedDocument:
    """Read a text format in a thread, because large texts take a while."""
    language = detect_language(file)
    if mime_type == mime.HTML:
        return await _read_html(file, settings)
    if mime_type == mime.MARKDOWN:
        return await asyncio.to_thread(read_markdown, file)
    if mime_type in mime.TABLE_TYPES:
        return await asyncio.to_thread(read_table, file, mime_type, settings.ingest.max_expanded_bytes)
    if mime_type in mime.DATA_TYPES:
        return await asyncio.to_thread(read_data, file, mime_type)
    if language:
        return await asyncio.to_thread(read_code, file, language)
    return await asyncio.to_thread(read_text, file, mime_type or mime.PLAIN)


async def _read_html(file: FetchedFile, settings: Settings) -> ParsedDocument:
    from rem.ingest.readers.documents import run_document_process
    from rem.ingest.readers.html import find_declared_charset, parse_html

    html, encoding_info = decode_text(file, declared_charset=find_declared_charset(file.data))
    if len(html) <= MAX_IN_PROCESS_HTML_CHARS:
        text, title, metadata = await asyncio.to_thread(parse_html, html)
    else:
        html_file = FetchedFile(file.name, file.uri, html.encode())
        answer = await run_document_process(html_file, mime.HTML, "HTML", settings.ingest)
        text, title, metadata = answer["text"], answer.get("title"), answer["metadata"]
    if not text.strip():
        raise FileUnreadableError(f"{file.name} has no visible text in it.")
    return ParsedDocument(text, "markdown", mime.HTML, title, {**metadata, **encoding_info})


async def _read_document(file: FetchedFile, mime_type: str, settings: Settings) -> ParsedDocument:
    from rem.ingest.readers.documents import read_document

    if mime_type in mime.DOCUMENT_TYPES and mime.looks_like_text(file):
        label = mime.LABELS[mime_type]
        raise FileUnreadableError(f"{file.name} is called {label} but is a text: rename it to .txt or .html.")
    return await read_document(file, mime_type, settings.ingest)


async def _read_audio(file: FetchedFile, mime_type: str, settings: Settings) -> ParsedDocument:
    """Return the speech in a recording as text, transcribed by the provider that AUDIO__PROVIDER names."""
    from rem.audio.transcription import detect_audio_type, transcribe

    max_bytes = settings.audio.max_bytes
    if len(file.data) > max_bytes:
        raise FileTooLargeError(f"{file.name} is larger than {max_bytes:,} bytes (AUDIO__MAX_BYTES): split it.")
    try:
        detect_audio_type(file.data)
        text = await transcribe(file.data, settings)
    except InvalidInputError as error:
        raise FileUnreadableError(f"{file.name} cannot be read as a recording: {error}") from error
    if not text.strip():
        raise FileUnreadableError(f"{file.name} contains no speech.")
    return ParsedDocument(text, "text", mime_type, metadata={"transcribed": True})
