"""Check documents that are ZIP archives before they are parsed: their size when unpacked, and encryption."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from io import BytesIO

from rem.errors import FileTooLargeError, FileUnreadableError

MAX_ZIP_ENTRIES = 10_000
READ_BYTES = 1 << 20
_ENCRYPTED = 0x1
MAX_COMPRESSION_RATIO = 200
"""Office documents are compressed about 10 to 1, and 50 to 1 at most; a zip bomb about 1,000 to 1."""
MIN_RATIO_CHECK_BYTES = 10_000_000
"""Smaller contents are not checked for the ratio."""
_MANIFEST = "META-INF/manifest.xml"


def check_zip(data: bytes, name: str, label: str, max_bytes: int) -> None:
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
