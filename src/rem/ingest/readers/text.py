"""Read plain text and source code in any encoding."""

from __future__ import annotations

import codecs
import re
from typing import Any

from rem.errors import FileEmptyError, FileUnreadableError
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.readers.mime import file_extension

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # UTF-32 before UTF-16, because its mark begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:\-]{1,40})", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
SAMPLE_CHARS = 100_000
MAX_CONTROL_SHARE = 0.02
"""A file with more control characters than this is binary."""
_LANGUAGES = {
    "python": "py pyi pyw",
    "javascript": "js mjs cjs jsx",
    "typescript": "ts mts cts tsx",
    "java": "java",
    "kotlin": "kt kts",
    "scala": "scala sc",
    "c": "c h",
    "cpp": "cc cpp cxx hh hpp hxx",
    "csharp": "cs",
    "go": "go",
    "rust": "rs",
    "ruby": "rb rake gemfile rakefile",
    "php": "php",
    "swift": "swift",
    "objective-c": "m mm",
    "r": "r",
    "julia": "jl",
    "lua": "lua",
    "perl": "pl pm",
    "haskell": "hs",
    "elixir": "ex exs",
    "erlang": "erl hrl",
    "clojure": "clj cljs cljc edn",
    "dart": "dart",
    "zig": "zig",
    "sql": "sql",
    "shell": "sh bash zsh fish",
    "powershell": "ps1 psm1",
    "make": "mk makefile",
    "docker": "dockerfile containerfile",
    "cmake": "cmake",
    "css": "css scss sass less",
    "vue": "vue",
    "svelte": "svelte",
    "graphql": "graphql gql",
    "protobuf": "proto",
    "terraform": "tf tfvars hcl",
    "toml": "toml",
    "ini": "ini cfg conf properties env",
    "xml": "xml xsd xsl xslt svg plist",
    "jinja": "j2 jinja jinja2",
}
_LANGUAGE_BY_EXTENSION = {
    extension: language for language, extensions in _LANGUAGES.items() for extension in extensions.split()
}


def read_text(file: FetchedFile, mime_type: str = "text/plain") -> ParsedDocument:
    """Return the text of a file unchanged."""
    text, encoding_info = decode_text(file)
    return ParsedDocument(text, "text", mime_type, metadata=encoding_info)


def read_code(file: FetchedFile, language: str) -> ParsedDocument:
    """Return the source code of a file unchanged."""
    text, encoding_info = decode_text(file)
    return ParsedDocument(text, "code", f"text/x-{language}", metadata={**encoding_info, "language": language})


def detect_language(file: FetchedFile) -> str | None:
    """Return the programming language of a file by its name; None if it is not source code."""
    return _LANGUAGE_BY_EXTENSION.get(file_extension(file))


def decode_text(file: FetchedFile, declared_charset: str | None = None) -> tuple[str, dict[str, Any]]:
    """Return the text of a file, and `{"encoding": …}` if it is not UTF-8. Raise a FileUnreadableError if it is binary.

    The byte order mark decides. Without one, try UTF-8, then the encoding that the file (`declared_charset`) or the
    server declares, then Windows-1252.
    """
    text, encoding = _decode(file, declared_charset or _server_charset(file))
    if "\0" in text or not _looks_like_text(text):
        raise FileUnreadableError(f"{file.name} is not a text: it contains binary data.")
    if not text.strip():
        raise FileEmptyError(f"{file.name} has no text in it.")
    return text, {} if encoding == "utf-8" else {"encoding": encoding}


def _server_charset(file: FetchedFile) -> str | None:
    match = _CHARSET.search(file.mime_type or "")
    return match[1] if match else None


def _decode(file: FetchedFile, declared_charset: str | None) -> tuple[str, str]:
    data = file.data
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            try:
                return data.decode(encoding), encoding
            except UnicodeDecodeError as error:
                raise FileUnreadableError(
                    f"{file.name} has the byte order mark of {encoding} but another encoding: save it as UTF-8."
                ) from error
    for encoding in _candidate_encodings(declared_charset, data):
        try:
            return data.decode(encoding), codecs.lookup(encoding).name
        except (UnicodeError, ValueError):
            continue
    return data.decode("latin-1"), "latin-1"


def _candidate_encodings(declared_charset: str | None, data: bytes) -> list[str]:
    if not declared_charset or not _is_text_encoding(declared_charset):
        return ["utf-8", "cp1252"]
    name = codecs.lookup(declared_charset).name
    is_wide = name.startswith(("utf-16", "utf-32"))
    # Text in ISO 2022 and HZ is also valid UTF-8, but means other characters. Any text of even length is valid UTF-16,
    # so that is believed only if there are zero bytes.
    if name.startswith(("iso2022", "hz")) or (is_wide and b"\0" in data):
        return [name, "utf-8", "cp1252"]
    return ["utf-8", "cp1252"] if is_wide else ["utf-8", name, "cp1252"]


def _is_text_encoding(name: str) -> bool:
    """Return whether Python knows this encoding for texts. It also has codecs that compress."""
    try:
        return bool(codecs.lookup(name)._is_text_encoding)
    except LookupError:
        return False


def _looks_like_text(text: str) -> bool:
    sample = text[:SAMPLE_CHARS]
    return len(_CONTROL.findall(sample)) <= len(sample) * MAX_CONTROL_SHARE
