"""A process that reads one document, so that a parser that crashes, hangs or blows up takes nothing else along.

It gets a line of JSON and then the document on its standard input, answers with JSON on its standard output, and ends
when its input ends: nothing of it outlives whoever started it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from base64 import b64encode
from contextlib import suppress
from importlib import import_module
from typing import Any, BinaryIO

_CELLS = ("spreadsheetml", "opendocument.spreadsheet", "ms-excel")
_PRESENTATIONS = ("presentationml", "opendocument.presentation")
_OPEN_TEXTS = ("application/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.presentation")
_UNLIMITED = 10**12


def main() -> None:
    """Read one document."""
    source = sys.stdin.buffer
    task = json.loads(source.readline())
    _limit(task)
    data = source.read(task["length"])
    if len(data) < task["length"]:
        return
    _end_with(source)
    answer = _answer(data, task)
    sys.stdout.buffer.write(json.dumps(answer).encode())
    sys.stdout.buffer.flush()
    # Threads of the parser may still be busy, and nothing is left to tidy up.
    os._exit(0)


def _limit(task: dict[str, Any]) -> None:
    # Not every system can limit memory; the limit of time holds everywhere.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (task["memory"], task["memory"]))
    resource.setrlimit(resource.RLIMIT_CPU, (task["seconds"], task["seconds"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.alarm(task["seconds"] + 1)
    if os.access("/proc/self/oom_score_adj", os.W_OK):
        # If memory runs out after all, this process is the one to go.
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(descriptor, b"1000")
        os.close(descriptor)


def _end_with(source: BinaryIO) -> None:
    def wait() -> None:
        source.read(1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _answer(data: bytes, task: dict[str, Any]) -> dict[str, Any]:
    try:
        if task["mime_type"] == "text/html":
            return _page(data)
        if task["mime_type"] == "message/rfc822":
            return _mail(data)
        return _document(data, task)
    except MemoryError:
        return {"problem": "memory"}
    except ImportError as error:
        return {"problem": "missing", "message": str(error)}
    except Exception as error:  # noqa: BLE001 - the parser has no promise of what it raises
        return {"problem": "malformed", "message": str(error) or type(error).__name__}


def _page(data: bytes) -> dict[str, Any]:
    from rem.ingest.html_reader import read_page

    page = read_page(data.decode())
    return {"text": page.text, "title": page.title, "metadata": page.metadata}


def _mail(data: bytes) -> dict[str, Any]:
    from rem.ingest.mail import parse_mail

    mail = parse_mail(data)
    attachments = [
        {"name": item.name, "mime_type": item.mime_type, "data": b64encode(item.data).decode()}
        for item in mail.attachments
    ]
    return {
        "headers": mail.headers,
        "texts": mail.texts,
        "attachments": attachments,
        "left_out": mail.left_out,
        "written_at": mail.written_at,
    }


def _document(data: bytes, task: dict[str, Any]) -> dict[str, Any]:
    import asyncio

    xberg = import_module("xberg")
    source = xberg.ExtractInput(kind="bytes", bytes=data, mime_type=task["mime_type"])
    result = asyncio.run(_extract(xberg, source, _config(xberg, task)))
    if result.errors:
        return {"problem": "malformed", "message": str(result.errors[0].message)}
    document = result.results[0]
    return {
        "text": _text(data, document, task["mime_type"]),
        "title": document.metadata.title,
        "metadata": _metadata(document),
    }


async def _extract(xberg: Any, source: Any, config: Any) -> Any:
    return await xberg.extract(source, config)


def _config(xberg: Any, task: dict[str, Any]) -> Any:
    """Everything that is in the document, nothing from elsewhere."""
    most = task["most"]
    folder = task.get("tessdata")
    return xberg.ExtractionConfig(
        output_format="markdown",
        use_cache=False,
        enable_quality_processing=False,
        escape_markdown=False,
        disable_ocr=folder is None,
        ocr=xberg.OcrConfig(backend="tesseract", language=task["languages"], tessdata_path=folder) if folder else None,
        pages=xberg.PageConfig(extract_pages=True),
        # Attachments of Outlook's messages; no archives in archives.
        max_archive_depth=1 if task["mime_type"] == "application/vnd.ms-outlook" else 0,
        # What was filled into forms and stuck onto pages comes with it.
        pdf_options=xberg.PdfConfig(extract_annotations=True),
        content_filter=xberg.ContentFilterConfig(
            include_headers=True,
            include_footers=True,
            include_footnotes=True,
            include_watermarks=True,
            strip_repeating_text=False,
        ),
        # The sizes were checked before, and this process has limits of its own: a table must not be cut off silently.
        security_limits=xberg.SecurityLimits(
            max_archive_size=most,
            max_content_size=most,
            max_compression_ratio=_UNLIMITED,
            max_table_cells=_UNLIMITED,
            max_iterations=_UNLIMITED,
        ),
    )


def _text(data: bytes, document: Any, mime_type: str) -> str:
    from rem.ingest import document_text

    text = str(document.content)
    pages = document.pages or []
    if any(kind in mime_type for kind in _CELLS):
        text = document_text.sheets(text, [table.cells for table in document.tables])
    elif any(kind in mime_type for kind in _PRESENTATIONS) and any(page.speaker_notes for page in pages):
        text = document_text.with_notes([(page.content, page.speaker_notes) for page in pages])
    if not any(kind in mime_type for kind in _CELLS):
        text = document_text.unescaped(text)
    parts = [text.strip("\n"), *_comments(document)]
    if "spreadsheetml" in mime_type and any(map(_is_formulas, document.metadata.additional)):
        parts += document_text.formulas(data)
    if "officedocument" in mime_type or mime_type in _OPEN_TEXTS:
        parts += document_text.left_out(data, text)
    return "\n\n".join(filter(None, parts)) + "\n"


def _is_formulas(name: str) -> bool:
    return name.startswith("formulas_")


def _comments(document: Any) -> list[str]:
    """Comments on cells, which the parser only mentions."""
    comments = document.metadata.additional.get("comments")
    return [f"Comments: {json.loads(comments)}"] if comments else []


def _metadata(document: Any) -> dict[str, Any]:
    facts = document.metadata
    pages = document.pages or []
    found = {
        "authors": facts.authors,
        "subject": facts.subject,
        "keywords": facts.keywords,
        "created_at": facts.created_at,
        "modified_at": facts.modified_at,
        "pages": len(pages) or None,
        "pages_without_text": [page.page_number for page in pages if not page.content.strip()],
        "ocr": facts.ocr_used or None,
        "formulas": {
            name.removeprefix("formulas_"): json.loads(value)
            for name, value in facts.additional.items()
            if _is_formulas(name)
        },
    }
    return {name: value for name, value in found.items() if value}


if __name__ == "__main__":
    main()
