"""From bytes to text: which reader takes which kind of file."""

from __future__ import annotations

import asyncio
from functools import partial

from rem.errors import FileEmptyError, FileTooLargeError, FileUnreadableError
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.readers import mime
from rem.ingest.readers.data import read_data
from rem.ingest.readers.markdown import read_markdown
from rem.ingest.readers.tables import read_table
from rem.ingest.readers.text import decode_text, detect_language, read_code, read_text
from rem.settings import Settings

_SMALL_PAGE = 200_000
"""The library's parser takes time that grows with the square of some pages, and a thread cannot be stopped."""
_DEEPEST_MAIL = 2


async def read_file(file: FetchedFile, settings: Settings) -> ParsedDocument:
    """The whole text of a file. A FileUnreadableError says why there is none.

    What the bytes are counts before what the name says: a PDF called `.txt` is read as a PDF. A text called `.pdf`
    is refused, because it is mostly the error page of some server.
    """
    return await _read(file, settings, 0)


async def _read(file: FetchedFile, settings: Settings, depth: int) -> ParsedDocument:
    if not file.data:
        raise FileEmptyError(f"{file.name} is empty.")
    if len(file.data) > settings.ingest.max_bytes:
        raise FileTooLargeError(f"{file.name} is larger than {settings.ingest.max_bytes:,} bytes (INGEST__MAX_BYTES).")
    kind = await asyncio.to_thread(mime.detect_mime_type, file)
    if kind is None or kind.startswith("text/") or kind in mime.DATA:
        return await _read_text(file, kind, settings)
    if kind in mime.DOCUMENTS or kind.startswith("image/"):
        return await _read_document(file, kind, settings)
    if kind == mime.EML:
        from rem.ingest.readers.mail import read_mail

        return await read_mail(file, settings.ingest, partial(_read_attachment, settings=settings, depth=depth))
    if kind.startswith("audio/"):
        from rem.ingest.readers.audio import read_audio

        return await read_audio(file, kind, settings)
    if kind.startswith("video/"):
        raise FileUnreadableError(f"{file.name} is a video, which REM does not read: take in its sound or subtitles.")
    return await _read_text(file, None, settings)


async def _read_attachment(file: FetchedFile, settings: Settings, depth: int) -> ParsedDocument:
    if depth >= _DEEPEST_MAIL:
        raise FileUnreadableError(f"{file.name} is attached to an attachment of an attachment.")
    return await _read(file, settings, depth + 1)


async def _read_text(file: FetchedFile, kind: str | None, settings: Settings) -> ParsedDocument:
    """By a thread, because large texts take their time."""
    language = detect_language(file)
    if kind == mime.HTML:
        return await _read_html(file, settings)
    if kind == mime.MARKDOWN:
        return await asyncio.to_thread(read_markdown, file)
    if kind in mime.TABLES:
        return await asyncio.to_thread(read_table, file, kind, settings.ingest.max_expanded_bytes)
    if kind in mime.DATA:
        return await asyncio.to_thread(read_data, file, kind)
    if language and (kind is None or not _is_specific(kind)):
        return await asyncio.to_thread(read_code, file, language)
    return await asyncio.to_thread(read_text, file, kind or mime.PLAIN)


def _is_specific(kind: str) -> bool:
    """Whether a server knows more of a file than its name says: it serves pages from files of code."""
    return kind in (mime.HTML, mime.MARKDOWN) or kind in mime.TABLES or kind in mime.DATA


async def _read_html(file: FetchedFile, settings: Settings) -> ParsedDocument:
    from rem.ingest.readers.documents import run_document_process
    from rem.ingest.readers.html import declared_charset, parse_html

    html, facts = decode_text(file, said=declared_charset(file.data))
    if len(html) <= _SMALL_PAGE:
        page = await asyncio.to_thread(parse_html, html)
        text, title, metadata = page
    else:
        answer = await run_document_process(
            FetchedFile(file.name, file.uri, html.encode()), mime.HTML, "HTML", settings.ingest
        )
        text, title, metadata = answer["text"], answer.get("title"), answer["metadata"]
    if not text.strip():
        raise FileUnreadableError(f"{file.name} has no visible text in it.")
    return ParsedDocument(text, "markdown", mime.HTML, title, {**metadata, **facts})


async def _read_document(file: FetchedFile, kind: str, settings: Settings) -> ParsedDocument:
    from rem.ingest.readers.documents import read_document

    if kind in mime.DOCUMENTS and mime.is_text(file):
        label = mime.LABELS[kind]
        raise FileUnreadableError(
            f"{file.name} is called {label} but is a text: rename it to .txt, or .html, if that is what you want."
        )
    return await read_document(file, kind, settings.ingest)
