"""Which documents a rule in `ontology_configs` is for.

A pattern with `.*`, `.+`, `^`, `$`, `|`, a parenthesis or a backslash in it is a regular expression, any other a glob,
in which `*` stands for anything and `?` for one character: `image/*`, `*.pdf`, `s3://contracts/.*`,
`application/(pdf|msword)`. Both are compared with the whole of a MIME type (in lower case, without its parameters) or
address, by an engine that never backtracks, so that no pattern can keep it busy. What a rule leaves out does not
matter; of `tag_filter`, one tag has to be there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

_EXPRESSION = re.compile(r"\.[*+]|[\^$|()\\]")
_LONGEST = 1000
_LARGEST = 128 * 1024


def matches_pattern(pattern: str | None, text: str | None) -> bool:
    """Whether a text is as a pattern says; any is, if there is no pattern."""
    if not pattern:
        return True
    return text is not None and _compile(pattern).is_valid(text)


def matches_mime_type(pattern: str | None, mime_type: str | None) -> bool:
    """The same for a MIME type."""
    plain = mime_type.partition(";")[0].strip().lower() if mime_type else None
    return matches_pattern(pattern.lower() if pattern and not _EXPRESSION.search(pattern) else pattern, plain)


def matches_tags(wanted: Iterable[str], tags: Iterable[str]) -> bool:
    """Whether one of the wanted tags is there; any will do, if none is wanted."""
    folded = {tag.casefold() for tag in wanted}
    return not folded or not folded.isdisjoint(tag.casefold() for tag in tags)


def find_pattern_error(pattern: str | None) -> str | None:
    """What is wrong with a pattern; None if it can be used."""
    if not pattern:
        return None
    if len(pattern) > _LONGEST:
        return f"has more than {_LONGEST:,} characters"
    try:
        _compile(pattern)
    except ValueError:
        return "is neither a glob such as *.pdf nor a regular expression without look-around and references to groups"
    return None


@lru_cache(maxsize=256)
def _compile(pattern: str) -> Draft202012Validator:
    from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

    expression = pattern if _EXPRESSION.search(pattern) else _glob_to_regex(pattern)
    options = RegexOptions(size_limit=_LARGEST, dfa_size_limit=_LARGEST)
    try:
        return Draft202012Validator({"pattern": f"^(?:{expression})$"}, offline=True, pattern_options=options)
    except (ValidationError, ValueError) as error:
        raise ValueError(str(error)) from error


def _glob_to_regex(pattern: str) -> str:
    signs = {"*": ".*", "?": "."}
    return "".join(signs.get(sign, f"\\{sign}" if sign in "./+-{}[]" else sign) for sign in pattern)
