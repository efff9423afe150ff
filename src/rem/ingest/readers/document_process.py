"""The process that reads one document. A parser that crashes, hangs or uses too much memory affects nothing else.

It reads a line of JSON (the task) and then the document from standard input, and writes its answer as JSON to standard
output. It ends when its input is closed, so it never outlives the process that started it.
"""

from __future__ import annotations

import json
import os
import re
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

_SPREADSHEETS = ("spreadsheetml", "opendocument.spreadsheet", "ms-excel")
_PRESENTATIONS = ("presentationml", "opendocument.presentation")
_OPEN_DOCUMENT_TEXTS = ("application/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.presentation")
_UNLIMITED = 10**12
_STARTED_AT = time.monotonic()
NICE = 5
OCR_TIME_SHARE = 0.8
"""Share of the time limit after which OCR is given up, so there is time left to send the other text."""
MAX_STAMP_CHARS = 150
"""A scanned page may have this much text of its own, such as a stamp of the scanner, and is still read by OCR."""
MAX_OBJECT_HEAD_BYTES = 2000
"""An object begins at most this long before its list of pages."""
MAX_KIDS_BYTES = 1_000_000
_OBJECT = re.compile(rb"(\d{1,9})\s+\d{1,5}\s+obj\b")
_REFERENCE = re.compile(rb"(\d{1,9})\s+\d{1,5}\s+R\b")
_DETECT_ORIENTATION, _NEURAL_ENGINE = 1, 1
"""Tesseract's codes for the page segmentation mode (detect rotated pages) and the engine (LSTM)."""


def main() -> None:
    """Read the task and the document from standard input, and write the answer."""
    source = sys.stdin.buffer
    task = json.loads(source.readline())
    _set_limits(task)
    data = source.read(task["length"])
    if len(data) < task["length"]:
        return
    _exit_at_end_of(source)
    _send(_read(data, task))


def _send(answer: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(answer).encode())
    sys.stdout.buffer.flush()
    # Threads of the parser may still be running, and there is nothing to clean up.
    os._exit(0)


def _set_limits(task: dict[str, Any]) -> None:
    # Some systems cannot limit memory. The time limit works everywhere.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (task["memory_bytes"], task["memory_bytes"]))
    # The soft limit sends SIGXCPU, which tells the reason. The hard limit would send SIGKILL.
    resource.setrlimit(resource.RLIMIT_CPU, (task["seconds"], task["seconds"] + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.alarm(task["seconds"] + 1)
    # Requests come first.
    os.nice(NICE)
    if os.access("/proc/self/oom_score_adj", os.W_OK):
        # If the machine runs out of memory, the kernel kills this process first.
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(descriptor, b"1000")
        os.close(descriptor)


def _exit_at_end_of(source: BinaryIO) -> None:
    def wait() -> None:
        source.read(1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _read(data: bytes, task: dict[str, Any]) -> dict[str, Any]:
    try:
        if task["mime_type"] == "text/html":
            return _read_html(data)
        if task["mime_type"] == "message/rfc822":
            return _read_mail(data)
        return _read_image(data, task) if task["mime_type"].startswith("image/") else _read_document(data, task)
    except MemoryError:
        return {"error": "memory"}
    except ImportError as error:
        return {"error": "missing", "message": str(error)}
    except Exception as error:  # noqa: BLE001 - the parser may raise anything
        return {"error": "malformed", "message": str(error) or type(error).__name__}


def _read_html(data: bytes) -> dict[str, Any]:
    from rem.ingest.readers.html import parse_html

    page = parse_html(data.decode())
    return {"text": page.text, "title": page.title, "metadata": page.metadata}


def _read_mail(data: bytes) -> dict[str, Any]:
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
        "skipped_parts": mail.skipped_parts,
        "written_at": mail.written_at,
    }


def _read_image(data: bytes, task: dict[str, Any]) -> dict[str, Any]:
    from rem.ingest.readers.images import prepare_pages

    texts = [str(_parse(page, {**task, "mime_type": "image/png"}).content) for page in prepare_pages(data)]
    return {"text": _join(map(document_text.unescape_markdown, texts)), "metadata": {"ocr": True}}


def _read_document(data: bytes, task: dict[str, Any]) -> dict[str, Any]:
    """Return the text of a document, together with the text of its images if there is OCR data."""
    mime_type = task["mime_type"]
    if mime_type == "application/pdf" and _has_cyclic_page_tree(data):
        raise ValueError("its page tree contains itself")
    without_ocr = _parse(data, {**task, "tessdata": None})
    answer = {
        "text": _build_text(data, without_ocr, mime_type),
        "title": without_ocr.metadata.title,
        "metadata": _build_metadata(without_ocr, mime_type),
    }
    if not task.get("tessdata") or _is_spreadsheet(mime_type):
        return answer
    with _send_text_without_ocr_in_time(task, answer):
        document = _parse(data, task)
    text = _build_text(data, document, mime_type)
    # The text of the document itself is exact. Add the lines of it that OCR has replaced.
    answer["text"] = _join([text, *document_text.find_missing_lines(answer["text"], text)])
    answer["metadata"] = _build_metadata(document, mime_type)
    return answer


@contextmanager
def _send_text_without_ocr_in_time(task: dict[str, Any], answer: dict[str, Any]) -> Iterator[None]:
    """Send the answer without OCR and exit if the time is nearly over, unless most pages have no other text."""
    metadata = answer["metadata"]
    if 2 * len(metadata.get("pages_without_text", ())) > metadata.get("pages", 0) or not answer["text"].strip():
        yield
        return
    remark = "(The images in this document were not read: there are too many for INGEST__TIMEOUT_SECONDS.)"
    text = _join([answer["text"], remark])
    partial_answer = {**answer, "text": text, "metadata": {**metadata, "pictures_not_read": True}}
    is_done = threading.Event()

    def watch() -> None:
        while not is_done.wait(0.2):
            if max(time.monotonic() - _STARTED_AT, time.process_time()) > OCR_TIME_SHARE * task["seconds"]:
                _send(partial_answer)

    threading.Thread(target=watch, daemon=True).start()
    yield
    is_done.set()


def _parse(data: bytes, task: dict[str, Any]) -> Any:
    import asyncio

    xberg = import_module("xberg")
    source = xberg.ExtractInput(kind="bytes", bytes=data, mime_type=task["mime_type"])
    result = asyncio.run(_extract(xberg, source, _make_config(xberg, task)))
    if result.errors:
        raise ValueError(result.errors[0].message)
    return result.results[0]


async def _extract(xberg: Any, source: Any, config: Any) -> Any:
    return await xberg.extract(source, config)


def _make_ocr_config(xberg: Any, folder: str, languages: list[str]) -> Any:
    return xberg.OcrConfig(
        backend="tesseract",
        language=languages,
        tessdata_path=folder,
        tesseract_config=xberg.TesseractConfig(
            language=languages,
            psm=_DETECT_ORIENTATION,
            oem=_NEURAL_ENGINE,
            # Its Markdown output loses lines and takes wide spaces for tables.
            output_format="text",
            enable_table_detection=False,
            use_cache=False,
        ),
        # A page with little text may be a scan with a stamp.
        quality_thresholds=xberg.OcrQualityThresholds(
            min_total_non_whitespace=MAX_STAMP_CHARS, min_non_whitespace_per_page=MAX_STAMP_CHARS
        ),
    )


def _make_config(xberg: Any, task: dict[str, Any]) -> Any:
    """Return a configuration that extracts everything in the document and loads nothing from elsewhere."""
    max_bytes = task["max_bytes"]
    ocr_folder = task.get("tessdata")
    return xberg.ExtractionConfig(
        output_format="markdown",
        use_cache=False,
        enable_quality_processing=False,
        escape_markdown=False,
        disable_ocr=ocr_folder is None,
        ocr=_make_ocr_config(xberg, ocr_folder, task["languages"]) if ocr_folder else None,
        pages=xberg.PageConfig(extract_pages=True),
        # Read the attachments of Outlook messages, but no archives in other documents.
        max_archive_depth=1 if task["mime_type"] == "application/vnd.ms-outlook" else 0,
        # Include form fields and annotations.
        pdf_options=xberg.PdfConfig(extract_annotations=True),
        content_filter=xberg.ContentFilterConfig(
            include_headers=True,
            include_footers=True,
            include_footnotes=True,
            include_watermarks=True,
            strip_repeating_text=False,
        ),
        # The process limits its memory and time itself; limits of the parser would cut off tables silently.
        security_limits=xberg.SecurityLimits(
            max_archive_size=max_bytes,
            max_content_size=max_bytes,
            max_compression_ratio=_UNLIMITED,
            max_table_cells=_UNLIMITED,
            max_iterations=_UNLIMITED,
        ),
    )


def _build_text(data: bytes, document: Any, mime_type: str) -> str:
    text = str(document.content)
    pages = document.pages or []
    if _is_spreadsheet(mime_type):
        text = document_text.format_sheets(text, [table.cells for table in document.tables])
    elif any(part in mime_type for part in _PRESENTATIONS) and any(page.speaker_notes for page in pages):
        text = document_text.format_slides([(page.content, page.speaker_notes) for page in pages])
    if not _is_spreadsheet(mime_type):
        text = document_text.unescape_markdown(text)
    parts = [text.strip("\n"), *_format_comments(document)]
    if "spreadsheetml" in mime_type and any(map(_is_formula_key, document.metadata.additional)):
        parts += document_text.list_formulas(data)
    if "officedocument" in mime_type or mime_type in _OPEN_DOCUMENT_TEXTS:
        parts += document_text.find_missing_paragraphs(data, text)
    return _join(parts)


def _join(parts: Iterable[str]) -> str:
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _is_spreadsheet(mime_type: str) -> bool:
    return any(part in mime_type for part in _SPREADSHEETS)


def _is_formula_key(name: str) -> bool:
    return name.startswith("formulas_")


def _format_comments(document: Any) -> list[str]:
    """Return the comments on cells, which the parser puts into the metadata only."""
    comments = document.metadata.additional.get("comments")
    return [f"Comments: {json.loads(comments)}"] if comments else []


def _build_metadata(document: Any, mime_type: str) -> dict[str, Any]:
    properties = document.metadata
    pages = document.pages or []
    metadata = {
        "authors": properties.authors,
        "subject": properties.subject,
        "keywords": properties.keywords,
        "created_at": properties.created_at,
        "modified_at": properties.modified_at,
        "pages": len(pages) or None,
        "pages_without_text": [page.page_number for page in pages if not page.content.strip()],
        "ocr": properties.ocr_used or None,
        "formulas": {
            name.removeprefix("formulas_"): json.loads(value)
            for name, value in properties.additional.items()
            # The parser reads wrong formulas from the old XLS format.
            if _is_formula_key(name) and "spreadsheetml" in mime_type
        },
    }
    return {name: value for name, value in metadata.items() if value}


def _has_cyclic_page_tree(data: bytes) -> bool:
    """Return whether a part of a PDF's page tree contains itself, which parsers follow without end.

    Only trees in plain objects are seen. The time limit ends the others.
    """
    tree: dict[int, list[int]] = {}
    position = data.find(b"/Kids")
    while position >= 0:
        head = data[max(0, position - MAX_OBJECT_HEAD_BYTES) : position]
        number = next(iter(_OBJECT.findall(head)[-1:]), None)
        array_end = data.find(b"]", position, position + MAX_KIDS_BYTES)
        if number is not None and array_end > 0:
            tree[int(number)] = [int(kid) for kid in _REFERENCE.findall(data[position:array_end])]
        position = data.find(b"/Kids", position + 1)
    return _has_cycle(tree)


def _has_cycle(tree: dict[int, list[int]]) -> bool:
    """Return whether a node can be reached from itself. A node is done when all nodes below it are done."""
    done: set[int] = set()
    for root in tree:
        if root in done:
            continue
        path = {root}
        pending = [(root, iter(tree[root]))]
        while pending:
            node, kids = pending[-1]
            kid = next((kid for kid in kids if kid in tree and kid not in done), None)
            if kid is None:
                done.add(node)
                path.remove(node)
                pending.pop()
            elif kid in path:
                return True
            else:
                path.add(kid)
                pending.append((kid, iter(tree[kid])))
    return False


if __name__ == "__main__":
    main()
