"""Compile patterns in the syntax of `.gitignore`. Matching takes little time for any pattern and any path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from rem.errors import InvalidInputError

MAX_IGNORE_FILE_BYTES = 200_000
MAX_PATTERNS = 2_000
"""In one `.gitignore`, and for one listing."""
MAX_PATTERN_CHARS = 500
_STAR = "[^/]*"
_FOLDERS = "(?:.+/)?"
_FOLDERS_BEHIND_SLASH = "(?:/.+)?/"
_NO_SLASH = "(?!/)"
_ESCAPE_OR_SET = re.compile(r"\\.|\[\^/\]|(\[\^?\]?[^\]]*\])", re.DOTALL)


class _Pattern(GitIgnoreSpecPattern):
    """A pattern whose regular expression does not try all ways to divide a path among its wildcards."""

    __slots__ = ()

    @classmethod
    def pattern_to_regex(cls, pattern: str) -> tuple[str | None, bool | None]:  # type: ignore[override]
        regex, include = super().pattern_to_regex(pattern)
        return None if regex is None else _limit_backtracking(regex), include


def compile_excluded(patterns: Sequence[str]) -> GitIgnoreSpec:
    """Return the patterns that a caller has given. Raise InvalidInputError if one is not valid."""
    if len(patterns) > MAX_PATTERNS:
        raise InvalidInputError(
            f"There are {len(patterns):,} patterns to exclude. At most {MAX_PATTERNS:,} are allowed."
        )
    too_long = next((pattern for pattern in patterns if len(pattern) > MAX_PATTERN_CHARS), None)
    if too_long is not None:
        raise InvalidInputError(
            f"A pattern to exclude has {len(too_long):,} characters. At most {MAX_PATTERN_CHARS} are allowed: shorten "
            f"{too_long[:20]}…"
        )
    try:
        return _make_spec(_Pattern(pattern) for pattern in patterns)
    except ValueError as error:
        raise InvalidInputError(f"A pattern to exclude is not valid: {error}. Write it as in .gitignore.") from error


def compile_ignore_file(content: bytes) -> tuple[GitIgnoreSpec, str | None]:
    """Return the patterns of a `.gitignore`, and what was left out of it, if it is too long.

    Invalid lines do not count: Git skips them, too.
    """
    text = content[:MAX_IGNORE_FILE_BYTES].decode("utf-8-sig", errors="replace")
    lines = text.splitlines()
    if len(content) > MAX_IGNORE_FILE_BYTES:
        lines = lines[:-1]  # A part of a line could ignore more than the line.
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    used = [line for line in lines if len(line) <= MAX_PATTERN_CHARS][:MAX_PATTERNS]
    is_complete = len(used) == len(lines) and len(content) <= MAX_IGNORE_FILE_BYTES
    spec = _make_spec(pattern for line in used if (pattern := _try_pattern(line)) is not None)
    note = (
        f"only {MAX_PATTERNS:,} patterns with up to {MAX_PATTERN_CHARS} characters, in the first "
        f"{MAX_IGNORE_FILE_BYTES // 1000} KB, count"
    )
    return spec, None if is_complete else note


def _make_spec(patterns: Iterable[_Pattern]) -> GitIgnoreSpec:
    # Another backend, if it is installed, may not know atomic groups.
    return GitIgnoreSpec(list(patterns), backend="simple")


def _try_pattern(line: str) -> _Pattern | None:
    try:
        return _Pattern(line)
    except ValueError:
        return None


def _limit_backtracking(regex: str) -> str:
    """Return a regular expression for the same paths, in which only the last wildcard is tried in several ways.

    If the text behind a wildcard ends before another wildcard of the same kind, then its first occurrence is as good as
    any later one: the next wildcard can skip the rest. So a match of it is final, and `*a*a*a*b` takes linear time.
    """
    # As in Git, a set of characters such as [!a] does not match a slash.
    regex = _ESCAPE_OR_SET.sub(lambda match: f"{_NO_SLASH if match[1] else ''}{match[0]}", regex)
    first, *stars = regex.replace(_FOLDERS_BEHIND_SLASH, f"/{_FOLDERS}").split(_STAR)
    for number, text in enumerate(stars, 1):
        # A slash that is matched ends the segment of a star.
        is_final = number < len(stars) and "/" not in text.replace("[^/]", "").replace(_NO_SLASH, "")
        first += f"(?>{_STAR}?{text})" if is_final else _STAR + text
    start, *folders = first.split(_FOLDERS)
    for number, text in enumerate(folders, 1):
        start += f"(?>(?:[^/]+/)*?{text})" if number < len(folders) else _FOLDERS + text
    return start
