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
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, BinaryIO

from rem.ingest.readers import document_text

_CELLS = ("spreadsheetml", "opendocument.spreadsheet", "ms-excel")
_PRESENTATIONS = ("presentationml", "opendocument.presentation")
_OPEN_TEXTS = ("application/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.presentation")
_UNLIMITED = 10**12
_START = time.monotonic()
_SHARE = 0.8
"""Of the time that a document may take, for all but sending what was found."""
_STAMP = 150
"""Letters on a page that may have been put on its picture by a scanner."""
_ANY_DIRECTION, _NEURAL = 1, 1
"""Tesseract's numbers: turn pages that lie on their side, and read with the network that reads lines as a whole."""


def main() -> None:
    """Read one document."""
    source = sys.stdin.buffer
    task = json.loads(source.readline())
    _limit(task)
    data = source.read(task["length"])
    if len(data) < task["length"]:
        return
    _end_with(source)
    _send(_answer(data, task))


def _send(answer: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(answer).encode())
    sys.stdout.buffer.flush()
    # Threads of the parser may still be busy, and nothing is left to tidy up.
    os._exit(0)


def _limit(task: dict[str, Any]) -> None:
    # Not every system can limit memory; the limit of time holds everywhere.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (task["memory"], task["memory"]))
    # The signal of the first limit tells why it ended; that of the second one would not.
    resource.setrlimit(resource.RLIMIT_CPU, (task["seconds"], task["seconds"] + 5))
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
        return _picture(data, task) if task["mime_type"].startswith("image/") else _document(data, task)
    except MemoryError:
        return {"problem": "memory"}
    except ImportError as error:
        return {"problem": "missing", "message": str(error)}
    except Exception as error:  # noqa: BLE001 - the parser has no promise of what it raises
        return {"problem": "malformed", "message": str(error) or type(error).__name__}


def _page(data: bytes) -> dict[str, Any]:
    from rem.ingest.readers.html import parse_html

    page = parse_html(data.decode())
    return {"text": page.text, "title": page.title, "metadata": page.metadata}


def _mail(data: bytes) -> dict[str, Any]:
    from rem.ingest.readers.mail import parse_mail

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


def _picture(data: bytes, task: dict[str, Any]) -> dict[str, Any]:
    from rem.ingest.readers.images import prepare_pages

    texts = [str(_parsed(page, {**task, "mime_type": "image/png"}).content) for page in prepare_pages(data)]
    return {"text": _joined(map(document_text.unescaped, texts)), "metadata": {"ocr": True}}


def _document(data: bytes, task: dict[str, Any]) -> dict[str, Any]:
    """What a document says itself, and what is to be read from its pictures."""
    mime_type = task["mime_type"]
    own = _parsed(data, {**task, "tessdata": None})
    answer = {"text": _text(data, own, mime_type), "title": own.metadata.title, "metadata": _metadata(own, mime_type)}
    if not task.get("tessdata") or _is_cells(mime_type):
        return answer
    with _time_for_pictures(task, answer):
        document = _parsed(data, task)
    text = _text(data, document, mime_type)
    # What a page says itself is right to the letter, and is not given up for what was read from its picture.
    answer["text"] = _joined([text, *document_text.lines_left_out(answer["text"], text)])
    answer["metadata"] = _metadata(document, mime_type)
    return answer


@contextmanager
def _time_for_pictures(task: dict[str, Any], answer: dict[str, Any]) -> Iterator[None]:
    """When the time is nearly over, the answer is what is known already, if that is most of the document."""
    facts = answer["metadata"]
    if 2 * len(facts.get("pages_without_text", ())) > facts.get("pages", 0) or not answer["text"].strip():
        yield
        return
    remark = "(The pictures in this document were not read: there are too many for INGEST__TIMEOUT_SECONDS.)"
    known = {**answer, "text": _joined([answer["text"], remark]), "metadata": {**facts, "pictures_not_read": True}}
    is_read = threading.Event()

    def watch() -> None:
        while not is_read.wait(0.2):
            if max(time.monotonic() - _START, time.process_time()) > _SHARE * task["seconds"]:
                _send(known)

    threading.Thread(target=watch, daemon=True).start()
    yield
    is_read.set()


def _parsed(data: bytes, task: dict[str, Any]) -> Any:
    import asyncio

    xberg = import_module("xberg")
    source = xberg.ExtractInput(kind="bytes", bytes=data, mime_type=task["mime_type"])
    result = asyncio.run(_extract(xberg, source, _config(xberg, task)))
    if result.errors:
        raise ValueError(result.errors[0].message)
    return result.results[0]


async def _extract(xberg: Any, source: Any, config: Any) -> Any:
    return await xberg.extract(source, config)


def _ocr(xberg: Any, folder: str, languages: list[str]) -> Any:
    return xberg.OcrConfig(
        backend="tesseract",
        language=languages,
        tessdata_path=folder,
        tesseract_config=xberg.TesseractConfig(
            language=languages,
            psm=_ANY_DIRECTION,
            oem=_NEURAL,
            # The parser's own Markdown of a picture leaves out lines, and takes wide spaces for tables.
            output_format="text",
            enable_table_detection=False,
            use_cache=False,
        ),
        # A page with a line or two of text on it may be a scan with a stamp.
        quality_thresholds=xberg.OcrQualityThresholds(
            min_total_non_whitespace=_STAMP, min_non_whitespace_per_page=_STAMP
        ),
    )


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
        ocr=_ocr(xberg, folder, task["languages"]) if folder else None,
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
    text = str(document.content)
    pages = document.pages or []
    if _is_cells(mime_type):
        text = document_text.sheets(text, [table.cells for table in document.tables])
    elif any(kind in mime_type for kind in _PRESENTATIONS) and any(page.speaker_notes for page in pages):
        text = document_text.with_notes([(page.content, page.speaker_notes) for page in pages])
    if not _is_cells(mime_type):
        text = document_text.unescaped(text)
    parts = [text.strip("\n"), *_comments(document)]
    if "spreadsheetml" in mime_type and any(map(_is_formulas, document.metadata.additional)):
        parts += document_text.formulas(data)
    if "officedocument" in mime_type or mime_type in _OPEN_TEXTS:
        parts += document_text.left_out(data, text)
    return _joined(parts)


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _is_cells(mime_type: str) -> bool:
    return any(kind in mime_type for kind in _CELLS)


def _is_formulas(name: str) -> bool:
    return name.startswith("formulas_")


def _comments(document: Any) -> list[str]:
    """Comments on cells, which the parser only mentions."""
    comments = document.metadata.additional.get("comments")
    return [f"Comments: {json.loads(comments)}"] if comments else []


def _metadata(document: Any, mime_type: str) -> dict[str, Any]:
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
            # The parser takes those of the old kind for others than they are.
            if _is_formulas(name) and "spreadsheetml" in mime_type
        },
    }
    return {name: value for name, value in found.items() if value}


if __name__ == "__main__":
    main()
