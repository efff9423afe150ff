"""StatedFields: what a document says of itself, word for word, under the names that a schema asks for.

Where it is looked for: a JSON or YAML document, front matter, lines such as `Key: value`, tables with two columns, and
lists below a `Key:` or a heading. A name is the same in any case, with spaces, hyphens or underscores. What a text says
twice and differently is not taken from it.
"""

from __future__ import annotations

import csv
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rem.dreaming.rules import word_set
from rem.ingest.json_values import replace_unstorable
from rem.ingest.readers.front_matter import parse_front_matter

if TYPE_CHECKING:
    from rem.dreaming.ontology.schema import ExtractionSchema

_LINE = re.compile(
    r"^\s*(?:[-*+>]\s+)?[*_]{0,2}([^\W_][^:：|\n]{0,79}?)[*_]{0,2}\s*(?::[*_]{0,2}(?=\s|$)|：)[*_]{0,2}(.*)$"
)
_ROW = re.compile(r"^\s*\|([^|\n]{1,200})\|([^|\n]{0,2000})\|\s*$")
_HEADING = re.compile(r"^\s*#{1,6}\s+(.{1,80}?)\s*#*\s*$")
_ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+(\S.*)$")
_RULE = re.compile(r"^[\s:|-]+$")
_NUMBER = re.compile(r"[+-]?\d{1,15}(?:\.\d{1,15})?")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_UNITS = " \t$€£¥%"
_TRUE_WORDS, _FALSE_WORDS = word_set("stated_fields.true_words"), word_set("stated_fields.false_words")
MAX_LINE_CHARS = 4000
MAX_VALUE_CHARS = 2000


def read_stated_fields(text: str, mime_type: str | None, schema: ExtractionSchema) -> dict[str, Any]:
    """The properties of a schema that a document states, each with a value that fits it."""
    names = _map_labels(schema)
    found: dict[str, Any] = {}
    for source in (_parse_structured(text, mime_type), parse_front_matter(text)[0]):
        for name, raw in _pick_named(source or {}, names):
            _take(found, schema, name, [raw])
    written: dict[str, list[Any]] = defaultdict(list)
    for key, value in (*_parse_pairs(text), *_parse_columns(text, mime_type)):
        if asked := names.get(_fold(key)):
            written[asked].append(value)
    for name, values in written.items():
        _take(found, schema, name, values)
    return found


def _map_labels(schema: ExtractionSchema) -> dict[str, str]:
    """What a property may be called: its name, or its title."""
    names: dict[str, str] = {}
    for name, part in schema.properties.items():
        title = part.get("title") if isinstance(part, Mapping) else None
        for label in (name, title):
            if isinstance(label, str) and _fold(label):
                names.setdefault(_fold(label), name)
    return names


def _fold(label: str) -> str:
    return "".join(sign for sign in unicodedata.normalize("NFKC", label).casefold() if sign.isalnum())


def _pick_named(source: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for key, value in source.items():
        if name := names.get(_fold(str(key))):
            yield name, value


def _take(found: dict[str, Any], schema: ExtractionSchema, name: str, values: Iterable[Any]) -> None:
    """Take the one value that was given and fits; none if there are several."""
    if name in found:
        return
    fitting = []
    for raw in values:
        value = _convert(schema, name, raw)
        if value is not None and value not in fitting:
            fitting.append(value)
    if len(fitting) == 1:
        found[name] = fitting[0]


def _convert(schema: ExtractionSchema, name: str, raw: Any) -> Any:
    """The value as the property wants it; None if it cannot be that."""
    return next((value for value in _interpret(schema.properties[name], raw) if schema.fits(name, value)), None)


def _interpret(part: Any, raw: Any) -> Iterator[Any]:
    """What a value may mean, the likeliest for the property first."""
    if not isinstance(raw, str):
        if isinstance(raw, list) and raw and all(isinstance(item, str) for item in raw):
            yield from ([item.strip() for item in raw], [_parse_number(item) for item in raw])
        else:
            yield raw
            if isinstance(raw, int | float) and not isinstance(raw, bool):
                yield str(raw)
        return
    text = replace_unstorable(" ".join(raw.strip().strip("*_`").split()))[:MAX_VALUE_CHARS]
    if not text:
        return
    yield from _choices(part, text)
    readings: dict[str, Any] = {
        "integer": _parse_number(text),
        "number": _parse_number(text),
        "boolean": _parse_boolean(text),
        "string": text,
        "array": _split_items(text),
    }
    kinds = part.get("type") if isinstance(part, Mapping) else None
    kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    for kind in [*(kind for kind in readings if kind in kinds), *readings]:
        if readings[kind] is not None:
            yield readings[kind]
    if isinstance(readings["array"], list):
        yield [_parse_number(item) for item in readings["array"]]


def _choices(part: Any, text: str) -> Iterator[Any]:
    options = part.get("enum") if isinstance(part, Mapping) else None
    for option in options if isinstance(options, list) else []:
        if isinstance(option, str) and _fold(option) == _fold(text):
            yield option


def _parse_number(text: str) -> int | float | None:
    plain = text.strip(_UNITS)
    if _GROUPED.fullmatch(plain):
        plain = plain.replace(",", "")
    if not _NUMBER.fullmatch(plain):
        return None
    return float(plain) if "." in plain else int(plain)


def _parse_boolean(text: str) -> bool | None:
    word = text.casefold()
    return True if word in _TRUE_WORDS else False if word in _FALSE_WORDS else None


def _split_items(text: str) -> list[str]:
    separator = ";" if ";" in text else ","
    return [item.strip() for item in text.split(separator) if item.strip()]


def _parse_structured(text: str, mime_type: str | None) -> dict[str, Any] | None:
    """The document, if it is JSON or YAML with names and values."""
    kind = (mime_type or "").partition(";")[0].lower()
    if "json" in kind or text.lstrip()[:1] == "{":
        try:
            data = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            return None
        return data if isinstance(data, dict) else None
    if "yaml" in kind:
        return parse_front_matter(f"---\n{text.removeprefix('---')}\n---\n")[0]
    return None


def _parse_pairs(text: str) -> Iterator[tuple[str, Any]]:
    """The names and values of lines, rows, and lists below a name."""
    below: str | None = None
    items: list[str] = []
    for line in text.splitlines():
        if len(line) > MAX_LINE_CHARS:
            continue
        item = _ITEM.match(line)
        if below is not None and item:
            items.append(item[1])
        elif below is not None and (items or line.strip()):
            if items:
                yield below, items
            below, items = None, []
        if pair := _parse_pair(line):
            if pair[1].strip():
                yield pair
            else:
                below, items = pair[0], []
        elif heading := _HEADING.match(line):
            below, items = heading[1], []
    if below is not None and items:
        yield below, items


def _parse_pair(line: str) -> tuple[str, str] | None:
    if row := _ROW.match(line):
        return None if _RULE.match(line) else (row[1].strip().strip("*_"), row[2])
    found = _LINE.match(line)
    return (found[1], found[2]) if found else None


def _parse_columns(text: str, mime_type: str | None) -> Iterator[tuple[str, Any]]:
    """The rows of a table that has two columns all through."""
    kind = (mime_type or "").partition(";")[0].lower()
    if kind not in ("text/csv", "text/tab-separated-values"):
        return
    try:
        rows = [row for row in csv.reader(text.splitlines(), delimiter="\t" if "tab" in kind else ",") if row]
    except csv.Error:
        return
    if rows and all(len(row) == 2 for row in rows):
        yield from ((row[0], row[1]) for row in rows)
