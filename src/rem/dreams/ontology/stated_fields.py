"""Stated fields: reads values that a document states itself under the names of a schema's properties.

Values are read from JSON and YAML documents, front matter, lines such as `Key: value`, tables with two columns, and
lists below a `Key:` or a heading. Names are compared without case, spaces, hyphens and underscores. A value that a
document states twice and differently is left out.
"""

from __future__ import annotations

import csv
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rem.ingest.readers.markdown import parse_front_matter
from rem.rules import word_set
from rem.text import clean_text, collapse_spaces

if TYPE_CHECKING:
    from rem.dreams.ontology.schema import ExtractionSchema

_KEY_VALUE_LINE = re.compile(
    r"^\s*(?:[-*+>]\s+)?[*_]{0,2}([^\W_][^:：|\n]{0,79}?)[*_]{0,2}\s*(?::[*_]{0,2}(?=\s|$)|：)[*_]{0,2}(.*)$"
)
_TABLE_ROW = re.compile(r"^\s*\|([^|\n]{1,200})\|([^|\n]{0,2000})\|\s*$")
_HEADING = re.compile(r"^\s*#{1,6}\s+(.{1,80}?)\s*#*\s*$")
_LIST_ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+(\S.*)$")
_TABLE_RULE = re.compile(r"^[\s:|-]+$")
_NUMBER = re.compile(r"[+-]?\d{1,15}(?:\.\d{1,15})?")
_GROUPED_NUMBER = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_UNITS = " \t$€£¥%"
_TRUE_WORDS, _FALSE_WORDS = word_set("stated_fields.true_words"), word_set("stated_fields.false_words")
MAX_LINE_CHARS = 4000
MAX_VALUE_CHARS = 2000


def read_stated_fields(text: str, mime_type: str | None, schema: ExtractionSchema) -> dict[str, Any]:
    """Return the properties of a schema that a document states, each with a value that fits it."""
    names = _map_labels(schema)
    fields: dict[str, Any] = {}
    for source in (_parse_structured(text, mime_type), parse_front_matter(text)[0]):
        for name, raw in _pick_named(source or {}, names):
            _set_field(fields, schema, name, [raw])
    values_by_name: dict[str, list[Any]] = defaultdict(list)
    for label, value in (*_parse_pairs(text), *_parse_columns(text, mime_type)):
        if property_name := names.get(_fold(label)):
            values_by_name[property_name].append(value)
    for name, values in values_by_name.items():
        _set_field(fields, schema, name, values)
    return fields


def _map_labels(schema: ExtractionSchema) -> dict[str, str]:
    """Return the property for each of its folded labels: its name and its title."""
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


def _set_field(fields: dict[str, Any], schema: ExtractionSchema, name: str, values: Iterable[Any]) -> None:
    """Set a property to the one value that fits. Leave it out if there are several."""
    if name in fields:
        return
    fitting = []
    for raw in values:
        value = _convert(schema, name, raw)
        if value is not None and value not in fitting:
            fitting.append(value)
    if len(fitting) == 1:
        fields[name] = fitting[0]


def _convert(schema: ExtractionSchema, name: str, raw: Any) -> Any:
    """Return a raw value in the type of a property, or None if it does not fit."""
    return next((value for value in _interpret(schema.properties[name], raw) if schema.fits(name, value)), None)


def _interpret(part: Any, raw: Any) -> Iterator[Any]:
    """Yield the possible values of a raw value, the most likely type of the property first."""
    if not isinstance(raw, str):
        if isinstance(raw, list) and raw and all(isinstance(item, str) for item in raw):
            yield from ([item.strip() for item in raw], [_parse_number(item) for item in raw])
        else:
            yield raw
            if isinstance(raw, int | float) and not isinstance(raw, bool):
                yield str(raw)
        return
    text = clean_text(collapse_spaces(raw.strip().strip("*_`")))[:MAX_VALUE_CHARS]
    if not text:
        return
    yield from _match_options(part, text)
    by_type: dict[str, Any] = {
        "integer": _parse_number(text),
        "number": _parse_number(text),
        "boolean": _parse_boolean(text),
        "string": text,
        "array": _split_items(text),
    }
    types = part.get("type") if isinstance(part, Mapping) else None
    types = [types] if isinstance(types, str) else types if isinstance(types, list) else []
    for type_name in [*(name for name in by_type if name in types), *by_type]:
        if by_type[type_name] is not None:
            yield by_type[type_name]
    if isinstance(by_type["array"], list):
        yield [_parse_number(item) for item in by_type["array"]]


def _match_options(part: Any, text: str) -> Iterator[Any]:
    options = part.get("enum") if isinstance(part, Mapping) else None
    for option in options if isinstance(options, list) else []:
        if isinstance(option, str) and _fold(option) == _fold(text):
            yield option


def _parse_number(text: str) -> int | float | None:
    plain = text.strip(_UNITS)
    if _GROUPED_NUMBER.fullmatch(plain):
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
    """Return the document as an object, if it is JSON or YAML."""
    plain_type = (mime_type or "").partition(";")[0].lower()
    if "json" in plain_type or text.lstrip()[:1] == "{":
        try:
            data = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            return None
        return data if isinstance(data, dict) else None
    if "yaml" in plain_type:
        return parse_front_matter(f"---\n{text.removeprefix('---')}\n---\n")[0]
    return None


def _parse_pairs(text: str) -> Iterator[tuple[str, Any]]:
    """Yield names and values of lines, table rows, and lists below a name."""
    list_name: str | None = None
    items: list[str] = []
    for line in text.splitlines():
        if len(line) > MAX_LINE_CHARS:
            continue
        item = _LIST_ITEM.match(line)
        if list_name is not None and item:
            items.append(item[1])
        elif list_name is not None and (items or line.strip()):
            if items:
                yield list_name, items
            list_name, items = None, []
        if pair := _parse_pair(line):
            if pair[1].strip():
                yield pair
            else:
                list_name, items = pair[0], []
        elif heading := _HEADING.match(line):
            list_name, items = heading[1], []
    if list_name is not None and items:
        yield list_name, items


def _parse_pair(line: str) -> tuple[str, str] | None:
    if row := _TABLE_ROW.match(line):
        return None if _TABLE_RULE.match(line) else (row[1].strip().strip("*_"), row[2])
    pair = _KEY_VALUE_LINE.match(line)
    return (pair[1], pair[2]) if pair else None


def _parse_columns(text: str, mime_type: str | None) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a CSV file in which each row has two columns."""
    plain_type = (mime_type or "").partition(";")[0].lower()
    if plain_type not in ("text/csv", "text/tab-separated-values"):
        return
    try:
        rows = [row for row in csv.reader(text.splitlines(), delimiter="\t" if "tab" in plain_type else ",") if row]
    except csv.Error:
        return
    if rows and all(len(row) == 2 for row in rows):
        yield from ((row[0], row[1]) for row in rows)
