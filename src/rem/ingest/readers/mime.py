"""Detect the MIME type of a file: by its first bytes, then by its name, then by the declaration of the server."""

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

ZIP_TYPES = frozenset({DOCX, XLSX, PPTX, EPUB, f"{_OPEN}text", f"{_OPEN}spreadsheet", f"{_OPEN}presentation"})
"""Formats that are ZIP archives."""
LEGACY_OFFICE_TYPES = frozenset(
    {"application/msword", "application/vnd.ms-excel", "application/vnd.ms-powerpoint", MSG}
)
DOCUMENT_TYPES = ZIP_TYPES | LEGACY_OFFICE_TYPES | {PDF, RTF}
TABLE_TYPES = frozenset({"text/csv", "text/tab-separated-values"})
DATA_TYPES = frozenset({"application/json", "application/jsonl", "application/yaml"})

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
"""Short names of formats, for messages."""

_TYPES_BY_EXTENSION = {
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

_TYPE_ALIASES = {
    "application/x-yaml": "application/yaml",
    "text/yaml": "application/yaml",
    "text/x-yaml": "application/yaml",
    "application/x-ndjson": "application/jsonl",
    "application/xhtml+xml": HTML,
    "text/x-markdown": MARKDOWN,
    "text/rtf": RTF,
    "application/csv": "text/csv",
}
_GENERIC_TYPES = frozenset({"", PLAIN, "application/octet-stream", "binary/octet-stream"})

_SIGNATURES = (
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
_ARCHIVE_SIGNATURES = (b"\x1f\x8b", b"BZh", b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd")
_OLE_SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_TYPES_BY_OLE_STREAM = (
    ("__properties_version1.0", MSG),
    ("WordDocument", "application/msword"),
    ("PowerPoint Document", "application/vnd.ms-powerpoint"),
    ("Workbook", "application/vnd.ms-excel"),
    ("Book", "application/vnd.ms-excel"),
)
PDF_HEADER_BYTES = 1024
"""Readers accept a PDF header that starts anywhere in the first 1,024 bytes."""


def file_extension(file: FetchedFile) -> str:
    """Return the extension of a file name in lower case without the dot (`md`), or the whole name (`makefile`)."""
    is_web = file.uri.startswith(("http://", "https://"))
    path = PurePosixPath(unquote(urlsplit(file.uri).path) if is_web else file.name)
    return path.suffix[1:].lower() or path.name.lower()


def detect_mime_type(file: FetchedFile) -> str | None:
    """Return the MIME type of a file; None if it is unknown. Raise a FileUnreadableError for an archive."""
    by_content = _detect_by_content(file)
    if by_content:
        return by_content
    by_name = _TYPES_BY_EXTENSION.get(file_extension(file))
    declared = declared_mime_type(file)
    if by_name is None and declared in _GENERIC_TYPES:
        return PLAIN if declared == PLAIN else None
    return by_name or declared


def declared_mime_type(file: FetchedFile) -> str:
    """Return the MIME type that the server declares, without parameters; empty if it declares none."""
    declared = (file.mime_type or "").partition(";")[0].strip().lower()
    return _TYPE_ALIASES.get(declared, declared)


def _detect_by_content(file: FetchedFile) -> str | None:
    data = file.data
    for signature, mime_type in _SIGNATURES:
        if data.startswith(signature):
            return mime_type
    if b"%PDF-" in data[:PDF_HEADER_BYTES] and not _has_text_before_pdf_header(data):
        return PDF
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _detect_zip_format(file)
    if data.startswith(_OLE_SIGNATURE):
        return _detect_legacy_office(file)
    if data.startswith(_ARCHIVE_SIGNATURES) or data[257:262] == b"ustar":
        raise FileUnreadableError(f"{file.name} is an archive: unpack it and ingest the folder.")
    return _detect_media(file)


def _has_text_before_pdf_header(data: bytes) -> bool:
    """Return whether a text only mentions a PDF header. A PDF may have garbage before it, but no words."""
    head = data[: data.find(b"%PDF-")]
    return head.isascii() and bool(head.strip(b"\0\r\n\t \x0c"))


def _detect_media(file: FetchedFile) -> str | None:
    data = file.data
    if data[:4] == b"RIFF":
        return {b"WAVE": "audio/wav", b"WEBP": "image/webp"}.get(data[8:12])
    if data[4:8] == b"ftyp":
        brand = data[8:11].lower()
        if brand in (b"hei", b"mif"):
            raise FileUnreadableError(f"{file.name} is a HEIC image, which REM cannot read: convert it to JPEG or PNG.")
        if brand == b"avi":
            return "image/avif"
        return "audio/mp4" if brand == b"m4a" or file_extension(file) == "m4a" else "video/mp4"
    if data[:2] == b"BM" and data[6:10] == b"\0\0\0\0":
        return "image/bmp"
    # FF FE and FF FB also begin texts in UTF-16, so the name or the server must agree.
    is_mpeg_frame = len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0
    return (
        "audio/mpeg"
        if is_mpeg_frame and (file_extension(file) == "mp3" or declared_mime_type(file) == "audio/mpeg")
        else None
    )


def _detect_zip_format(file: FetchedFile) -> str:
    """Return the document format of a ZIP archive. Raise a FileUnreadableError for any other archive."""
    by_name = _TYPES_BY_EXTENSION.get(file_extension(file))
    try:
        with zipfile.ZipFile(BytesIO(file.data)) as archive:
            names = set(archive.namelist())
            declared = archive.read("mimetype")[:100].decode("ascii", "replace").strip() if "mimetype" in names else ""
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, ValueError, EOFError):
        # The reader of the format reports what is wrong with a damaged file.
        if by_name in ZIP_TYPES:
            return by_name
        raise FileUnreadableError(f"{file.name} is a damaged archive.") from None
    if declared in ZIP_TYPES:
        return declared
    for folder, mime_type in (("word/", DOCX), ("xl/", XLSX), ("ppt/", PPTX)):
        if "[Content_Types].xml" in names and any(name.startswith(folder) for name in names):
            return mime_type
    if by_name in ZIP_TYPES:
        return by_name
    raise FileUnreadableError(f"{file.name} is an archive: unpack it and ingest the folder.")


def _detect_legacy_office(file: FetchedFile) -> str:
    """Return the format of an OLE file (DOC, XLS, PPT, MSG) by its name, else by the names of its streams."""
    if "EncryptedPackage".encode("utf-16-le") in file.data:
        raise FileUnreadableError(f"{file.name} is encrypted: remove the password and ingest it again.")
    by_name = _TYPES_BY_EXTENSION.get(file_extension(file))
    if by_name in LEGACY_OFFICE_TYPES:
        return by_name
    for stream, mime_type in _TYPES_BY_OLE_STREAM:
        if stream.encode("utf-16-le") in file.data:
            return mime_type
    raise FileUnreadableError(f"{file.name} is neither a text nor a document that REM can read.")


def looks_like_text(file: FetchedFile) -> bool:
    """Return whether the first 1,000 bytes of a file are readable text and not a binary format."""
    if _detect_by_content(file) is not None:
        return False
    try:
        head = file.data[:1000].decode()
    except UnicodeDecodeError:
        return False
    return head.isprintable() or not any(character < " " and character not in "\t\r\n\f" for character in head)
