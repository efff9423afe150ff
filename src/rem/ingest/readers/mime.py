"""What kind of file it is: by its first bytes, then by its name, then by what the server says."""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from rem.errors import FileUnreadableError
from rem.ingest.models import FetchedFile

_OFFICE = "application/vnd.openxmlformats-officedocument."
_OPEN = "application/vnd.oasis.opendocument."
DOCX = f"{_OFFICE}wordprocessingml.document"
XLSX = f"{_OFFICE}spreadsheetml.sheet"
PPTX = f"{_OFFICE}presentationml.presentation"
PDF = "application/pdf"
EPUB = "application/epub+zip"
RTF = "application/rtf"
MSG = "application/vnd.ms-outlook"
EML = "message/rfc822"
MARKDOWN = "text/markdown"
HTML = "text/html"
PLAIN = "text/plain"

PACKED = frozenset({DOCX, XLSX, PPTX, EPUB, f"{_OPEN}text", f"{_OPEN}spreadsheet", f"{_OPEN}presentation"})
"""Kinds that are ZIP archives inside."""
OLD_OFFICE = frozenset({"application/msword", "application/vnd.ms-excel", "application/vnd.ms-powerpoint", MSG})
DOCUMENTS = PACKED | OLD_OFFICE | {PDF, RTF}
TABLES = frozenset({"text/csv", "text/tab-separated-values"})
DATA = frozenset({"application/json", "application/jsonl", "application/yaml"})

LABELS = {
    PDF: "PDF",
    DOCX: "DOCX",
    XLSX: "XLSX",
    PPTX: "PPTX",
    EPUB: "EPUB",
    RTF: "RTF",
    MSG: "MSG",
    EML: "e-mail",
    HTML: "HTML",
    f"{_OPEN}text": "ODT",
    f"{_OPEN}spreadsheet": "ODS",
    f"{_OPEN}presentation": "ODP",
    "application/msword": "DOC",
    "application/vnd.ms-excel": "XLS",
    "application/vnd.ms-powerpoint": "PPT",
}
"""What people call a kind of document."""

_ENDINGS = {
    "txt": PLAIN,
    "text": PLAIN,
    "log": PLAIN,
    "rst": PLAIN,
    "adoc": PLAIN,
    "org": PLAIN,
    "tex": PLAIN,
    "md": MARKDOWN,
    "markdown": MARKDOWN,
    "mdx": MARKDOWN,
    "html": HTML,
    "htm": HTML,
    "xhtml": HTML,
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
    "tab": "text/tab-separated-values",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "ndjson": "application/jsonl",
    "ipynb": "application/json",
    "geojson": "application/json",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "pdf": PDF,
    "docx": DOCX,
    "xlsx": XLSX,
    "pptx": PPTX,
    "odt": f"{_OPEN}text",
    "ods": f"{_OPEN}spreadsheet",
    "odp": f"{_OPEN}presentation",
    "epub": EPUB,
    "rtf": RTF,
    "doc": "application/msword",
    "xls": "application/vnd.ms-excel",
    "ppt": "application/vnd.ms-powerpoint",
    "msg": MSG,
    "eml": EML,
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "bmp": "image/bmp",
    "avif": "image/avif",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "m4a": "audio/mp4",
    "ogg": "audio/ogg",
    "oga": "audio/ogg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "webm": "audio/webm",
}

_SAID = {
    "application/x-yaml": "application/yaml",
    "text/yaml": "application/yaml",
    "text/x-yaml": "application/yaml",
    "application/x-ndjson": "application/jsonl",
    "application/xhtml+xml": HTML,
    "text/x-markdown": MARKDOWN,
    "text/rtf": RTF,
    "application/csv": "text/csv",
}
_SAYS_NOTHING = frozenset({"", PLAIN, "application/octet-stream", "binary/octet-stream"})

_STARTS = (
    (b"{\\rtf", RTF),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"ID3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"\x1a\x45\xdf\xa3", "audio/webm"),
)
_ARCHIVES = (b"\x1f\x8b", b"BZh", b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd")
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_OLE_PARTS = (
    ("__properties_version1.0", MSG),
    ("WordDocument", "application/msword"),
    ("PowerPoint Document", "application/vnd.ms-powerpoint"),
    ("Workbook", "application/vnd.ms-excel"),
    ("Book", "application/vnd.ms-excel"),
)
_PDF_WITHIN = 1024


def file_extension(file: FetchedFile) -> str:
    """How a file's name ends, in small letters: `md`, or the whole name where that says it, as with `Makefile`."""
    is_web = file.uri.startswith(("http://", "https://"))
    path = PurePosixPath(unquote(urlsplit(file.uri).path) if is_web else file.name)
    return path.suffix[1:].lower() or path.name.lower()


def detect_mime_type(file: FetchedFile) -> str | None:
    """The kind of a file; None if neither its bytes nor anyone says one. A FileUnreadableError for an archive."""
    kind = _by_bytes(file)
    if kind:
        return kind
    by_name = _ENDINGS.get(file_extension(file))
    said = declared_mime_type(file)
    if by_name is None and said in _SAYS_NOTHING:
        return PLAIN if said == PLAIN else None
    return by_name or said


def declared_mime_type(file: FetchedFile) -> str:
    """The kind that the server says, in its usual name; empty if it says none."""
    said = (file.mime_type or "").partition(";")[0].strip().lower()
    return _SAID.get(said, said)


def _by_bytes(file: FetchedFile) -> str | None:
    data = file.data
    for start, kind in _STARTS:
        if data.startswith(start):
            return kind
    if b"%PDF-" in data[:_PDF_WITHIN] and not _is_markup(data):
        return PDF
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _packed(file)
    if data.startswith(_OLE):
        return _old_office(file)
    if data.startswith(_ARCHIVES) or data[257:262] == b"ustar":
        raise FileUnreadableError(f"{file.name} is an archive: unpack it and take in the folder.")
    return _media(file)


def _is_markup(data: bytes) -> bool:
    """Whether a text only speaks of PDF: one that begins with letters is no PDF with rubbish before it."""
    head = data[: data.find(b"%PDF-")]
    return head.isascii() and bool(head.strip(b"\0\r\n\t \x0c"))


def _media(file: FetchedFile) -> str | None:
    data = file.data
    if data[:4] == b"RIFF":
        return {b"WAVE": "audio/wav", b"WEBP": "image/webp"}.get(data[8:12])
    if data[4:8] == b"ftyp":
        brand = data[8:11].lower()
        if brand in (b"hei", b"mif"):
            raise FileUnreadableError(f"{file.name} is a HEIC image, which REM does not read: save it as JPEG or PNG.")
        if brand == b"avi":
            return "image/avif"
        return "audio/mp4" if brand == b"m4a" or file_extension(file) == "m4a" else "video/mp4"
    if data[:2] == b"BM" and data[6:10] == b"\0\0\0\0":
        return "image/bmp"
    # FF FE and FF FB also begin texts in UTF-16, so the name has to agree.
    is_frame = len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0
    return (
        "audio/mpeg"
        if is_frame and (file_extension(file) == "mp3" or declared_mime_type(file) == "audio/mpeg")
        else None
    )


def _packed(file: FetchedFile) -> str:
    """What a ZIP archive is."""
    by_name = _ENDINGS.get(file_extension(file))
    try:
        with zipfile.ZipFile(BytesIO(file.data)) as archive:
            names = set(archive.namelist())
            declared = archive.read("mimetype")[:100].decode("ascii", "replace").strip() if "mimetype" in names else ""
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, ValueError, EOFError):
        # A damaged archive: its reader says what is wrong with it.
        if by_name in PACKED:
            return by_name
        raise FileUnreadableError(f"{file.name} is a damaged archive.") from None
    if declared in PACKED:
        return declared
    for folder, kind in (("word/", DOCX), ("xl/", XLSX), ("ppt/", PPTX)):
        if "[Content_Types].xml" in names and any(name.startswith(folder) for name in names):
            return kind
    if by_name in PACKED:
        return by_name
    raise FileUnreadableError(f"{file.name} is an archive: unpack it and take in the folder.")


def _old_office(file: FetchedFile) -> str:
    """What a file of the old Office formats is, by the names of its parts."""
    if "EncryptedPackage".encode("utf-16-le") in file.data:
        raise FileUnreadableError(f"{file.name} is encrypted: remove the password and take it in again.")
    by_name = _ENDINGS.get(file_extension(file))
    if by_name in OLD_OFFICE:
        return by_name
    for part, kind in _OLE_PARTS:
        if part.encode("utf-16-le") in file.data:
            return kind
    raise FileUnreadableError(f"{file.name} is no text and no document that REM can read.")


def is_text(file: FetchedFile) -> bool:
    """Whether a file that should be a document begins like a text."""
    if _by_bytes(file) is not None:
        return False
    try:
        head = file.data[:1000].decode()
    except UnicodeDecodeError:
        return False
    return head.isprintable() or not any(sign < " " and sign not in "\t\r\n\f" for sign in head)
