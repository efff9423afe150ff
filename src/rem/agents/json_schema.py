"""Check the JSON schema of an answer, and check an answer against its schema.

Callers and users write the schemas. Nothing in a schema may make REM fetch an address, read a file or compute for a
long time: references lead only to the schema's own `$defs`, regular expressions are matched in linear time, and every
size has a limit.
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
"""Length of a schema as JSON."""
MAX_EXPANDED_BYTES = 2 * MAX_SCHEMA_BYTES
"""Length of a schema as JSON with expanded references."""
MAX_NODES = 5_000
MAX_DEPTH = 50
MAX_UNEVALUATED = 4
"""Number of `unevaluatedProperties` and `unevaluatedItems`. Each nested one doubles the time of a validation."""
MAX_PATTERN_CHARS = 1_000
MAX_PATTERNS = 128
PATTERN_SIZES_BYTES = (2 * 1024, 8 * 1024, 32 * 1024, 128 * 1024)
"""Sizes to try for a compiled regular expression. The time to match one character grows with the size."""
MAX_PATTERNS_BYTES = 512 * 1024
"""Size of all compiled regular expressions of a schema together."""
MAX_REPORTED_ISSUES = 10
MAX_POSSIBLE_ERRORS = 50_000
"""The validator reports either all errors or the first one. Above this estimate only the first one is requested."""
MAX_QUOTED_CHARS = 100
_LINEAR_PATTERNS = RegexOptions(size_limit=PATTERN_SIZES_BYTES[-1], dfa_size_limit=64 * 1024)
_META_SCHEMA = "https://json-schema.org/draft/2020-12/schema"
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_SCHEMA_STANDARDS = ("http://json-schema.org/", "https://json-schema.org/")
_UNSUPPORTED_KEYWORDS = ("$dynamicRef", "$recursiveRef", "$id", "$anchor", "$dynamicAnchor")
_UNSUPPORTED_PATTERN = (
    "is not a regular expression that can be matched quickly: remove lookahead, lookbehind and references to groups, "
    "use maxLength instead of a large repeat, and close all brackets"
)


class SchemaIssue(NamedTuple):
    """An error in a schema or an answer, and its path."""

    path: Path
    message: str


class SchemaTooLargeError(ValueError):
    """The document is too long for a schema, or JSON cannot hold it."""


def encode_schema(schema: Mapping[str, Any]) -> bytes:
    """Return a schema as JSON. Raise SchemaTooLargeError if it is too long or JSON cannot hold it."""
    try:
        text = orjson.dumps(dict(schema))
    except TypeError as error:
        raise SchemaTooLargeError(_describe_encoding_error(error)) from error
    if len(text) > MAX_SCHEMA_BYTES:
        raise SchemaTooLargeError(f"is longer than {MAX_SCHEMA_BYTES // 1024} KB as JSON: ask for less in one answer")
    return text


def check_schema(schema: Mapping[str, Any]) -> list[SchemaIssue]:
    """Return the errors of a document as the schema of an answer; none if it can be used."""
    try:
        text = encode_schema(schema)
        return _find_schema_issues(schema, text)[:MAX_REPORTED_ISSUES]
    except SchemaTooLargeError as error:
        return [SchemaIssue((), str(error))]
    except RecursionError:
        return [SchemaIssue((), "is nested too deep")]


def check_answer(schema: Mapping[str, Any], answer: Any) -> list[SchemaIssue]:
    """Return the errors of an answer, ordered by path; none if it matches. The schema must be valid."""
    try:
        orjson.dumps(answer)
    except TypeError as error:
        return [SchemaIssue((), _describe_encoding_error(error))]
    validator = _get_validator(orjson.dumps(schema))
    if validator.is_valid(answer):
        return []
    possible_errors = sum(1 for _ in iter_nodes(answer)) * ReferenceResolver(schema).measure(schema).nodes
    issues = [
        SchemaIssue(tuple(error.instance_path), _describe_error(error))
        for error in _list_errors(validator, answer, possible_errors)
    ]
    return sorted(issues, key=lambda issue: [str(part) for part in issue.path])[:MAX_REPORTED_ISSUES]


def expand_references(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a valid schema with its references replaced by their definitions, and without `$defs`."""
    without_definitions = {name: value for name, value in schema.items() if name != "$defs"}
    expanded: dict[str, Any] = ReferenceResolver(schema).expand(without_definitions)
    return expanded


def format_path(path: Path) -> str:
    """Return a path as text: `tools[0].name`."""
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return name.removeprefix(".")


def _find_schema_issues(schema: Mapping[str, Any], text: bytes) -> list[SchemaIssue]:
    """Run the checks from cheap to expensive, and return the errors of the first that fails."""
    if schema.get("type") != "object":
        return [SchemaIssue(("type",), "must be object")]
    nodes = list(islice(iter_nodes(schema), MAX_NODES + 1))
    issues = _check_limits(nodes) or _check_standard(orjson.loads(text), len(nodes))
    issues = issues or [*_check_safety(schema), *_check_required(schema)]
    return issues or _check_validator(text)


def _check_limits(nodes: list[tuple[Path, Any]]) -> list[SchemaIssue]:
    if len(nodes) > MAX_NODES:
        return [SchemaIssue((), f"has more than {MAX_NODES} parts: ask for less in one answer")]
    if max(len(path) for path, _ in nodes) > MAX_DEPTH:
        return [SchemaIssue((), f"is nested too deep: at most {MAX_DEPTH} levels are allowed")]
    if sum(1 for _, node in nodes for _ in iter_patterns(node)) > MAX_PATTERNS:
        return [SchemaIssue((), f"has more than {MAX_PATTERNS} regular expressions: use fewer")]
    infinite = [path for path, node in nodes if isinstance(node, float) and not math.isfinite(node)]
    return [SchemaIssue(path, "is not a number that JSON can hold") for path in infinite]


def _check_standard(schema: Mapping[str, Any], node_count: int) -> list[SchemaIssue]:
    """Check the document against the meta schema of JSON Schema."""
    validator = _get_meta_validator()
    errors = [] if validator.is_valid(schema) else _list_errors(validator, schema, 50 * node_count)
    issues = (SchemaIssue(tuple(error.instance_path), _describe_meta_error(error)) for error in errors)
    # The meta schema has several parts, which report the same errors.
    return list(dict.fromkeys(issues))


def _check_safety(schema: Mapping[str, Any]) -> list[SchemaIssue]:
    """Check references, expanded size and regular expressions."""
    resolver = ReferenceResolver(schema)
    issues = [issue for path, node in iter_nodes(schema) for issue in _check_references(resolver, path, node)]
    if issues:
        return issues
    size = resolver.measure(schema)
    exceeded = _find_exceeded_limit(size)
    return [SchemaIssue((), f"{exceeded}: ask for less in one answer")] if exceeded else _check_patterns(schema, size)


def _check_references(resolver: ReferenceResolver, path: Path, node: Any) -> Iterator[SchemaIssue]:
    if not isinstance(node, Mapping):
        return
    for name in _UNSUPPORTED_KEYWORDS:
        if isinstance(node.get(name), str):
            yield SchemaIssue((*path, name), "is not supported: leave it out, and refer to #/$defs/name with $ref")
    standard = node.get("$schema")
    if isinstance(standard, str) and not standard.startswith(_SCHEMA_STANDARDS):
        yield SchemaIssue((*path, "$schema"), "must be one of json-schema.org: leave it out")
    if is_reference(node):
        try:
            exceeded = _find_exceeded_limit(resolver.measure_reference(node["$ref"]))
        except ValueError as error:
            yield SchemaIssue((*path, "$ref"), _shorten(str(error)))
        else:
            if exceeded:
                yield SchemaIssue((*path, "$ref"), f"stands for too much: it {exceeded}")


def _find_exceeded_limit(size: ExpandedSize) -> str | None:
    """Return the first limit that a schema or a definition exceeds, as the end of a sentence; None if there is none."""
    limits = (
        (size.size > MAX_EXPANDED_BYTES, f"is longer than {MAX_EXPANDED_BYTES // 1024} KB"),
        (size.nodes > MAX_NODES, f"has more than {MAX_NODES} parts"),
        (size.depth > MAX_DEPTH, f"is nested too deep, more than {MAX_DEPTH} levels"),
        (size.patterns.total() > MAX_PATTERNS, f"has more than {MAX_PATTERNS} regular expressions"),
        (size.unevaluated > MAX_UNEVALUATED, f"has more than {MAX_UNEVALUATED} unevaluatedProperties or -Items"),
    )
    message = next((message for is_exceeded, message in limits if is_exceeded), None)
    return None if message is None else f"{message} with its references expanded"


def _check_patterns(schema: Mapping[str, Any], size: ExpandedSize) -> list[SchemaIssue]:
    """Check that every regular expression can be matched in linear time, and their size together."""
    compiled_bytes = {pattern: _measure_pattern(pattern) for pattern in size.patterns}
    issues = [
        SchemaIssue((*path, *pattern_path), _UNSUPPORTED_PATTERN)
        for path, node in iter_nodes(schema)
        for pattern_path, pattern in iter_patterns(node)
        if compiled_bytes[pattern] is None
    ]
    total = sum(times * (compiled_bytes[pattern] or 0) for pattern, times in size.patterns.items())
    if not issues and total > MAX_PATTERNS_BYTES:
        return [SchemaIssue((), "has too many large regular expressions: use maxLength in place of large repeats")]
    return issues


@lru_cache(maxsize=256)
def _measure_pattern(pattern: str) -> int | None:
    """Return the approximate compiled size of a regular expression; None if it is not valid or too large."""
    if len(pattern) > MAX_PATTERN_CHARS:
        return None
    for size in PATTERN_SIZES_BYTES:
        try:
            _make_validator({"pattern": pattern}, RegexOptions(size_limit=size))
        except ValidationError:
            continue
        return size
    return None


def _check_required(schema: Mapping[str, Any]) -> Iterator[SchemaIssue]:
    properties = schema.get("properties", {})
    for index, name in enumerate(schema.get("required", [])):
        if name not in properties:
            yield SchemaIssue(("required", index), f"{name!r} is not one of the properties")


def _check_validator(text: bytes) -> list[SchemaIssue]:
    """Build the validator, which has checks of its own."""
    try:
        _get_validator(text)
    except (ValidationError, ValueError) as error:
        return [SchemaIssue((), f"cannot be used: {_shorten(str(error).partition(chr(10))[0])}")]
    return []


def _list_errors(validator: Draft202012Validator, document: Any, possible_errors: int) -> list[ValidationError]:
    """Return the errors of a document; only the first one if there may be more than MAX_POSSIBLE_ERRORS."""
    if possible_errors <= MAX_POSSIBLE_ERRORS:
        return list(validator.iter_errors(document))
    try:
        validator.validate(document)
    except ValidationError as error:
        return [error]
    return []


@lru_cache(maxsize=16)
def _get_validator(schema: bytes) -> Draft202012Validator:
    return _make_validator(orjson.loads(schema))


@lru_cache(maxsize=1)
def _get_meta_validator() -> Draft202012Validator:
    # The meta schema comes with the library. Formats are left to the checks above, which give better messages.
    return Draft202012Validator(
        {"$ref": _META_SCHEMA}, offline=True, validate_formats=False, pattern_options=_LINEAR_PATTERNS
    )


def _make_validator(schema: dict[str, Any], patterns: RegexOptions = _LINEAR_PATTERNS) -> Draft202012Validator:
    """Return a validator that fetches nothing, and whose regular expressions never backtrack."""
    return Draft202012Validator(
        schema,
        offline=True,
        validate_formats=True,
        formats={"time": _is_time},
        pattern_options=patterns,
    )


def _is_time(value: str) -> bool:
    """Return whether a text is a time. Unlike the standard, it needs no time zone: models leave it out."""
    try:
        time.fromisoformat(value.upper())
    except ValueError:
        return False
    return True


def _describe_encoding_error(error: TypeError) -> str:
    """Return why JSON cannot hold a value."""
    if "ecursion" in str(error):
        return "is nested too deep"
    if "surrogates" in str(error):
        return "has half a character (a lone surrogate such as \\ud800), which is not text: leave it out"
    if "64-bit" in str(error):
        return "has an integer beyond 64 bits: write it as a string"
    return f"is not JSON: {error}"


def _describe_error(error: ValidationError) -> str:
    kind = error.kind
    if isinstance(kind, ValidationErrorKind.Enum):
        # The validator's own message names only the first few options.
        options = ", ".join(orjson.dumps(option).decode() for option in kind.options)
        return _shorten(f"{_shorten(orjson.dumps(error.instance).decode())} is not one of {options}")
    return _shorten(error.message)


def _describe_meta_error(error: ValidationError) -> str:
    if error.instance_path and error.instance_path[-1] == "type" and isinstance(error.kind, ValidationErrorKind.AnyOf):
        return f"{_shorten(repr(error.instance))} is not a type: use one of {', '.join(_TYPES)}"
    return _describe_error(error)


def _shorten(message: str) -> str:
    """Return the message without its middle if it is long: it may quote the whole answer."""
    if len(message) <= 2 * MAX_QUOTED_CHARS:
        return message
    return f"{message[:MAX_QUOTED_CHARS]} … {message[-MAX_QUOTED_CHARS:]}"
