"""JSON, JSON lines and YAML: their own text, laid out so that it can be cut."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from rem.db.yaml import MAX_YAML_CHARS, iter_yaml_events
from rem.ingest.models import FetchedFile, ParsedDocument
from rem.ingest.readers.text import decode_text

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}")
_LONG_LINE = 1000
_DEEPEST = 8
_LARGEST_LAID_OUT = 10_000_000


def read_data(file: FetchedFile, mime_type: str) -> ParsedDocument:
    """The file's text as it is; JSON on long lines is broken up. What is not valid is taken as plain text."""
    text, facts = decode_text(file)
    problem, kind = _check(text, mime_type)
    if problem:
        return ParsedDocument(text, "text", mime_type, metadata={**facts, "invalid": problem})
    if kind:
        facts["kind"] = kind
    if mime_type == "application/json" and len(text) <= _LARGEST_LAID_OUT and _longest_line(text) > _LONG_LINE:
        text = format_json(text)
        facts["laid_out"] = True
    return ParsedDocument(text, "data", mime_type, metadata=facts)


def format_json(text: str) -> str:
    """Valid JSON with one entry a line. Numbers, order and repeated names stay as they are."""
    return "".join(_layout(text)) + "\n"


def _layout(text: str) -> Iterator[str]:
    depth = 0
    before = ""
    for found in _TOKEN.finditer(text):
        piece = found[0]
        closes = piece in "}]"
        depth -= closes
        if before in ("{", "[", ",") or closes:
            # What is empty stays on its line.
            yield "" if closes and before in ("{", "[") else "\n" + "  " * min(depth, _DEEPEST)
        yield _readable(piece) + (" " if piece == ":" else "")
        depth += piece in "{["
        before = piece


def _readable(piece: str) -> str:
    """A string with its characters instead of their numbers, where they can be written."""
    if not piece.startswith('"') or not _ESCAPE.search(piece):
        return piece
    plain = json.dumps(json.loads(piece, strict=False), ensure_ascii=False)
    return plain if _can_be_stored(plain) else piece


def _can_be_stored(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _longest_line(text: str) -> int:
    return max(map(len, text.splitlines()), default=0)


def _check(text: str, mime_type: str) -> tuple[str | None, str | None]:
    """What is wrong with a text, if anything; and the value of its own `kind`, if it has one."""
    try:
        match mime_type:
            case "application/json":
                return None, _kind(json.loads(text))
            case "application/jsonl":
                for line in text.splitlines():
                    if line.strip():
                        json.loads(line)
                return None, None
            case _:
                return None, _check_yaml(text)
    except (ValueError, yaml.YAMLError) as error:
        return " ".join(str(error).split())[:300], None
    except RecursionError:
        return "it is nested too deeply", None


def _kind(value: Any) -> str | None:
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) and len(kind) < 100 else None


def _check_yaml(text: str) -> str | None:
    """Check that a text is YAML, without building what it means: with aliases, few lines can mean billions of values.

    Gives back its `kind`, if it names one.
    """
    if len(text) > MAX_YAML_CHARS:
        return None
    values = list(_top_level(text))
    kinds = [value for name, value in zip(values[::2], values[1::2], strict=False) if name == "kind"]
    return kinds[0] if kinds and 0 < len(kinds[0]) < 100 else None


def _top_level(text: str) -> Iterator[str]:
    """Names and values in turn, if the first document is a mapping; empty for a value that is none of one word."""
    depth = 0
    is_mapping = False
    for event in iter_yaml_events(text):
        is_mapping = is_mapping or (depth == 0 and isinstance(event, yaml.MappingStartEvent))
        if depth == 1 and is_mapping and isinstance(event, yaml.NodeEvent):
            yield event.value if isinstance(event, yaml.ScalarEvent) else ""
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
