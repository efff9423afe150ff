"""The JSON schema of an answer: whether it is one, is small, needs nothing from elsewhere, and whether an answer fits.

Schemas come from callers and from saved agents, so nothing in one may make REM fetch an address, read a file, or
compute for long: references lead to its own `$defs` only, regular expressions are matched in linear time, and there
is a limit to everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import time
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import orjson
from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError, ValidationErrorKind

from rem.agents.schema_references import ExpandedSize, Path, ReferenceResolver, is_reference, iter_nodes, iter_patterns

MAX_SCHEMA_BYTES = 64 * 1024
"""How long a schema may be as JSON, in bytes."""
_LONGEST_WRITTEN_OUT = 2 * MAX_SCHEMA_BYTES
_MOST_NODES = 5_000
_DEEPEST = 50
_MOST_UNEVALUATED = 4
"""Each doubles the time that the validator needs if they are nested."""
_LONGEST_PATTERN = 1_000
_MOST_PATTERNS = 128
_PATTERN_SIZES = (2 * 1024, 8 * 1024, 32 * 1024, 128 * 1024)
"""What a compiled regular expression may need, in steps: matching takes as long as it is large, for each letter."""
_PATTERNS_SIZE = 512 * 1024
_LINEAR = RegexOptions(size_limit=_PATTERN_SIZES[-1], dfa_size_limit=64 * 1024)
_META_SCHEMA = "https://json-schema.org/draft/2020-12/schema"
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_STANDARDS = ("http://json-schema.org/", "https://json-schema.org/")
_ELSEWHERE = ("$dynamicRef", "$recursiveRef", "$id", "$anchor", "$dynamicAnchor")
_MOST_PROBLEMS = 10
_MOST_ERRORS = 50_000
"""The validator finds all errors or one; so many it may have to find before only one is asked for."""
_LONGEST_SHOWN = 100


class SchemaIssue(NamedTuple):
    """Something that is wrong in a schema or an answer, and where."""

    path: Path
    message: str


class SchemaTooLargeError(ValueError):
    """A document that cannot be a schema, whatever it says; the message says why."""


def encode_schema(schema: Mapping[str, Any]) -> bytes:
    """A schema as JSON; a SchemaTooLargeError if it is too long, or is nothing that JSON can hold."""
    try:
        text = orjson.dumps(dict(schema))
    except TypeError as error:
        raise SchemaTooLargeError(_unwritable(error)) from error
    if len(text) > MAX_SCHEMA_BYTES:
        raise SchemaTooLargeError(f"is longer than {MAX_SCHEMA_BYTES // 1024} KB as JSON: ask for less in one answer")
    return text


def check_schema(schema: Mapping[str, Any]) -> list[SchemaIssue]:
    """What keeps a document from being the schema of an answer."""
    try:
        text = encode_schema(schema)
        return _schema_problems(schema, text)[:_MOST_PROBLEMS]
    except SchemaTooLargeError as error:
        return [SchemaIssue((), str(error))]
    except RecursionError:
        return [SchemaIssue((), "is nested too deep")]


def check_answer(schema: Mapping[str, Any], answer: Any) -> list[SchemaIssue]:
    """Where an answer does not fit a schema that has no problems; empty if it does."""
    try:
        orjson.dumps(answer)
    except TypeError as error:
        return [SchemaIssue((), _unwritable(error))]
    validator = _validator(orjson.dumps(schema))
    if validator.is_valid(answer):
        return []
    count = sum(1 for _ in iter_nodes(answer)) * ReferenceResolver(schema).measure(schema).nodes
    found = [SchemaIssue(tuple(error.instance_path), _message(error)) for error in _errors(validator, answer, count)]
    return sorted(found, key=lambda problem: [str(part) for part in problem.path])[:_MOST_PROBLEMS]


def expand_references(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that has no problems without references and `$defs`."""
    plain = {name: value for name, value in schema.items() if name != "$defs"}
    result: dict[str, Any] = ReferenceResolver(schema).expand(plain)
    return result


def format_path(path: Path) -> str:
    """A place in a document as people write it: `tools[0].name`."""
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return name.removeprefix(".")


def _schema_problems(schema: Mapping[str, Any], text: bytes) -> list[SchemaIssue]:
    if schema.get("type") != "object":
        return [SchemaIssue(("type",), "must be object")]
    nodes = list(islice(iter_nodes(schema), _MOST_NODES + 1))
    found = _beyond_limits(nodes) or _invalid(orjson.loads(text), len(nodes))
    found = found or [*_unsafe(schema), *_unknown_required(schema)]
    return found or _unusable(text)


def _beyond_limits(nodes: list[tuple[Path, Any]]) -> list[SchemaIssue]:
    """Why a document is too much to look at any closer."""
    if len(nodes) > _MOST_NODES:
        return [SchemaIssue((), f"has more than {_MOST_NODES} parts: ask for less in one answer")]
    if max(len(path) for path, _ in nodes) > _DEEPEST:
        return [SchemaIssue((), f"is nested too deep: {_DEEPEST} levels are the most")]
    if sum(1 for _, part in nodes for _ in iter_patterns(part)) > _MOST_PATTERNS:
        return [SchemaIssue((), f"has more than {_MOST_PATTERNS} regular expressions: use fewer")]
    infinite = [path for path, part in nodes if isinstance(part, float) and not math.isfinite(part)]
    return [SchemaIssue(path, "is not a number that JSON can hold") for path in infinite]


def _invalid(schema: Mapping[str, Any], count: int) -> list[SchemaIssue]:
    """Where a document is not what the standard calls a schema."""
    meta = _meta_validator()
    errors = [] if meta.is_valid(schema) else _errors(meta, schema, 50 * count)
    # The standard is in several parts, all of which complain.
    return list(dict.fromkeys(SchemaIssue(tuple(error.instance_path), _meta_message(error)) for error in errors))


def _unusable(text: bytes) -> list[SchemaIssue]:
    """What only the validator itself finds."""
    try:
        _validator(text)
    except (ValidationError, ValueError) as error:
        return [SchemaIssue((), f"cannot be used: {_shortened(str(error).partition(chr(10))[0])}")]
    return []


def _errors(validator: Draft202012Validator, document: Any, count: int) -> list[ValidationError]:
    """What a validator has against a document; the first only if there may be very many."""
    if count <= _MOST_ERRORS:
        return list(validator.iter_errors(document))
    try:
        validator.validate(document)
    except ValidationError as error:
        return [error]
    return []


@lru_cache(maxsize=16)
def _validator(schema: bytes) -> Draft202012Validator:
    return _offline(orjson.loads(schema))


@lru_cache(maxsize=1)
def _meta_validator() -> Draft202012Validator:
    # It comes with the library. Formats are left to the checks below, which say more.
    return Draft202012Validator({"$ref": _META_SCHEMA}, offline=True, validate_formats=False, pattern_options=_LINEAR)


def _offline(schema: dict[str, Any], patterns: RegexOptions = _LINEAR) -> Draft202012Validator:
    """A validator that retrieves nothing, and whose regular expressions never backtrack."""
    return Draft202012Validator(
        schema,
        offline=True,
        validate_formats=True,
        formats={"time": _is_time},
        pattern_options=patterns,
    )


def _is_time(value: str) -> bool:
    """Unlike the standard, a time needs no zone: models and people leave it out."""
    try:
        time.fromisoformat(value.upper())
    except ValueError:
        return False
    return True


def _unwritable(error: TypeError) -> str:
    """What is said of a value that JSON cannot hold."""
    if "ecursion" in str(error):
        return "is nested too deep"
    if "surrogates" in str(error):
        return "has half a character (a lone surrogate such as \\ud800), which is not text: leave it out"
    if "64-bit" in str(error):
        return "has an integer beyond 64 bits: write it as a string"
    return f"is not JSON: {error}"


def _message(error: ValidationError) -> str:
    kind = error.kind
    if isinstance(kind, ValidationErrorKind.Enum):
        # The validator's own message names the first few only.
        options = ", ".join(orjson.dumps(option).decode() for option in kind.options)
        return _shortened(f"{_shortened(orjson.dumps(error.instance).decode())} is not one of {options}")
    return _shortened(error.message)


def _meta_message(error: ValidationError) -> str:
    if error.instance_path and error.instance_path[-1] == "type" and isinstance(error.kind, ValidationErrorKind.AnyOf):
        return f"{_shortened(repr(error.instance))} is not a type: use one of {', '.join(_TYPES)}"
    return _message(error)


def _shortened(message: str) -> str:
    """The message without the middle of what it quotes, which may be the whole answer."""
    if len(message) <= 2 * _LONGEST_SHOWN:
        return message
    return f"{message[:_LONGEST_SHOWN]} … {message[-_LONGEST_SHOWN:]}"


def _unsafe(schema: Mapping[str, Any]) -> list[SchemaIssue]:
    """What leads elsewhere, nowhere or in a circle, stands for too much, or cannot be matched quickly."""
    references = ReferenceResolver(schema)
    found = [problem for path, part in iter_nodes(schema) for problem in _unsafe_part(references, path, part)]
    if found:
        return found
    weight = references.measure(schema)
    too_much = _too_much(weight)
    return [SchemaIssue((), f"{too_much}: ask for less in one answer")] if too_much else _patterns(schema, weight)


def _unsafe_part(references: ReferenceResolver, path: Path, part: Any) -> Iterator[SchemaIssue]:
    if not isinstance(part, Mapping):
        return
    for name in _ELSEWHERE:
        if isinstance(part.get(name), str):
            yield SchemaIssue((*path, name), "is not supported: leave it out, and refer to #/$defs/name with $ref")
    standard = part.get("$schema")
    if isinstance(standard, str) and not standard.startswith(_STANDARDS):
        yield SchemaIssue((*path, "$schema"), "must be one of json-schema.org: leave it out")
    if is_reference(part):
        try:
            too_much = _too_much(references.measure_reference(part["$ref"]))
        except ValueError as error:
            yield SchemaIssue((*path, "$ref"), _shortened(str(error)))
        else:
            if too_much:
                yield SchemaIssue((*path, "$ref"), f"stands for too much: it {too_much}")


def _too_much(weight: ExpandedSize) -> str | None:
    """Which of the limits a schema, or what a reference stands for, is beyond."""
    limits = (
        (weight.size > _LONGEST_WRITTEN_OUT, f"is longer than {_LONGEST_WRITTEN_OUT // 1024} KB"),
        (weight.nodes > _MOST_NODES, f"has more than {_MOST_NODES} parts"),
        (weight.depth > _DEEPEST, f"is nested too deep, more than {_DEEPEST} levels"),
        (weight.patterns.total() > _MOST_PATTERNS, f"has more than {_MOST_PATTERNS} regular expressions"),
        (weight.unevaluated > _MOST_UNEVALUATED, f"has more than {_MOST_UNEVALUATED} unevaluatedProperties or -Items"),
    )
    beyond = next((message for is_beyond, message in limits if is_beyond), None)
    return None if beyond is None else f"{beyond} with its references written out"


def _patterns(schema: Mapping[str, Any], weight: ExpandedSize) -> list[SchemaIssue]:
    """The regular expressions that cannot be matched in linear time, one by one or all together."""
    sizes = {pattern: _pattern_size(pattern) for pattern in weight.patterns}
    found = [
        SchemaIssue((*path, *inner), _NO_PATTERN)
        for path, part in iter_nodes(schema)
        for inner, pattern in iter_patterns(part)
        if sizes[pattern] is None
    ]
    total = sum(times * (sizes[pattern] or 0) for pattern, times in weight.patterns.items())
    if not found and total > _PATTERNS_SIZE:
        return [SchemaIssue((), "has too many large regular expressions: use maxLength in place of large repeats")]
    return found


_NO_PATTERN = (
    "is not a regular expression that can be matched quickly: leave out what looks ahead or back and references to "
    "groups, use maxLength in place of a large repeat, and close all brackets"
)


@lru_cache(maxsize=256)
def _pattern_size(pattern: str) -> int | None:
    """How large a regular expression is when compiled, about; None if it is none, or too large."""
    if len(pattern) > _LONGEST_PATTERN:
        return None
    for size in _PATTERN_SIZES:
        try:
            _offline({"pattern": pattern}, RegexOptions(size_limit=size))
        except ValidationError:
            continue
        return size
    return None


def _unknown_required(schema: Mapping[str, Any]) -> Iterator[SchemaIssue]:
    properties = schema.get("properties", {})
    for index, name in enumerate(schema.get("required", [])):
        if name not in properties:
            yield SchemaIssue(("required", index), f"{name!r} is not one of the properties")
