"""Read JSON, JSON Lines and YAML as text, formatted with one entry per line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from rem.db.yaml import MAX_YAML_CHARS, iter_yaml_events
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.readers.text import decode_text

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.?)*+"?|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}")
MAX_LINE_CHARS = 1000
"""JSON with longer lines is formatted, because text is cut between lines."""
MAX_INDENT_DEPTH = 8
MAX_FORMATTED_CHARS = 10_000_000


def read_data(file: FetchedFile, mime_type: str) -> ParsedDocument:
    """Return the text of a file; JSON with long lines is formatted. Invalid data is read as plain text."""
    text, metadata = decode_text(file)
    error, kind = _validate(text, mime_type)
    if error:
        return ParsedDocument(text, "text", mime_type, metadata={**metadata, "invalid": error})
    if kind:
        metadata["kind"] = kind
    if mime_type == "application/json" and len(text) <= MAX_FORMATTED_CHARS and _longest_line(text) > MAX_LINE_CHARS:
        text = format_json(text)
        metadata["laid_out"] = True
    return ParsedDocument(text, "data", mime_type, metadata=metadata)


def format_json(text: str) -> str:
    """Format valid JSON with one entry per line. Numbers, order and repeated names stay as they are."""
    return "".join(_format_tokens(text)) + "\n"


def _format_tokens(text: str) -> Iterator[str]:
    depth = 0
    previous = ""
    for match in _TOKEN.finditer(text):
        lexeme = match[0]
        closes = lexeme in "}]"
        depth -= closes
        if previous in ("{", "[", ",") or closes:
            # Empty brackets stay on one line.
            yield "" if closes and previous in ("{", "[") else "\n" + "  " * min(depth, MAX_INDENT_DEPTH)
        yield _unescape(lexeme) + (" " if lexeme == ":" else "")
        depth += lexeme in "{["
        previous = lexeme


def _unescape(lexeme: str) -> str:
    """Return a JSON string with characters instead of \\u escapes, if these characters can be stored."""
    if not lexeme.startswith('"') or not _ESCAPE.search(lexeme):
        return lexeme
    unescaped = json.dumps(json.loads(lexeme, strict=False), ensure_ascii=False)
    return unescaped if _is_storable(unescaped) else lexeme


def _is_storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _longest_line(text: str) -> int:
    return max(map(len, text.splitlines()), default=0)


def _validate(text: str, mime_type: str) -> tuple[str | None, str | None]:
    """Return the error of an invalid text, or None, and the value of its key `kind`, or None."""
    try:
        match mime_type:
            case "application/json":
                return None, _read_kind(json.loads(text))
            case "application/jsonl":
                for line in text.splitlines():
                    if line.strip():
                        json.loads(line)
                return None, None
            case _:
                return None, _validate_yaml(text)
    except (ValueError, yaml.YAMLError) as error:
        return " ".join(str(error).split())[:300], None
    except RecursionError:
        return "it is nested too deeply", None


def _read_kind(value: Any) -> str | None:
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) and len(kind) < 100 else None


def _validate_yaml(text: str) -> str | None:
    """Check that a text is YAML, and return the value of its key `kind`, or None.

    Values are not built: with aliases, a few lines can expand to billions of values.
    """
    if len(text) > MAX_YAML_CHARS:
        return None
    values = list(_iter_top_level(text))
    kinds = [value for name, value in zip(values[::2], values[1::2], strict=False) if name == "kind"]
    return kinds[0] if kinds and 0 < len(kinds[0]) < 100 else None


def _iter_top_level(text: str) -> Iterator[str]:
    """Yield the keys and values of the top-level mapping in turn. A value that is not a scalar is an empty text."""
    depth = 0
    is_mapping = False
    for event in iter_yaml_events(text):
        is_mapping = is_mapping or (depth == 0 and isinstance(event, yaml.MappingStartEvent))
        if depth == 1 and is_mapping and isinstance(event, yaml.NodeEvent):
            yield event.value if isinstance(event, yaml.ScalarEvent) else ""
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
