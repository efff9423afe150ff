"""Packed documents are looked through before anyone reads them: how much they hold, and whether they are locked."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from io import BytesIO

from rem.errors import FileTooLargeError, FileUnreadableError

_MOST_ENTRIES = 10_000
_PART = 1 << 20
_ENCRYPTED = 0x1
_HIGHEST_RATIO = 200
"""Office documents are packed about 10 to 1, and 50 to 1 at most; a bomb about 1000 to 1."""
_RATIO_COUNTS_FROM = 10_000_000
_MANIFEST = "META-INF/manifest.xml"


def check_zip(data: bytes, name: str, label: str, most: int) -> None:
    """Raise an error unless an archive can be unpacked into at most so many bytes. Archives inside stay packed."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            _check_entries(archive, name, most)
            _check_content(archive, name, most, len(data))
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


def _check_entries(archive: zipfile.ZipFile, name: str, most: int) -> None:
    entries = archive.infolist()
    if len(entries) > _MOST_ENTRIES:
        raise FileTooLargeError(f"{name} holds {len(entries):,} parts, more than {_MOST_ENTRIES:,}: it is not read.")
    if any(entry.flag_bits & _ENCRYPTED for entry in entries) or _is_locked(archive):
        raise FileUnreadableError(f"{name} is encrypted: remove the password and take it in again.")
    if sum(entry.file_size for entry in entries) > most:
        raise _too_large(name, most)


def _is_locked(archive: zipfile.ZipFile) -> bool:
    """Whether an OpenDocument file says that its parts are encrypted."""
    if _MANIFEST not in archive.namelist():
        return False
    with archive.open(_MANIFEST) as part:
        return b"encryption-data" in part.read(_PART)


def _check_content(archive: zipfile.ZipFile, name: str, most: int, packed: int) -> None:
    """Unpack everything and count: what an archive says of its sizes may be a lie."""
    total = 0
    for entry in archive.infolist():
        with archive.open(entry) as part:
            while read := part.read(_PART):
                total += len(read)
                if total > most:
                    raise _too_large(name, most)
                if total > _RATIO_COUNTS_FROM and total > packed * _HIGHEST_RATIO:
                    raise FileTooLargeError(f"{name} is packed more tightly than any document is: it is not read.")


def _too_large(name: str, most: int) -> FileTooLargeError:
    return FileTooLargeError(
        f"{name} holds more than {most:,} bytes unpacked (INGEST__MAX_EXPANDED_BYTES): take in smaller parts."
    )
