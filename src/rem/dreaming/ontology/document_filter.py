"""Document filter: decides which documents a rule in `ontology_configs` applies to.

A pattern that contains `.*`, `.+`, `^`, `$`, `|`, a parenthesis or a backslash is a regular expression. Any other
pattern is a glob, in which `*` stands for any text and `?` for one character: `image/*`, `*.pdf`, `s3://contracts/.*`,
`application/(pdf|msword)`. A pattern has to match the whole MIME type (in lower case, without parameters) or address.
The engine never backtracks, so no pattern is slow. A rule without pattern matches everything; of the tags in
`tag_filter`, a document needs one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

MAX_PATTERN_CHARS = 1000
MAX_COMPILED_BYTES = 128 * 1024
_REGEX_SIGN = re.compile(r"\.[*+]|[\^$|()\\]")


def matches_pattern(pattern: str | None, text: str | None) -> bool:
    """Return whether a pattern matches a text. No pattern matches everything."""
    if not pattern:
        return True
    return text is not None and _compile(pattern).is_valid(text)


def matches_mime_type(pattern: str | None, mime_type: str | None) -> bool:
    """Return whether a pattern matches a MIME type, without regard to case and parameters."""
    plain = mime_type.partition(";")[0].strip().lower() if mime_type else None
    return matches_pattern(pattern.lower() if pattern and not _REGEX_SIGN.search(pattern) else pattern, plain)


def matches_tags(wanted: Iterable[str], tags: Iterable[str]) -> bool:
    """Return whether one of the wanted tags is among the tags, or no tag is wanted."""
    folded = {tag.casefold() for tag in wanted}
    return not folded or not folded.isdisjoint(tag.casefold() for tag in tags)


def find_pattern_error(pattern: str | None) -> str | None:
    """Return what is wrong with a pattern, or None if it can be used."""
    if not pattern:
        return None
    if len(pattern) > MAX_PATTERN_CHARS:
        return f"has more than {MAX_PATTERN_CHARS:,} characters"
    try:
        _compile(pattern)
    except ValueError:
        return "is neither a glob such as *.pdf nor a regular expression without look-around and references to groups"
    return None


@lru_cache(maxsize=256)
def _compile(pattern: str) -> Draft202012Validator:
    """Return a JSON schema validator for texts that a pattern matches: its regular expressions never backtrack."""
    from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

    expression = pattern if _REGEX_SIGN.search(pattern) else _glob_to_regex(pattern)
    options = RegexOptions(size_limit=MAX_COMPILED_BYTES, dfa_size_limit=MAX_COMPILED_BYTES)
    try:
        return Draft202012Validator({"pattern": f"^(?:{expression})$"}, offline=True, pattern_options=options)
    except (ValidationError, ValueError) as error:
        raise ValueError(str(error)) from error


def _glob_to_regex(pattern: str) -> str:
    wildcards = {"*": ".*", "?": "."}
    return "".join(wildcards.get(sign, f"\\{sign}" if sign in "./+-{}[]" else sign) for sign in pattern)
