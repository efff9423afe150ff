"""Match addresses with patterns such as `rem://sessions/.*`.

Users write the patterns and a model writes the addresses, so matching must take linear time. A pattern is a restricted
regular expression: characters, `.`, `[...]`, `\\` before a special character, and `*`, `+` or `?` after any of them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_STEP = re.compile(
    r"(?:\\(?P<escaped>\W)|(?P<any>\.)|\[(?P<set>\^?[^\[\]\\^]+)\]|(?P<plain>[^\\.\[\](){}|*+?^$]))(?P<times>[*+?]?)"
)


class _Step(NamedTuple):
    """One character of an address: what it may be, and how often it may occur."""

    character: re.Pattern[str]
    is_optional: bool
    is_repeated: bool


def check_uri_pattern(pattern: str) -> None:
    """Raise ValueError, which says what is wrong, if the pattern is not valid."""
    _parse(pattern)


def matches_uri_pattern(pattern: str, uri: str) -> bool:
    """Return whether the pattern matches the whole address."""
    steps = _parse(pattern)
    states = _skip_optional(steps, {0})
    for character in uri:
        matched = {state for state in states if state < len(steps) and steps[state].character.match(character)}
        following = {state + 1 for state in matched} | {state for state in matched if steps[state].is_repeated}
        states = _skip_optional(steps, following)
        if not states:
            return False
    return len(steps) in states


@lru_cache(maxsize=256)
def _parse(pattern: str) -> tuple[_Step, ...]:
    steps, position = [], 0
    # Anchors are redundant: the whole address is compared.
    pattern = pattern.removeprefix("^").removesuffix("$")
    while position < len(pattern):
        match = _STEP.match(pattern, position)
        if match is None:
            raise ValueError(
                f"{pattern[position]!r} at position {position + 1} is not supported here: write a pattern with .* such "
                "as rem://sessions/.*, and one pattern for each alternative"
            )
        position = match.end()
        times = match["times"]
        steps.append(_Step(_compile_character(match), is_optional=times in ("*", "?"), is_repeated=times in ("*", "+")))
    return tuple(steps)


def _compile_character(match: re.Match[str]) -> re.Pattern[str]:
    if match["any"]:
        return re.compile(".", re.DOTALL)
    if match["set"]:
        try:
            return re.compile(f"[{match['set']}]")
        except re.error as error:
            raise ValueError(f"[{match['set']}]: {error.msg}") from error
    return re.compile(re.escape(match["escaped"] or match["plain"]))


def _skip_optional(steps: tuple[_Step, ...], states: set[int]) -> set[int]:
    """Return the states, and those that are reachable by skipping optional steps."""
    pending, reachable = list(states), set(states)
    while pending:
        state = pending.pop()
        if state < len(steps) and steps[state].is_optional and state + 1 not in reachable:
            reachable.add(state + 1)
            pending.append(state + 1)
    return reachable
