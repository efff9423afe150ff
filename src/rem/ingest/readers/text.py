"""Plain text, in whatever encoding."""

from __future__ import annotations

import codecs
import re
from typing import Any

from rem.errors import FileEmptyError, FileUnreadableError
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.readers.mime import file_extension

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""UTF-32 before UTF-16, whose mark it begins with."""
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:\-]{1,40})", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_SAMPLE = 100_000
_MOST_CONTROL = 0.02


def read_text(file: FetchedFile, mime_type: str = "text/plain") -> ParsedDocument:
    """The file's text as it is."""
    text, facts = decode_text(file)
    return ParsedDocument(text, "text", mime_type, metadata=facts)


def decode_text(file: FetchedFile, said: str | None = None) -> tuple[str, dict[str, Any]]:
    """A file's text, and its encoding where that is not UTF-8. A FileUnreadableError if it is no text.

    The mark at the start decides, then UTF-8, then what the server or the file itself (`said`) says, then Windows-1252.
    """
    text, encoding = _decode(file, said or _said(file))
    if "\0" in text or not _looks_written(text):
        raise FileUnreadableError(f"{file.name} is not a text: it has bytes in it that no text has.")
    if not text.strip():
        raise FileEmptyError(f"{file.name} has no text in it.")
    return text, {} if encoding == "utf-8" else {"encoding": encoding}


def _said(file: FetchedFile) -> str | None:
    found = _CHARSET.search(file.mime_type or "")
    return found[1] if found else None


def _decode(file: FetchedFile, said: str | None) -> tuple[str, str]:
    data = file.data
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                return data.decode(encoding), encoding
            except UnicodeDecodeError as error:
                raise FileUnreadableError(
                    f"{file.name} says it is {encoding}, but is not: save it as UTF-8."
                ) from error
    for encoding in _candidates(said, data):
        try:
            return data.decode(encoding), codecs.lookup(encoding).name
        except (UnicodeError, ValueError):
            continue
    return data.decode("latin-1"), "latin-1"


def _candidates(said: str | None, data: bytes) -> list[str]:
    if not said or not _is_text_encoding(said):
        return ["utf-8", "cp1252"]
    name = codecs.lookup(said).name
    is_wide = name.startswith(("utf-16", "utf-32"))
    # Texts in these are also valid UTF-8, with other characters; and other texts are valid in the wide ones.
    if name.startswith(("iso2022", "hz")) or (is_wide and b"\0" in data):
        return [name, "utf-8", "cp1252"]
    return ["utf-8", "cp1252"] if is_wide else ["utf-8", name, "cp1252"]


def _is_text_encoding(name: str) -> bool:
    """Whether Python knows an encoding, and it is one of texts: it also knows some that pack."""
    try:
        return bool(codecs.lookup(name)._is_text_encoding)
    except LookupError:
        return False


def _looks_written(text: str) -> bool:
    sample = text[:_SAMPLE]
    return len(_CONTROL.findall(sample)) <= len(sample) * _MOST_CONTROL


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
_BY_ENDING = {ending: language for language, endings in _LANGUAGES.items() for ending in endings.split()}


def detect_language(file: FetchedFile) -> str | None:
    """The programming language of a file, by its name."""
    return _BY_ENDING.get(file_extension(file))


def read_code(file: FetchedFile, language: str) -> ParsedDocument:
    """The file's text as it is."""
    text, facts = decode_text(file)
    return ParsedDocument(text, "code", f"text/x-{language}", metadata={**facts, "language": language})
