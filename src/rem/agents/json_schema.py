"""The JSON schema of an answer: whether it is one, needs nothing from elsewhere, and whether an answer fits it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, time
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import orjson
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError

Path: TypeAlias = tuple[str | int, ...]
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_MOST_PROBLEMS = 10
_LONGEST_SHOWN = 100
_MOST_REFERENCES = 200
_NESTED_REPEAT = re.compile(r"\([^()]*(?:[*+]|,\})[^()]*\)(?:[*+]|\{\d*,\})")
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)\Z")


class SchemaProblem(NamedTuple):
    """Something that is wrong in a schema or an answer, and where."""

    path: Path
    message: str


def schema_problems(schema: Mapping[str, Any]) -> list[SchemaProblem]:
    """What keeps a document from being the schema of an answer."""
    try:
        return _schema_problems(schema)[:_MOST_PROBLEMS]
    except RecursionError:
        return [SchemaProblem((), "is nested too deep")]


def answer_problems(schema: Mapping[str, Any], answer: Any) -> list[SchemaProblem]:
    """Where an answer does not fit a schema; empty if it does."""
    try:
        errors = list(_validator(orjson.dumps(schema)).iter_errors(answer))
    except RecursionError:
        return [SchemaProblem((), "is nested too deep")]
    found = [SchemaProblem(tuple(error.absolute_path), _shortened(error.message)) for error in errors]
    return sorted(found, key=lambda problem: [str(part) for part in problem.path])[:_MOST_PROBLEMS]


def field_name(path: Path) -> str:
    """A place in a document as people write it: `tools[0].name`."""
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return name.removeprefix(".")


def _schema_problems(schema: Mapping[str, Any]) -> list[SchemaProblem]:
    if schema.get("type") != "object":
        return [SchemaProblem(("type",), "must be object")]
    meta = Draft202012Validator(Draft202012Validator.META_SCHEMA)
    invalid = [SchemaProblem(tuple(error.path), _meta_message(error)) for error in meta.iter_errors(schema)]
    return invalid or [*_unsafe(schema), *_unknown_required(schema)]


@lru_cache(maxsize=128)
def _validator(schema: bytes) -> Draft202012Validator:
    return Draft202012Validator(orjson.loads(schema), format_checker=_formats())


def _meta_message(error: ValidationError) -> str:
    if error.path and error.path[-1] == "type":
        return f"{error.instance!r} is not a type: use one of {', '.join(_TYPES)}"
    return _shortened(error.message)


def _shortened(message: str) -> str:
    """The message without the middle of what it quotes, which may be the whole answer."""
    if len(message) <= 2 * _LONGEST_SHOWN:
        return message
    return f"{message[:_LONGEST_SHOWN]} … {message[-_LONGEST_SHOWN:]}"


def _unsafe(schema: Mapping[str, Any]) -> Iterator[SchemaProblem]:
    """References that lead elsewhere, nowhere or in a circle, and regular expressions that may never end."""
    definitions = _Definitions(schema.get("$defs", {}))
    for path, part in _objects(schema, ()):
        pattern = part.get("pattern")
        if isinstance(pattern, str) and (problem := _pattern_problem(pattern)):
            yield SchemaProblem((*path, "pattern"), problem)
        if _is_reference(part) and (problem := definitions.problem_with(part["$ref"])):
            yield SchemaProblem((*path, "$ref"), problem)


def _objects(part: Any, path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    if isinstance(part, Mapping):
        yield path, part
    items = part.items() if isinstance(part, Mapping) else enumerate(part) if isinstance(part, list) else ()
    for name, value in items:
        yield from _objects(value, (*path, name))


def _pattern_problem(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except re.error as error:
        return f"is not a regular expression: {error}"
    if _NESTED_REPEAT.search(pattern):
        return "repeats what is repeated already, which may take for ever to match: write it without"
    return None


class _Definitions:
    """What is under `$defs`. Models are given each reference written out, so that must be possible and not too long."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._sizes: dict[str, int] = {}
        self._open: set[str] = set()

    def problem_with(self, reference: str) -> str | None:
        """Why a reference cannot be followed, if it cannot."""
        try:
            size = self._size(reference)
        except ValueError as error:
            return str(error)
        return f"{reference!r} stands for too much: use fewer references" if size > _MOST_REFERENCES else None

    def _size(self, reference: str) -> int:
        """How many references there are in what a reference stands for, all written out."""
        name = reference.removeprefix("#/$defs/")
        if name == reference or name not in self._definitions:
            raise ValueError(
                f"{reference!r} leads nowhere: refer to something under $defs of the same file, as #/$defs/name"
            )
        if name in self._open:
            raise ValueError(f"{reference!r} refers to itself, which language models cannot be asked for")
        if name not in self._sizes:
            self._open.add(name)
            inner = [part["$ref"] for _, part in _objects(self._definitions[name], ()) if _is_reference(part)]
            self._sizes[name] = 1 + sum(map(self._size, inner))
            self._open.remove(name)
        return self._sizes[name]


def _is_reference(part: Mapping[str, Any]) -> bool:
    return isinstance(part.get("$ref"), str)


def _unknown_required(schema: Mapping[str, Any]) -> Iterator[SchemaProblem]:
    properties = schema.get("properties", {})
    for index, name in enumerate(schema.get("required", [])):
        if name not in properties:
            yield SchemaProblem(("required", index), f"{name!r} is not one of the properties")


def _formats() -> FormatChecker:
    """The formats of the standard that matter to answers; the library checks a few of them only."""
    checker = FormatChecker(("date", "email", "idn-email", "ipv4", "ipv6", "regex", "uuid"))
    for name, check in _OWN_FORMATS.items():
        checker.checks(name, raises=ValueError)(_only_text(check))
    return checker


def _only_text(check: Callable[[str], object]) -> Callable[[object], bool]:
    """A check for text; what is no text has no format, says the standard."""

    def checked(value: object) -> bool:
        if isinstance(value, str):
            check(value)
        return True

    return checked


def _date_time(value: str) -> None:
    if not _DATE_TIME.match(value):
        raise ValueError("is not a date and time with a zone")
    datetime.fromisoformat(value.upper())


def _uri(value: str) -> None:
    if not urlsplit(value).scheme or any(sign.isspace() for sign in value):
        raise ValueError("is not an address")


_OWN_FORMATS: dict[str, Callable[[str], object]] = {
    "date-time": _date_time,
    "time": time.fromisoformat,
    "uri": _uri,
    "iri": _uri,
}
