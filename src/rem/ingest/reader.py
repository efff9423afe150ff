"""From bytes to text: which reader takes which kind of file."""

from __future__ import annotations

import asyncio
from functools import partial

from rem.errors import FileEmptyError, FileTooLargeError, FileUnreadableError
from rem.ingest import mime
from rem.ingest.code_reader import language_of, read_code
from rem.ingest.content import Document, FetchedFile
from rem.ingest.data_reader import read_data
from rem.ingest.markdown_reader import read_markdown
from rem.ingest.table_reader import read_table
from rem.ingest.text_reader import decode, read_text
from rem.settings import Settings

_SMALL_PAGE = 200_000
"""The library's parser takes time that grows with the square of some pages, and a thread cannot be stopped."""
_DEEPEST_MAIL = 2


async def read(file: FetchedFile, settings: Settings) -> Document:
    """The whole text of a file. A FileUnreadableError says why there is none.

    What the bytes are counts before what the name says: a PDF called `.txt` is read as a PDF. A text called `.pdf`
    is refused, because it is mostly the error page of some server.
    """
    return await _read(file, settings, 0)


async def _read(file: FetchedFile, settings: Settings, depth: int) -> Document:
    if not file.data:
        raise FileEmptyError(f"{file.name} is empty.")
    if len(file.data) > settings.ingest.max_bytes:
        raise FileTooLargeError(f"{file.name} is larger than {settings.ingest.max_bytes:,} bytes (INGEST__MAX_BYTES).")
    kind = await asyncio.to_thread(mime.mime_type_of, file)
    if kind is None or kind.startswith("text/") or kind in mime.DATA:
        return await _read_text(file, kind, settings)
    if kind in mime.DOCUMENTS or kind.startswith("image/"):
        return await _read_document(file, kind, settings)
    if kind == mime.EML:
        from rem.ingest.mail_reader import read_mail

        return await read_mail(file, settings.ingest, partial(_read_attachment, settings=settings, depth=depth))
    if kind.startswith("audio/"):
        from rem.ingest.audio_reader import read_audio

        return await read_audio(file, kind, settings)
    if kind.startswith("video/"):
        raise FileUnreadableError(f"{file.name} is a video, which REM does not read: take in its sound or subtitles.")
    return await _read_text(file, None, settings)


async def _read_attachment(file: FetchedFile, settings: Settings, depth: int) -> Document:
    if depth >= _DEEPEST_MAIL:
        raise FileUnreadableError(f"{file.name} is attached to an attachment of an attachment.")
    return await _read(file, settings, depth + 1)


async def _read_text(file: FetchedFile, kind: str | None, settings: Settings) -> Document:
    """By a thread, because large texts take their time."""
    language = language_of(file)
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


async def _read_html(file: FetchedFile, settings: Settings) -> Document:
    from rem.ingest.documents import run
    from rem.ingest.html_reader import declared_charset, read_page

    html, facts = decode(file, said=declared_charset(file.data))
    if len(html) <= _SMALL_PAGE:
        page = await asyncio.to_thread(read_page, html)
        text, title, metadata = page
    else:
        answer = await run(FetchedFile(file.name, file.uri, html.encode()), mime.HTML, "HTML", settings.ingest)
        text, title, metadata = answer["text"], answer.get("title"), answer["metadata"]
    if not text.strip():
        raise FileUnreadableError(f"{file.name} has no visible text in it.")
    return Document(text, "markdown", mime.HTML, title, {**metadata, **facts})


async def _read_document(file: FetchedFile, kind: str, settings: Settings) -> Document:
    from rem.ingest.documents import read_document

    if kind in mime.DOCUMENTS and mime.is_text(file):
        label = mime.LABELS[kind]
        raise FileUnreadableError(
            f"{file.name} is called {label} but is a text: rename it to .txt, or .html, if that is what you want."
        )
    return await read_document(file, kind, settings.ingest)
